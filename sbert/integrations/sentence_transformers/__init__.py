"""The names of sentence-transformers 6.2 over ours: a script runs after its imports are changed.

>>> from sbert.integrations.sentence_transformers import SentenceTransformer, util
>>> model = SentenceTransformer()  # or a name on the hub, or a folder
>>> corpus = model.encode(["The cat sleeps.", "Taxes go up."])
>>> util.semantic_search(model.encode(["A kitten is napping."]), corpus, top_k=1)[0][0]["corpus_id"]
0

After ``install()``, ``import sentence_transformers`` and imports of its modules give these names, so that a script or
another library need not be changed. A ``SentenceTransformer`` is a ``sbert.SentenceEncoder``, and a loss or a module is
ours, made with their arguments.

What is not offered is an error that says what to use instead; ``sbert.integrations.switching`` has all names. What has
another meaning here keeps it: texts that are not ``str`` are refused, the learning rate is one step ahead during
warm-up, a text that repeats in a batch is no negative of itself, and ``mine_hard_negatives`` counts ranks among
candidates only. An argument that is taken and not used is in the guide's table of those, with the reason.
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
    "install",
    "mine_hard_negatives",
    "quantize_embeddings",
]
__version__ = "6.2.0"  # That of the names.
# The modules here, and the paths from which theirs are imported, older and newer ones.
_PATHS = {
    "encoders": "model sentence_transformer.model cross_encoder.model",
    "util": "quantization similarity_functions util.similarity util.retrieval util.quantization",
    "models": "sentence_transformer.modules",
    "losses": "sentence_transformer.losses",
    "evaluation": "base.evaluation sentence_transformer.evaluation evaluation.SentenceEvaluator",
    "readers": "datasets sentence_transformer.readers sentence_transformer.datasets readers.InputExample",
    "cross_encoder": "",
    "training": "trainer training_args base.sampler base.training_args cross_encoder.trainer"
    " cross_encoder.training_args sentence_transformer.training sentence_transformer.trainer"
    " sentence_transformer.training_args",
}
__getattr__ = forms.absent(__name__, "Training")
mine_hard_negatives: Any = util.mine_hard_negatives
quantize_embeddings: Any = util.quantize_embeddings
sys.modules[f"{__name__}.sentence_transformer"] = sys.modules[__name__]
for _name, _paths in _PATHS.items():
    _module = import_module(f"{__name__}.{_name}")
    for _path in _paths.split():
        sys.modules[f"{__name__}.{_path}"] = _module
        if "." not in _path:
            globals()[_path] = _module


def install() -> None:
    """Make ``import sentence_transformers`` give this package, in this process.

    Raises:
        RuntimeError: If sentence-transformers has been imported already.

    Example:
        >>> import subprocess, sys
        >>> code = "from sbert.integrations.sentence_transformers import install; install()"
        >>> code += "; from sentence_transformers.losses import CoSENTLoss; print(CoSENTLoss.__module__)"
        >>> print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip())
        sbert.integrations.sentence_transformers.forms
    """
    if sys.modules.get("sentence_transformers", sys.modules[__name__]) is not sys.modules[__name__]:
        raise RuntimeError("sentence-transformers is imported already; call install() before")
    for name, module in [*sys.modules.items()]:
        if name == __name__ or name.startswith(f"{__name__}."):
            sys.modules["sentence_transformers" + name.removeprefix(__name__)] = module
