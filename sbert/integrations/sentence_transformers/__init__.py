"""The names of sentence-transformers 6.2 over ours: a script runs after its imports are changed.

>>> from sbert.integrations.sentence_transformers import SentenceTransformer, util
>>> model = SentenceTransformer()  # or a name on the hub, or a folder
>>> corpus = model.encode(["The cat sleeps.", "Taxes go up."])
>>> util.semantic_search(model.encode(["A kitten is napping."]), corpus, top_k=1)[0][0]["corpus_id"]
0

After ``install()``, ``import sentence_transformers`` and imports of its modules give these names, so that a script or
another library need not be changed. A ``SentenceTransformer`` is a ``sbert.SentenceEncoder``, and a loss or a module is
ours, made with their arguments.

What is not offered is an error that says what to use instead; ``sbert/integrations/migrating.md`` has all names. What
has another meaning here keeps it: texts that are not ``str`` are refused, the learning rate is one step ahead during
warm-up, a text that repeats in a batch is not a negative of itself, and ``mine_hard_negatives`` counts ranks among
candidates only. An argument that is taken and not used is in the guide's table of those, with the reason.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from typing import Any

from sbert.inputs.arguments import publish
from sbert.integrations.sentence_transformers import util
from sbert.integrations.sentence_transformers.encoders import CrossEncoder, SentenceTransformer, SparseEncoder
from sbert.integrations.sentence_transformers.forms import ModelCardData, SimilarityFunction
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
    "SentenceTransformerModelCardData",
    "SentenceTransformerTrainer",
    "SentenceTransformerTrainingArguments",
    "SentencesDataset",
    "SimilarityFunction",
    "SparseEncoder",
    "install",
    "mine_hard_negatives",
    "quantize_embeddings",
]
__version__ = "6.2.0"  # That of the names.
# The modules here, and the paths from which theirs are imported, older and newer ones.
_PATHS = {
    "encoders": "model sentence_transformer.model cross_encoder.model",
    "util": "quantization similarity_functions cross_encoder.util",
    "models": "sentence_transformer.modules base.modules",
    "losses": "sentence_transformer.losses",
    "evaluation": "base.evaluation sentence_transformer.evaluation",
    "readers": "datasets sentence_transformer.readers sentence_transformer.datasets",
    "cross_encoder": "",
    "cross_encoder.losses": "",
    "cross_encoder.evaluation": "",
    "training": "trainer training_args sampler model_card base.sampler base.trainer base.training_args base.model_card"
    " cross_encoder.trainer cross_encoder.training_args cross_encoder.model_card sentence_transformer.training"
    " sentence_transformer.trainer sentence_transformer.training_args sentence_transformer.model_card",
}
# The files of theirs whose names are not those of a class.
_FILES = {
    "util": "similarity retrieval quantization tensor environment hard_negatives file_io logging distributed misc",
    "losses": "cosent angle",
    "models": "module",
}
publish(__name__)
SentenceTransformerModelCardData = ModelCardData
mine_hard_negatives: Any = util.mine_hard_negatives
quantize_embeddings: Any = util.quantize_embeddings


def _paths_below(package: str, module: Any) -> list[str]:
    """The names of files in a package of theirs: of its classes, as they are and in lower case, and others."""
    names = getattr(module, "__all__", [])
    words = [re.sub("(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower() for name in names]
    files = [re.sub("_(loss|evaluator)$", "", word) for word in words]
    return [*names, *files, *_FILES.get(package, "").split()]


def _set_paths() -> None:
    sys.modules[f"{__name__}.sentence_transformer"] = sys.modules[f"{__name__}.base"] = sys.modules[__name__]
    for name, paths in _PATHS.items():
        module = import_module(f"{__name__}.{name}")
        for path in (name, *paths.split()):
            for full in (path, *(f"{path}.{file}" for file in _paths_below(name, module))):
                sys.modules.setdefault(f"{__name__}.{full}", module)
            if "." not in path:
                globals()[path] = module


_set_paths()


def install() -> None:
    """Make ``import sentence_transformers`` give this package, in this process.

    Raises:
        RuntimeError: If sentence-transformers has been imported already.

    Example:
        >>> import subprocess, sys
        >>> code = "from sbert.integrations.sentence_transformers import install; install()"
        >>> code += "; from sentence_transformers.losses import CoSENTLoss; print(CoSENTLoss.__module__)"
        >>> print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip())
        sbert.integrations.sentence_transformers.losses
    """
    if sys.modules.get("sentence_transformers", sys.modules[__name__]) is not sys.modules[__name__]:
        raise RuntimeError("sentence-transformers is imported already; call install() before")
    for name, module in [*sys.modules.items()]:
        if name == __name__ or name.startswith(f"{__name__}."):
            sys.modules["sentence_transformers" + name.removeprefix(__name__)] = module
