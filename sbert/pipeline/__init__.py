"""From texts to vectors, in one process or several.

| you have | use |
|---|---|
| texts in memory | ``model.encode(texts)`` |
| files larger than memory, hours of work | ``encode(..., out=)``: ``sbert.vector_files`` |
| several GPUs or processors in a machine | ``model.pool(devices)`` |
| several machines, Ray, Dask, Spark | ``sbert.vector_files`` |
| many clients, one text each | ``model.batcher()`` |

## Several devices in one machine

>>> with model.pool(["cpu", "cpu"]) as pool:  # or ["cuda:0", "cuda:1"]; the workers stay until the block ends
...     pool.encode(["A cat sleeps.", "Taxes rise."]).shape
(2, 384)

Workers take texts by demand, so a slow device does not hold up the others; one that dies is replaced, and its texts are
encoded once more. For one call, ``encode(texts, device=["cuda:0", "cuda:1"])`` and ``sbert encode --devices`` do
the same. Pools are tested with processes on a CPU, and models on two GPUs of one process by simulation; a pool of real
GPUs has not been tried.

## Many clients

>>> with model.batcher(max_wait=0.002) as batcher:  # requests that come at the same time share a batch
...     batcher.encode("A cat sleeps.").shape  # from any thread; ``await batcher.aencode(text)`` in a coroutine
(384,)

``examples/serve.py`` is a server with OpenAI's ``/v1/embeddings`` over it.

## The steps of a call

``SentenceEncoder.encode`` and ``CrossEncoder.predict`` are calls of this package, as data through functions:

| step | file |
|---|---|
| what the caller has chosen, checked once | ``settings`` |
| find equal texts, so that each is encoded once; outputs in order, in range and finite | ``compute`` |
| run the texts of a window: in this process, or in those of a pool | ``run``, ``pool`` |
| token ids in a thread ahead of the model, truncated and counted | ``tokenize`` |
| batches of texts of similar length | ``batching`` |
| float16, bytes or bits | ``quantization`` |
| the form that the caller asked for, and its type | ``results`` |

A pair is a text with two segments: pairs take the same steps, and ``progress`` tells the caller what happens.

>>> import numpy as np
>>> from sbert.pipeline.batching import plan
>>> [batch.tolist() for batch in plan(np.array([3, 9, 3, 4]), batch_tokens=10)]  # tokens of four texts
[[1], [3, 0], [2]]
"""

from __future__ import annotations
