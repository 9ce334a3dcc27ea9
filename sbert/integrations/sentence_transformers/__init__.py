"""The names of sentence-transformers 6.2 over ours: a script runs after its imports are changed.

>>> from sbert.integrations.sentence_transformers import SentenceTransformer, util
>>> model = SentenceTransformer()  # or a name on the hub, or a folder
>>> corpus = model.encode(["The cat sleeps.", "Taxes go up."])
>>> util.semantic_search(model.encode(["A kitten is napping."]), corpus, top_k=1)[0][0]["corpus_id"]
0

``import sbert.integrations.sentence_transformers as sentence_transformers`` works, too, with ``util``, ``models``,
``losses``, ``evaluation``, ``readers``, ``datasets``, ``cross_encoder``, ``trainer`` and ``training_args``. A
``SentenceTransformer`` is a ``sbert.SentenceEncoder``, and a loss or a module is ours, made with their arguments.

What is not offered is an error that says what to use instead; ``sbert.integrations.switching`` has all names. What has
another meaning here keeps it: texts that are not ``str`` are refused, the learning rate is one step ahead during
warm-up, ``mine_hard_negatives`` counts ranks among candidates only, and ``eval_dataset`` is measured by its negative
loss, ``-loss``, since higher is better.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from sbert.integrations.sentence_transformers import forms, util
from sbert.integrations.sentence_transformers.encoders import CrossEncoder, SentenceTransformer
from sbert.integrations.sentence_transformers.forms import SimilarityFunction
from sbert.integrations.sentence_transformers.readers import InputExample, SentencesDataset
from sbert.integrations.sentence_transformers.training import (
    CrossEncoderTrainer,
    CrossEncoderTrainingArguments,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sbert.integrations.sentence_transformers.util import LoggingHandler

__all__ = [
    "CrossEncoder",
    "CrossEncoderTrainer",
    "CrossEncoderTrainingArguments",
    "InputExample",
    "LoggingHandler",
    "SentenceTransformer",
    "SentenceTransformerTrainer",
    "SentenceTransformerTrainingArguments",
    "SentencesDataset",
    "SimilarityFunction",
    "mine_hard_negatives",
    "quantize_embeddings",
]
# Their paths of imports, older and newer ones, and the modules here that have their names.
_PATHS = {
    "datasets": "readers",
    "quantization": "util",
    "similarity_functions": "util",
    "trainer": "training",
    "training_args": "training",
    "model": "encoders",
    "base.sampler": "training",
    "base.training_args": "training",
    "base.evaluation": "evaluation",
    "cross_encoder.trainer": "training",
    "cross_encoder.training_args": "training",
    "cross_encoder.model": "encoders",
    "util.similarity": "util",
    "util.retrieval": "util",
    "util.quantization": "util",
    "sentence_transformer": "",
    **{f"sentence_transformer.{name}": name for name in ("losses", "evaluation", "readers", "training")},
    "sentence_transformer.modules": "models",
    "sentence_transformer.datasets": "readers",
    "sentence_transformer.model": "encoders",
    "sentence_transformer.trainer": "training",
    "sentence_transformer.training_args": "training",
    "evaluation.SentenceEvaluator": "evaluation",
    "readers.InputExample": "readers",
}
__getattr__ = forms.absent(__name__, "Training")
mine_hard_negatives: Any = util.mine_hard_negatives
quantize_embeddings: Any = util.quantize_embeddings
for _name in ("util", "models", "losses", "evaluation", "readers", "cross_encoder"):
    import_module(f"{__name__}.{_name}")
for _path, _name in _PATHS.items():
    sys.modules[f"{__name__}.{_path}"] = import_module(f"{__name__}.{_name}" if _name else __name__)
    if "." not in _path and _name:
        globals()[_path] = sys.modules[f"{__name__}.{_path}"]
