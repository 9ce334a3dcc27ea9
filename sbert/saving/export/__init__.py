"""Export: encoders for programs that run without this library, and without Python.

``sbert export onnx MODEL DIR`` writes a folder with the model, its ``tokenizer.json`` and a ``README.md``, which has
the lines that run it, the prompts and the limit of length. In Python: ``export(model, "DIR", "onnx")``.

| format | runs in | needs, to write it |
|---|---|---|
| ``onnx`` | onnxruntime (C++, C#, Java, JavaScript, Rust, Python), OpenVINO | ``pip install "sbert[onnx]"`` |
| ``torch-export`` | torch, without the code of the model | nothing more |

The file contains the whole chain, from token ids to vectors: the transformer, the pooling, and what follows, such as
``Dense`` and ``Normalize``. It takes any number of texts, of any length up to the limit, and computes in float32.

``--dtype int8``, for ONNX: a quarter of the size and faster, with other vectors. The README then names the rank
correlation of similarities with those in float32; below 0.99, nothing is written. There, the vector of a text depends a
little on the other texts of its batch.

The folder appears only if it is right: what was written is read again, and 20 texts of different lengths must have the
vectors of ``encode`` to within 1e-5 (float32).

llama.cpp converts a saved model itself: after ``model.save("folder")``, run its ``convert_hf_to_gguf.py folder``.
``save`` warns of what it would leave out.

## Pitfalls

- Prompts are text before the text: the caller adds them. The README lists them.
- OpenVINO reads the ``onnx`` file, and computes in bfloat16 on processors that have it, which changes vectors in the
  third digit: pass ``{"INFERENCE_PRECISION_HINT": "f32"}`` to ``compile_model``.
- What has no padded form is refused: ``WordEmbeddings``, ``StaticEmbedding``, ``LSTM``, modules and poolings of your
  own, tokenizers without a ``tokenizer.json``, and poolings that leave the prompt out if there are prompts.
"""

from sbert.saving.export.folder import export

__all__ = ["export"]
