"""Training: rows and a loss in, a better model out."""

from sbert.losses.signature import Signature
from sbert.pipeline.ranks import Ranks
from sbert.training.backward import TrainingBatch, backward
from sbert.training.config import TrainingConfig
from sbert.training.dataset import Rows
from sbert.training.trainer import Trainer

__all__ = ["Ranks", "Rows", "Signature", "Trainer", "TrainingBatch", "TrainingConfig", "backward"]
