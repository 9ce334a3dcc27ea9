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

Each backend is one file with one class: ``supports`` gives the reason why it cannot run a network, ``forward`` takes a
batch. ``sbert.backends.state`` lists them in order of preference and has one ``ModelState`` per network: what was
chosen for it, and copies of its weights until they change. Each backend is compared with the padded module before its
first use, ``fused`` again after the weights change; if the vectors differ, the next one runs. An architecture is one
entry of ``sbert.backends.architectures``, which says what its layers are made of: a norm before or after, layer or RMS
norms, absolute or rotary positions or a position bias, gated or plain feed-forward networks, shared heads, causal
attention, a local window.

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
without bfloat16 (T4, V100; what leaves its range is computed again in float32), and in float32 elsewhere.
``dtype="float32"`` keeps all of it in float32. Vectors are float32 in any case. A CPU without instructions for bfloat16
(on x86, AVX512_BF16 or AMX) takes 3 to 4 times as long with it as with float32: one warning says
so, as does ``sbert doctor``.

>>> from sbert import SentenceEncoder
>>> model = SentenceEncoder(device="cpu")
>>> fast = SentenceEncoder(device="cpu", dtype="bfloat16")  # half the memory, much faster on recent CPUs
>>> bool(fast.similarity(fast.encode("A cat sleeps."), model.encode("A cat sleeps."))[0, 0] > 0.999)
True

## GPUs

On an NVIDIA GPU, models run from copies of their weights in half precision, which are cast once. Attention is one call
per layer: of torch's kernel for rows of any length where that works (capability 8.0 or higher, no position bias), and
elsewhere for rows that are padded to a multiple of 16 tokens, for attention alone, by any of torch's kernels but
cuDNN's, which are planned anew for each shape. A batch is one copy from pinned memory. All of it is tested on a
simulated device, and none of it was measured on a real one.

The first ``encode`` of a model on a GPU compares its vectors with float32 on the CPU, for texts of 1 to 512 tokens in
batches of 1 to 2,000: once for a kind of model, device, driver and versions of packages, as ``~/.cache/sbert/gpu``
remembers. If they differ, or the check fails, or a process has died in it, the model runs on that device as its Hugging
Face module alone, with a warning; if that is no nearer to float32, the warning names the dtype instead. An error of
CUDA ends all use of the device in its process: start another one.

## The first hour on a GPU

``sbert doctor MODEL --gpu`` tries all of it, stage by stage, each in a process of its own:

```text
environment          ok; driver 570.86.15; torch 2.13.0; torch built for CUDA 12.8; cuda:0 NVIDIA H100 80GB HBM3, …
plain vectors        ok; float32 error 1.3e-07 of 1.0e-05; bfloat16 error 3.2e-03 of 3.2e-02
vectors              ok; float32 error 1.1e-07 of 1.0e-05; bfloat16 error 4.9e-03 of 3.2e-02; forward fused: F.linear
attention            ok; any length to 17, ms 10.9, then 5.1; …
two models           ok; models 2
threads              ok; threads 2; calls 8
fine-tuning          ok; loss 0.481; sentences/s 946; …
train in bfloat16    ok; …
train in float16     ok; …
search               ok; 100 of 200,000, ms 13.3
speed                ok; short texts/s 2,057; mixed texts/s 1,412; one text, ms 2.2; p95 5.03
```

(The figures are those of a simulated device, which computes on a CPU, and mean nothing.) A line is there as soon as it
is known, so that the last one names what a machine hangs in. What fails ends with what avoids it:

```text
vectors              FAILED: DIFFERENT vectors in torch.float32 from float32 on the CPU; SBERT_BACKEND=plain avoids it
```

What dies does not end the other stages. It is tried a second time with ``CUDA_LAUNCH_BLOCKING=1``, so that the
traceback names the operation at fault:

```text
vectors              FAILED: AcceleratorError: CUDA error: an illegal memory access; SBERT_BACKEND=plain avoids it;
                     again, with CUDA_LAUNCH_BLOCKING=1: AcceleratorError: CUDA error: an illegal memory access
attention            FAILED: the process ended with -9; SBERT_BACKEND=plain avoids it; …
threads              FAILED: it did not end within 600 seconds; a lock around encode avoids it; …
```

Without a GPU that torch can use, the first line says why, and is the only one:

```text
environment          FAILED: there is no cuda:0: this build of torch has no CUDA; install a driver, and the build of
                     torch for it (pytorch.org/get-started); driver not found; torch 2.13.0+cpu; …
```

``--report FOLDER`` also writes ``gpu.md``, this table with all tracebacks, to paste into an issue, and ``gpu.jsonl``.
``python -m tests.simulated_cuda.doctor_reports FOLDER`` writes such reports of simulated machines: one that works, one
with wrong vectors, one that dies. ``python -m tests.benchmarks.gpu`` measures encoding, training and search on a GPU
beside sentence-transformers.

## Measure it

``sbert benchmark MODEL --data texts.txt --dtypes float32,bfloat16`` measures on your own texts, beside
sentence-transformers if it is installed: each in a process of its own, in turns, on new texts in each round. On two
cores with AVX-512 and AMX, all-MiniLM-L6-v2 reads short texts 1.5 times as fast as sentence-transformers' default in
float32 and 5.2 times in bfloat16; texts of mixed length 1.5 and 4.1 times. float32 runs at 72 to 74 % of what this
processor can multiply, and sentence-transformers at 48 to 50 %; more than 2.1 times its speed cannot be had here in
float32. On two cores of an AMD EPYC (Zen 4, no AMX), it is 1.9 to 2.4 and 3.2 to 4.1 times for short texts. Sorting
and no padding are 1.8 to 5.4 times as fast as the loop of a tutorial, padded batches of 32 in input order. The tables
stand in ``tests/benchmarks/README.md``, with the program that prints them
(``python -m tests.benchmarks.contenders``).

## Pitfalls

- ``model.compile()`` puts the transformer through ``torch.compile``. It does not pay on a CPU.
- Beside other processes that compute, the threads of OpenMP wait for a core and for each other, and a single text may
  take many times as long. Set ``OMP_NUM_THREADS`` (or ``torch.set_num_threads``) to the number of cores that are free:
  ``OMP_NUM_THREADS=1`` in a service that encodes one text at a time beside other work.
- float16 becomes float32 on a CPU, which only emulates it.
"""

from sbert.backends.attention import attend, has_kernel, kernel_failure
from sbert.backends.backend import PLAIN_REMEDY, Backend, CallSettings, InferenceCall, choose_backend
from sbert.backends.classification import scores
from sbert.backends.linear import matrix_product
from sbert.backends.minimal_bert import (
    BertModel,
    PlainTokenizer,
    load_minimal_bert,
    materialize_tokenizer,
)
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
from sbert.backends.parity import max_relative_error, probe_of
from sbert.backends.state import explain, forward, materialize, padding_reason

__all__ = [
    "PLAIN_REMEDY",
    "Backend",
    "CallSettings",
    "InferenceCall",
    "BertModel",
    "PlainTokenizer",
    "accepts",
    "adopt",
    "attend",
    "check_limit",
    "choose_backend",
    "default_limit",
    "explain",
    "forward",
    "has_hooks",
    "has_kernel",
    "kernel_failure",
    "load_minimal_bert",
    "materialize",
    "materialize_tokenizer",
    "matrix_product",
    "max_relative_error",
    "padded_arguments",
    "padding_reason",
    "position_limit",
    "probe_of",
    "scores",
    "snapshot",
    "state_of",
    "vocab_size",
    "without_cache",
]
