"""From texts to vectors: tokenize, form batches, run them, and put the vectors where they belong.

``SentenceEncoder.encode`` and ``CrossEncoder.predict`` are calls of this package. The steps, in their order:

| step | file |
|---|---|
| find equal texts, so that each is encoded once | ``encode`` |
| token ids in a thread ahead of the model, truncated and counted | ``tokenize`` |
| batches of texts of similar length | ``batching`` |
| the modules, one batch after the other | ``run`` |
| vectors to rows of a tensor, an array or a ``.npy`` file | ``outputs``, ``quantization`` |
| the form that the caller asked for, and its type | ``results`` |

A pair is a text with two segments: pairs take the same steps. ``eval_mode`` lets many threads share one model, and
``progress`` tells the caller what happens.

>>> import numpy as np
>>> from sbert.pipeline.batching import plan
>>> [batch.tolist() for batch in plan(np.array([3, 9, 3, 4]), batch_tokens=10)]  # tokens of four texts
[[1], [3, 0], [2]]
"""
