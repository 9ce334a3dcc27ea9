"""``sbert benchmark``: the speed of a model on this machine, compared with other libraries."""

from sbert.cli.benchmark.measure import benchmark
from sbert.cli.benchmark.precision import recall_by_precision
from sbert.cli.benchmark.show import plot, table

__all__ = ["benchmark", "plot", "recall_by_precision", "table"]
