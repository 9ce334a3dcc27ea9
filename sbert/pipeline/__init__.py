"""From texts to vectors, in one process or several. The guide to encoding is ``guide.md`` in this folder.

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
