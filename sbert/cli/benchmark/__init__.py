"""How fast a model encodes here, beside its peers: ``sbert benchmark``."""

from sbert.cli.benchmark.measure import benchmark
from sbert.cli.benchmark.precision import recall_by_precision
from sbert.cli.benchmark.show import plot, table

__all__ = ["benchmark", "plot", "recall_by_precision", "table"]
