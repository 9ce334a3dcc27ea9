"""Training: rows and a loss in, a better model out. The guide is ``guide.md`` in this folder.

| name | what it is |
|---|---|
| ``Trainer`` | matches data, losses and a model, and trains the model |
| ``TrainingConfig`` | the settings |
| ``Callback``, ``EarlyStopping``, ``TensorBoard``, ``WandB`` | what is called after steps and evaluations |
| ``ParquetRows`` | rows of Parquet files that are larger than memory |

>>> from sbert import SentenceEncoder, Trainer, TrainingConfig
>>> from sbert.losses import CosineSimilarityLoss
>>> rows = [("The cat sleeps.", "A kitten is napping.", 0.9), ("The cat sleeps.", "Taxes go up.", 0.0)]
>>> trainer = Trainer(SentenceEncoder(), rows, CosineSimilarityLoss(), TrainingConfig(epochs=2))
>>> history = trainer.fit(show_progress_bar=False)
>>> history[-1]["step"]
2
"""

from sbert.inputs.arguments import publish
from sbert.training.callbacks import Callback, EarlyStopping, TensorBoard, WandB
from sbert.training.config import TrainingConfig
from sbert.training.trainer import Trainer
from sbert.training.training_data import ParquetRows

__all__ = [
    "Trainer",
    "TrainingConfig",
    "ParquetRows",
    "Callback",
    "EarlyStopping",
    "TensorBoard",
    "WandB",
]

publish(__name__)
