"""Their ``cross_encoder``."""

from __future__ import annotations

from sbert.integrations.sentence_transformers import cross_encoder_evaluation as evaluation
from sbert.integrations.sentence_transformers import cross_encoder_losses as losses
from sbert.integrations.sentence_transformers.encoders import CrossEncoder
from sbert.integrations.sentence_transformers.forms import absent
from sbert.integrations.sentence_transformers.training import CrossEncoderTrainer, CrossEncoderTrainingArguments

__all__ = ["CrossEncoder", "CrossEncoderTrainer", "CrossEncoderTrainingArguments", "evaluation", "losses"]
__getattr__ = absent(__name__)
