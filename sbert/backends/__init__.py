"""How a transformer runs: the plain way, and faster ones that give the same vectors.

Nothing has to be switched on. Texts are tokenized ahead of the model, sorted by length, laid end to end and encoded
without padding: by a forward of this library for BERT, RoBERTa, XLM-R, CamemBERT, MPNet, DistilBERT and ELECTRA, and by
the Hugging Face module for all others, padded only if its attention needs padding (T5, DeBERTa).

| backend | runs when |
|---|---|
| ``fused`` | ``encode`` with BERT-family models: a forward from copies of the weights, laid out for speed |
| ``cuda_graphs`` | the same for short texts on a GPU, replayed as one launch |
| ``cpu_training`` | training of BERT-family models on a CPU: one autograd step per layer |
| ``packed`` | the Hugging Face module without padding: all texts of a batch as one row |
| ``padded`` | the Hugging Face module with padding, if its attention needs it |

On an NVIDIA GPU, ``fused`` has parts that can be used or left out one by one (``sbert.backends.triton``): layer norm
with the bias and the residual before it, all embeddings with their norm, and attention of rows of at most 64 tokens are
one kernel each where Triton is installed, which CUDA builds of torch bring along; GELU in bfloat16 is the end of a
product of cuBLAS. Without them the forward takes more, smaller kernels and gives the same vectors. None of it was
measured on a real GPU.

Each backend is one file with one class, and ``sbert.backends.select`` lists them in order of preference. Each is
compared with the padded module before its first use, ``fused`` again after the weights change; if the vectors differ,
the next one runs. ``sbert doctor MODEL`` says in words what was chosen on this machine, and why every other backend was
not:

```text
forward              fused: oneDNN with reordered weights is 1.62 times as fast as F.linear with 2 threads
attention            without padding, one call of scaled_dot_product_attention per length
threads              2 of torch; OMP_NUM_THREADS or torch.set_num_threads changes it
batches              4096 tokens at most, texts of similar length; batch_tokens= changes it
no cuda_graphs       attention is not one kernel: that takes half precision and a recent NVIDIA GPU
```

## dtype

``dtype="auto"``, the default, means float32 weights; ``encode`` computes in bfloat16 on a CUDA GPU, in float16 on one
without bfloat16 (T4, V100; what leaves its range is computed again in float32), and in float32 elsewhere.
``dtype="float32"`` keeps all of it in float32. Vectors are float32 in any case.

>>> from sbert import SentenceEncoder
>>> model = SentenceEncoder(device="cpu")
>>> fast = SentenceEncoder(device="cpu", dtype="bfloat16")  # half the memory, much faster on recent CPUs
>>> bool(fast.similarity(fast.encode("A cat sleeps."), model.encode("A cat sleeps."))[0, 0] > 0.999)
True

## Measure it

``sbert benchmark MODEL --data texts.txt`` measures on your own texts, beside sentence-transformers if it is installed:
every contender in a process of its own, in turns, on new texts in each round. *ratio* is to sentence-transformers'
default, *ceiling* the part of the fastest matrix product that this machine reaches in that dtype. On two cores of an
Intel Xeon (AVX-512, AMX) with torch 2.13.0, transformers 5.23.0 and sentence-transformers 6.2.0, for the first
sentences of STS benchmark's pairs (``stsb/train.tsv``), which it also joins to texts of mixed length:

```text
$ sbert benchmark all-MiniLM-L6-v2 --data stsb/train.tsv --column sentence1 --sample 2500 --rounds 5
processor            Intel(R) Xeon(R) Processor
device               cpu: AVX512, bfloat16 is fast; no accelerator was found
dtype                float32: that of the weights
forward              fused: oneDNN with reordered weights is 1.62 times as fast as F.linear with 2 threads
attention            without padding, one call of scaled_dot_product_attention per length
threads              2 of torch; OMP_NUM_THREADS or torch.set_num_threads changes it
batches              4096 tokens at most, texts of similar length; batch_tokens= changes it
versions             sbert 0.1.0, torch 2.13.0+cpu, transformers 5.23.0, tokenizers 0.23.3, sentence-transformers 6.2.0
ceiling              float32 373 GFLOP/s, bfloat16 2,797 GFLOP/s

short: 2500 texts of 14.8 tokens     texts/s  tokens/s  ratio  ceiling  max diff  min cosine
sbert                                    851    12,847   1.54      74%   2.6e-07    1.000000
sbert-bfloat16                         2,597    40,964   5.17      31%   3.0e-03    0.999915
ours, batches of 32 in input order       674    10,047   1.19      58%   2.6e-07    1.000000
padded batches of 32 in input order      481     6,650   0.79      38%   2.1e-07    1.000000
sentence-transformers                    622     8,381   1.00      48%   0.0e+00    1.000000
sentence-transformers-bfloat16         1,078    15,808   1.88      12%   3.4e-03    0.999890
smart batching: 1.26 over ours, batches of 32 in input order, 1.77 over padded batches of 32 in input order
the machine at its ceiling: 2.08 (float32), 15.62 (bfloat16)

mixed: 625 texts of 40.9 tokens      texts/s  tokens/s  ratio  ceiling  max diff  min cosine
sbert                                    335    12,125   1.46      72%   2.3e-07    1.000000
sbert-bfloat16                         1,089    34,855   4.10      27%   3.8e-03    0.999904
ours, batches of 32 in input order       286    10,377   1.25      61%   2.3e-07    1.000000
padded batches of 32 in input order       62     2,276   0.28      13%   1.9e-07    1.000000
sentence-transformers                    230     8,366   1.00      50%   0.0e+00    1.000000
sentence-transformers-bfloat16           540    19,565   2.36      15%   3.7e-03    0.999871
smart batching: 1.17 over ours, batches of 32 in input order, 5.37 over padded batches of 32 in input order
the machine at its ceiling: 2.01 (float32), 15.11 (bfloat16)

single sentences, ms                  p50   p95    p99  ratio
sbert                                5.88  8.59   9.91   1.21
sbert-bfloat16                       4.03  6.03   6.54   1.77
ours, batches of 32 in input order   5.56  7.19   8.65   1.28
padded batches of 32 in input order  7.51  9.43  11.03   0.95
sentence-transformers                7.13  8.90   9.94   1.00
sentence-transformers-bfloat16       6.54  7.82   8.95   1.09

process                              load s  first s  peak MB
sbert                                  1.94     0.14      957
sbert-bfloat16                         1.98     0.09      782
ours, batches of 32 in input order     1.88     0.18      892
padded batches of 32 in input order    1.84     0.00    1,208
sentence-transformers                  2.81     0.01    1,084
sentence-transformers-bfloat16         2.74     0.01    1,159

sentences/s by batch_tokens  512  1024  2048  4096  8192  16384
short                        786   777   795   768   686    717
mixed                        339   344   354   356   336    328
best: 2048

best 10 of 2250 texts, 250 queries  bytes per vector  recall
float32                                        1,536   1.000
int8                                             384   0.995
binary                                            48   0.737
binary, rescored by int8                         432   0.969
binary, rescored by float32                    1,584   0.973
```

Every vector of the float32 rows is that of sentence-transformers to 3e-7; those of bfloat16 have a cosine of 0.9999 or
more to them. What this shows, and what it does not:

- float32 runs at 72 to 74 % of what this processor can multiply, and sentence-transformers at 48 to 50 %; more than
  2.1 times its speed cannot be had here in float32.
- *padded batches of 32 in input order* is the loop of a tutorial. Sorting and no padding are 1.77 and 5.37 times as
  fast; the Sentence-BERT paper calls it smart batching and found 1.89 times on a CPU.
- BERT-base with random weights (``BertModel(BertConfig())``, mean pooling), the same with ``--sample 800 --rounds 3``:
  float32 1.25 (short), 1.93 (mixed) and 1.65 (single) times sentence-transformers' default, at 76 to 80 % of the
  ceiling; bfloat16 5.59, 8.70 and 3.04; 1.59 and 5.66 times padded batches in input order.
- 1,000, 10,000 and 100,000 made-up sentences (``--linear``): 848, 839 and 814 per second; for the last, the peak memory
  grew by 177 MB, of which the vectors are 154.

## GPUs (simulated only)

Not measured on a GPU yet. A simulated device in the tests counts what one ``encode`` asks of a GPU of capability 8.0 or
higher with Triton (short texts of 17 tokens; in each cell the first version of this library, then this one):

| model, texts | launches | kernels in a replay | waits | MB of kernels | MB copied | ms of the host |
|---|---|---|---|---|---|---|
| MiniLM, 1 | 18, 24 | 84, 43 | 1, 2 | 28, 25 | 0.00, 0.01 | 0.42, 0.54 |
| MiniLM, 32 | 96, 24 | 0, 44 | 1, 2 | 128, 119 | 0.1, 0.1 | 0.49, 0.81 |
| MiniLM, 2,048 | 191, 124 | 0, 0 | 1, 2 | 7,064, 4,596 | 3.5, 3.8 | 5.7, 8.8 |
| BERT-base, 1 | 15, 9 | 156, 85 | 1, 2 | 194, 186 | 0.00, 0.01 | 0.50, 0.63 |
| BERT-base, 32 | 165, 9 | 0, 86 | 1, 2 | 574, 549 | 0.1, 0.1 | 0.70, 1.53 |
| BERT-base, 2,048 | 329, 178 | 0, 0 | 1, 2 | 26,078, 17,438 | 6.6, 6.9 | 6.8, 11.2 |

2,048 texts are two batches. The second wait is for samples of the weights, which show whether they were edited; this
and more checks cost the host time. It is processor time on a busy machine, without tokenizing and the transformer.
The graph for 32 texts (544 tokens) has 768.

A model of the time, no measurement: products at 40 (T4), 220 (A100) and 650 (H100) TFLOP/s, all other bytes at 0.24,
1.4 and 3 TB/s, attention at half the rate of products for whole tiles of its kernel. The host, with 4 microseconds a
launch, works at the same time. Milliseconds of the GPU alone, and texts per second by the slower of both:

| model, texts | T4 | A100 | H100 |
|---|---|---|---|
| MiniLM, 2,048 | 178, 65 | 8.9, 4.8 | 3.4, 1.8 |
| BERT-base, 1 | 1.5, 0.8 | 0.30, 0.22 | 0.22, 0.15 |
| BERT-base, 2,048 | 1,160, 305 | 47, 32 | 17.2, 11.4 |
| BERT-base, texts/s | 1,800, 6,700 | 43,000, 64,000 | 119,000, 172,000 (target: 100,000) |

``python -m tests.benchmarks.simulated_gpu --before FOLDER`` prints both tables, where FOLDER is a checkout of the first
version (fe26152).

## Pitfalls

- ``model.compile()`` puts the transformer through ``torch.compile``. It does not pay on a CPU.
- Beside other processes that compute, threads of OpenMP wait for a core and for each other. On Linux, a batch of at
  most 512 tokens therefore uses as many threads as ``/proc/loadavg`` and the container leave cores for. Larger ones,
  and a process that is bound to some cores of a machine, use all of theirs (``python -m tests.benchmarks.busy``).
- float16 becomes float32 on a CPU, which only emulates it.
- ``sbert doctor MODEL --gpu`` checks a GPU at first use: it compares the plain, packed and fused forward and the
  replay of CUDA graphs with float32, row by row, and names one whose vectors differ, with the reason. It measures the
  fastest matrix product and copy, and what ``encode``, a search and a training step reach. ``--report FOLDER`` also
  writes ``gpu.json``, and ``gpu.md``, a table to paste into an issue.
"""

from sbert.backends.classification import scores
from sbert.backends.state import Inference, carry_over, forward, padding_reason

__all__ = ["Inference", "carry_over", "forward", "padding_reason", "scores"]
