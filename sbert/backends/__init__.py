"""How a transformer runs: the plain way, and faster ones that give the same vectors.

Nothing has to be switched on. Texts are tokenized ahead of the model, sorted by length, laid end to end and encoded
without padding: by a forward of this library for BERT, RoBERTa, XLM-R, CamemBERT, MPNet, DistilBERT, ELECTRA,
ModernBERT, NomicBERT, GTE, Qwen3, EmbeddingGemma and T5's encoder, and by the Hugging Face module for all others,
padded only if its attention needs padding (DeBERTa).

| backend | runs when |
|---|---|
| ``fused`` | ``encode`` with these models: a forward from copies of the weights, laid out for speed |
| ``packed`` | the Hugging Face module without padding: all texts of a batch as one row |
| ``padded`` | the Hugging Face module with padding, if its attention needs it |
| ``engine`` | ``encode`` with ``backend="onnx"`` or ``"openvino"``, on a CPU: single texts |

Each backend is one file with one class: ``supports`` gives the reason why it cannot run a network, ``forward`` takes a
batch. ``sbert.backends.state`` lists them in order of preference and has one ``ModelState`` per network: what was
chosen for it, and copies of its weights until they change. On a CPU, each backend is compared with the padded module
before its first use, ``fused`` again after the weights change; if the vectors differ, the next one runs. On an
accelerator, so is what runs a model that is none of these; of the others, final vectors are compared (below). An
architecture is one entry of ``sbert.backends.architectures``, which says what its layers are made of: a norm before or
after, layer or RMS norms, absolute or rotary positions or a position bias, gated or plain feed-forward networks, shared
heads, causal attention, a local window.

On a CPU, oneDNN multiplies weights that it has laid out, or ``F.linear`` those of the module: by a table of vendors and
instruction sets in ``sbert.backends.linear``, with the measurement of each line. On AMD without AVX-512 (Zen 3), the
former runs below 128 tokens and the latter from there on; a CPU that is not in the table takes ``F.linear``.

``SentenceEncoder(..., backend="plain")``, or the environment variable ``SBERT_BACKEND=plain``, goes past all of it: the
Hugging Face module alone, with padding, on any device. If vectors or speed look wrong, compare with that first.

``sbert doctor MODEL`` says in words what was chosen on this machine, and why every other backend was not:

```text
forward              fused: oneDNN with reordered weights
attention            without padding, in one call per length of scaled_dot_product_attention
threads              2 of torch; OMP_NUM_THREADS or torch.set_num_threads changes it
batches              2048 tokens at most, texts of similar length; batch_tokens= changes it
```

## dtype

``dtype="auto"``, the default, means float32 weights; ``encode`` computes in bfloat16 on a CUDA GPU, in float16 on one
without bfloat16 (T4, V100; a text that exceeds its range is computed again in float32), and in float32 elsewhere. On a
CUDA GPU, a folder whose weights are in half precision keeps them so, and training converts them to float32.
``dtype="float32"`` keeps all of it in float32. Vectors are float32 in any case. A CPU without instructions for bfloat16
(on x86, AVX512_BF16 or AMX) takes 3 to 4 times as long with it as with float32: one warning says
so, as does ``sbert doctor``.

>>> from sbert import SentenceEncoder
>>> model = SentenceEncoder(device="cpu")
>>> fast = SentenceEncoder(device="cpu", dtype="bfloat16")  # half the memory, much faster on recent CPUs
>>> bool(fast.similarity(fast.encode("A cat sleeps."), model.encode("A cat sleeps."))[0, 0] > 0.999)
True

## ONNX Runtime and OpenVINO

``SentenceEncoder(name, backend="onnx")``, or ``"openvino"``, runs what has up to 64 tokens in these engines, text by
text, on a CPU, with as many threads as torch: it is for services that encode one text at a time. Longer texts and
larger batches, for which the fused forward is as fast or faster, stay there. Tokens, order, pooling and all that
follows are the same, and vectors are within 1e-6 of those of torch. An architecture that the
fused forward does not know runs in torch, as a warning says.

```text
pip install "sbert[onnx]"      # or "sbert[openvino]"

model = SentenceEncoder("all-MiniLM-L6-v2", backend="onnx")
small = SentenceEncoder("all-MiniLM-L6-v2", backend="onnx", dtype="int8")
given = SentenceEncoder(folder, backend="onnx", model_kwargs={"file_name": "onnx/model_qint8_avx512.onnx"})
```

- The transformer is exported at the first load, which takes some seconds, to ``~/.cache/sbert/engines`` (or below
  ``XDG_CACHE_HOME``), in a folder named after its weights and the versions of packages. Folders there can be deleted.
  A folder with ``onnx/model.onnx`` or ``openvino/openvino_model.xml``, as sentence-transformers writes them, is read
  instead, beside the weights, and ``file_name`` names another file.
- Before its first use, the engine is compared with the padded module. If vectors differ by more than 1e-4 of their
  norm, one warning says so, and torch runs the model. It does, too, once the weights have changed.
- ``dtype="int8"``: weights of 7 bits with a scale for each output, inputs rounded as they come, so that each text is
  computed alone: its vector does not depend on others. Vectors differ from those in float32, and so does what is
  compared: ``model.check_int8(texts)`` returns the rank correlation of the similarities of all pairs of texts with
  those in float32, loading calls it with 20 texts of this library, and below 0.99 the model is refused. ``sbert
  doctor`` shows it, and an index that was made in float32 does not take such a model for its queries.

| all-MiniLM-L6-v2, STS benchmark | Spearman | rank correlation |
|---|---|---|
| float32 | 82.03 | 1 |
| ``backend="onnx"``, ``dtype="int8"`` | 82.04 | 0.998 |
| int8 with one scale per matrix, 8 bits | 81.78 | 0.993 |
| int8 with one scale per matrix, 7 bits, which is refused | 80.26 | 0.967 |

A forked child of a process that has imported onnxruntime hangs when it exits, since ONNX Runtime waits for threads that
do not exist there, whether it was used or not: end it by ``os._exit``, as ``multiprocessing`` and pools do.

An engine is not chosen by itself where it is installed: it writes a file as large as the weights, takes seconds at the
first load, and helps single short texts alone: on Zen 4, a text takes ONNX Runtime 0.9 of the time of torch, and on
Zen 3, which has no AVX-512, half; in int8, half of that, for all texts. OpenVINO is slower than torch on Zen 4.

## GPUs

On an NVIDIA GPU, models run in half precision: from the weights themselves where the folder has them in it (about 2
bytes per weight), else from copies that are cast once (6 bytes; 4 with ``dtype="float32"``). What the fused forward
does not know runs under autocast. Attention is one call
per layer: of torch's kernel for rows of any length where there is one (capability 8.0 or higher, no position bias), and
elsewhere for rows that are padded to a multiple of 16 tokens, for attention alone, by any of torch's kernels but
cuDNN's, which are planned again for each shape. A batch is one copy from pinned memory. All of it is tested on a
simulated device, and none of it was measured on a real one.

The first ``encode`` of a model on an accelerator (CUDA, XPU or MPS) compares its vectors with float32 on the CPU, for
five texts of 1 to more than 512 tokens; a model of more than 10**9 weights is compared with its plain way, for three
short texts. A model that passes is not checked again: files in ``~/.cache/sbert/gpu`` say so for its weights, the kind
of the device, the driver and the versions of packages. Of one that does not, the Hugging Face module runs alone until
the process ends, with one warning; the next process checks again. A model that exceeds the range of float16 (on T4 and
V100) runs in float32 from then on, with one warning. Where memory is short, nothing is concluded. An error of CUDA such
as an illegal access ends all use of the device in its process: the error says how to go on.

## The first hour on a GPU

``sbert doctor MODEL --gpu`` tries all of it, stage by stage, each in a process of its own:

```text
environment          ok; driver 570.86.15; torch built for CUDA 12.8; torch 2.13.0; cuda:0 NVIDIA H100 80GB HBM3, …
plain vectors        ok; error in torch.float32 1.3e-07; error in torch.bfloat16 0.0032
vectors              ok; error in torch.float32 1.1e-07; error in torch.bfloat16 0.0049; forward fused: F.linear; …
attention            ok; plain 0.0021; causal 0.0023; bias 0.0021
two models           ok; error 0.0
threads              ok; error 0.0
train in float32     ok; loss 0.481; sentences/s 946; peak, GB 0.01; error in torch.float32 1.2e-07; …
train in bfloat16    ok; …
train in float16     ok; …
search               ok; error 0.0
speed                ok; first vector, s 1.2; short texts/s 2,057; mixed texts/s 1,412; one text, ms 2.2
```

(These numbers are those of a simulated device, which computes on a CPU, and mean nothing.) The name of a stage is
printed before it starts, so that the last one names what a machine hangs in. What fails says what avoids it, and what
dies does not end the other stages; ``CUDA_LAUNCH_BLOCKING=1`` before the command lets its traceback name the operation
at fault:

```text
plain vectors        ok; …
vectors              FAILED: AcceleratorError: CUDA error: an illegal memory access; SBERT_BACKEND=plain avoids it
attention            FAILED: BrokenProcessPool: A process in the process pool was terminated abruptly; …
threads              FAILED: TimeoutError; a lock around encode avoids it
```

Without a GPU that torch can use, the first line says why, and is the only one:

```text
environment          FAILED: RuntimeError: this machine has an NVIDIA GPU, but this torch is built without CUDA; …
```

``--report FILE`` also writes these lines to a file, as they come, and the tracebacks, to paste into an issue.
``python -m tests.benchmarks.gpu`` measures encoding, training and search on a GPU beside sentence-transformers.

## Measure it

``sbert benchmark MODEL --data texts.txt --dtypes float32,bfloat16`` measures on your own texts, beside
sentence-transformers if it is installed: each in a process of its own, alternating, on new texts in each round. On two
cores with AVX-512 and AMX, all-MiniLM-L6-v2 reads short texts 1.5 times as fast as sentence-transformers' default in
float32 and 5.2 times in bfloat16; texts of mixed length 1.5 and 4.1 times. float32 runs at 72 to 74 % of what this
processor can multiply, and sentence-transformers at 48 to 50 %; the ceiling here is 2.1 times its speed in
float32. On two cores of an AMD EPYC (Zen 4, no AMX), it is 1.9 to 2.4 and 3.2 to 4.1 times for short texts. Sorting
and no padding are 1.8 to 5.4 times as fast as the loop of a tutorial, padded batches of 32 in input order. The tables
stand in ``tests/benchmarks/README.md``, with the program that prints them
(``python -m tests.benchmarks.contenders``).

## Pitfalls

- ``model.compile()`` puts the transformer through ``torch.compile``. It does not pay on a CPU.
- Beside other processes that compute, the threads of OpenMP wait for a core and for each other, spinning, and a single
  text may take many times as long. Set ``OMP_NUM_THREADS`` (or ``torch.set_num_threads``) to the number of cores that
  are free: ``OMP_NUM_THREADS=1`` in a service that encodes one text at a time beside other work. Where that number
  changes, start Python with ``OMP_WAIT_POLICY=passive``: threads that wait sleep. On two cores of an AMD EPYC (Zen 4)
  beside six loaded processes, the median of a text of all-MiniLM-L6-v2 was 2 s; with either variable, 0.1 s. Beside
  none, it takes 1.5 times as long with the latter.
- float16 becomes float32 on a CPU, which only emulates it.
"""

from sbert.backends.attention import attend, has_kernel
from sbert.backends.backend import PLAIN_REMEDY, CallSettings, InferenceCall, choose_backend
from sbert.backends.engines import ENGINES, choose_engine, trace, write_onnx
from sbert.backends.linear import matrix_product
from sbert.backends.minimal_bert import BertModel, PlainTokenizer, load_minimal_bert, materialize_tokenizer
from sbert.backends.network import (
    accepts,
    check_limit,
    default_limit,
    has_hooks,
    position_limit,
    snapshot,
    state_of,
    vocab_size,
    without_cache,
)
from sbert.backends.packed import adopt
from sbert.backends.padded import padded_arguments
from sbert.backends.parity import probe_of
from sbert.backends.state import explain, forward, materialize, padding_reason, scores

__all__ = [
    "ENGINES",
    "PLAIN_REMEDY",
    "CallSettings",
    "InferenceCall",
    "BertModel",
    "PlainTokenizer",
    "accepts",
    "adopt",
    "attend",
    "check_limit",
    "choose_backend",
    "choose_engine",
    "default_limit",
    "explain",
    "forward",
    "has_hooks",
    "has_kernel",
    "load_minimal_bert",
    "materialize",
    "materialize_tokenizer",
    "matrix_product",
    "padded_arguments",
    "padding_reason",
    "position_limit",
    "probe_of",
    "scores",
    "snapshot",
    "state_of",
    "trace",
    "vocab_size",
    "without_cache",
    "write_onnx",
]
