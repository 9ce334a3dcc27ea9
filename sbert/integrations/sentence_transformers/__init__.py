"""The names of sentence-transformers 6.2 over ours: a script runs after its imports are changed.

>>> from sbert.integrations.sentence_transformers import SentenceTransformer, util
>>> model = SentenceTransformer()  # or a name on the hub, or a folder
>>> corpus = model.encode(["The cat sleeps.", "Taxes go up."])
>>> util.semantic_search(model.encode(["A kitten is napping."]), corpus, top_k=1)[0][0]["corpus_id"]
0

After ``install()``, ``import sentence_transformers`` and imports of its modules give these names, so that a script or
another library need not be changed. A ``SentenceTransformer`` is a ``sbert.SentenceEncoder``, and a loss or a module is
ours, made with their arguments.

What is not offered can be imported, and is an error when it is used, which says what to use instead;
``sbert/integrations/migrating.md`` has all names. What has another meaning here keeps it: texts that are not ``str``
are refused, the learning rate is one step ahead during warm-up, a text that repeats in a batch is not a negative of
itself, and ``mine_hard_negatives`` counts ranks among candidates only. An argument that is taken and not used is in the
guide's table of those, with the reason.
"""

from __future__ import annotations

import sys
from importlib import import_module

from sbert.integrations.sentence_transformers.encoders import CrossEncoder, SentenceTransformer, SparseEncoder
from sbert.integrations.sentence_transformers.forms import LAZY, ModelCardData, SimilarityFunction, offer
from sbert.integrations.sentence_transformers.readers import InputExample, ParallelSentencesDataset, SentencesDataset
from sbert.integrations.sentence_transformers.training import CrossEncoderTrainer, SentenceTransformerTrainer
from sbert.integrations.sentence_transformers.util import LoggingHandler, mine_hard_negatives, quantize_embeddings
from sbert.integrations.switching import read_table

__all__ = ["InputExample", "LoggingHandler", "SentencesDataset", "SimilarityFunction", "install", *LAZY]
__all__ += ["CrossEncoder", "CrossEncoderTrainer", "MultiVectorEncoder", "ParallelSentencesDataset", "SparseEncoder"]
__all__ += ["SentenceTransformer", "SentenceTransformerModelCardData", "SentenceTransformerTrainer"]
__all__ += ["mine_hard_negatives", "quantize_embeddings"]
__version__ = "6.2.0"  # That of the names.
offer(__name__)


class MultiVectorEncoder(SentenceTransformer):
    """A ``SentenceTransformer`` of vectors of tokens, which returns an array for each text."""


SentenceTransformerModelCardData = ModelCardData


def _set_paths() -> None:
    """The paths from which their modules are imported, older and newer ones, and those of the files of classes."""
    for name, paths, files in read_table("paths.csv"):
        module = import_module(f"{__name__}.{name}".rstrip("."))
        for path in paths.split():
            for full in (path, *(f"{path}.{file}" for file in files.split())):
                sys.modules.setdefault(f"{__name__}.{full}", module)
            if "." not in path:
                globals().setdefault(path, module)


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
