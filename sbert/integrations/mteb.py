"""MTEB: a model for ``mteb.evaluate``.

>>> import mteb
>>> from sbert.integrations.mteb import MtebModel
>>> model = MtebModel("sbert-mini", name="me/sbert-mini", revision="1")
>>> results = mteb.evaluate(model, mteb.get_tasks(tasks=["STSBenchmark"]))  # doctest: +SKIP

- The name and the revision say where results are stored: change the revision when the model changes, or mteb returns
  the old results.
- Prompts are the model's "query" and "document"; prompts by task, as instruction models have, are not looked up.
- The score of a task with one data set is that of our own suite: STSb, 81.40 with ``sbert-mini`` in both.
- Tasks download their data; ``HF_HUB_OFFLINE=1`` works once they are there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from mteb.models.model_meta import ModelMeta
from mteb.types import PromptType
from torch import Tensor

from sbert.integrations.loading import load_encoder


class MtebModel:
    """A ``SentenceEncoder`` as mteb measures it; queries and documents get the prompts that the model has for them.

    Args:
        model: An encoder, a folder or a name on the hub. Default: the bundled model.
        name: Name of the results, as ``"organisation/model"``.
        revision: Revision in the results.
        options: Of ``SentenceEncoder``, if the model is not loaded yet.
    """

    def __init__(self, model: Any = None, name: str = "sbert/model", revision: str = "1", **options: Any) -> None:
        self.model = load_encoder(model, **options)
        self.mteb_model_meta = ModelMeta.create_empty({"name": name, "revision": revision})

    def encode(self, inputs: Iterable[dict[str, list[str]]], *, prompt_type: Any = None, **_: Any) -> Any:
        """One vector per text of the batches."""
        texts = [text for batch in inputs for text in batch["text"]]
        if prompt_type == PromptType.query:
            return self.model.encode_query(texts)
        return self.model.encode_document(texts) if prompt_type == PromptType.document else self.model.encode(texts)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Shape: (n, dim) and (m, dim) to (n, m)."""
        return self.model.similarity(torch.as_tensor(embeddings1), torch.as_tensor(embeddings2))

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Shape: (rows, dim) twice to (rows,)."""
        return self.model.similarity_pairwise(torch.as_tensor(embeddings1), torch.as_tensor(embeddings2))
