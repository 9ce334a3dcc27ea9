"""Several processes that train or evaluate one model together, as ``torchrun`` starts them.

``ranks`` is what the rest of the library uses: which process this is, and what processes exchange. ``buckets`` sums
gradients over all processes while the rest of them is computed. A process that hangs or ends makes the others fail with
torch.distributed's own error, at the latest after ``TrainingConfig(timeout=600)`` seconds.

>>> from sbert.distributed.ranks import Ranks
>>> Ranks.join()  # a single process, which waits for no other
Ranks(rank=0, world=1)
"""
