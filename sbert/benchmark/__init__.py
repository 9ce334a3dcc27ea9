"""How fast a model encodes here, beside its peers: ``sbert benchmark``."""

from sbert.benchmark.measure import benchmark
from sbert.benchmark.precision import recall_by_precision
from sbert.benchmark.show import plot, table

__all__ = ["benchmark", "plot", "recall_by_precision", "table"]
