"""Several processes that train or evaluate one model together, as ``torchrun`` starts them.

``ranks`` is what the rest of the library uses: which process this is, and what processes exchange. ``buckets``
sums gradients over all processes while the rest of them is computed. ``stalls`` names the process that keeps the others
waiting, and the step at which it stopped.

>>> from sbert.distributed.ranks import Ranks
>>> Ranks.join()  # one process alone, which nothing keeps waiting
Ranks(rank=0, world=1)
"""
