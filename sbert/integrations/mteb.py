"""MTEB: a model for ``mteb.evaluate``.

>>> import mteb
>>> from sbert.integrations.mteb import MtebModel
>>> model = MtebModel("sbert-mini")
>>> results = mteb.evaluate(model, mteb.get_tasks(tasks=["STSBenchmark"]))  # doctest: +SKIP

- mteb stores results by a model's name and revision. The revision is a hash of the weights, the tokenizer, the prompts
  and the settings: another model, or the same one after training, is measured again.
- Prompts by task (``"STSBenchmark"``), type of task (``"STS"``, ``"Retrieval-query"``) and role (``"query"``) are
  chosen in mteb's own order, as for sentence-transformers.
- The score of a task with one data set is that of our own suite.
- Tasks download their data; ``HF_HUB_OFFLINE=1`` works once they are there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from mteb.models.abs_encoder import get_prompt_name
from mteb.models.model_meta import ModelMeta, ScoringFunction
from mteb.types import PromptType
from torch import Tensor

from sbert.integrations.loading import load_encoder
from sbert.vector_files.fingerprint import digest_of_model


class MtebModel:
    """A ``SentenceEncoder`` as mteb measures it, with the prompts that the model has for a task.

    Args:
        model: An encoder, a folder or a name on the hub. Default: the bundled model.
        name: Name of the results, as ``"organisation/model"``. Default: the model's name on the hub, or that of its
            folder after ``"sbert/"``.
        revision: Revision in the results. Default: a hash of all that the vectors depend on.
        options: Of ``SentenceEncoder``, if the model is not loaded yet.
    """

    def __init__(self, model: Any = None, name: str | None = None, revision: str | None = None, **options: Any) -> None:
        self.model = load_encoder(model, **options)
        path = self.model.name_or_path or "model"
        is_on_hub = path.count("/") == 1 and not Path(path).exists()
        self._name, self._revision = name or (path if is_on_hub else f"sbert/{Path(path).resolve().name}"), revision

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """What mteb shows of the model, and stores its results by, as the model is now."""
        model = self.model
        settings = digest_of_model(model), model.prompts, model.default_prompt_name, model.truncate_dim
        hashed = hashlib.sha256(repr((*settings, model.similarity_fn_name)).encode()).hexdigest()[:16]
        facts: dict[str, Any] = {"name": self._name, "revision": self._revision or hashed}
        facts |= {"n_parameters": sum(map(torch.numel, model.parameters()))}
        facts |= {"embed_dim": model.truncate_dim or model.get_sentence_embedding_dimension()}
        facts |= {"max_tokens": model.max_seq_length, "similarity_fn_name": ScoringFunction(model.similarity_fn_name)}
        return ModelMeta.create_empty(facts)

    def encode(
        self, inputs: Iterable[dict[str, list[str]]], *, task_metadata: Any, prompt_type: Any = None, **options: Any
    ) -> Any:
        """One vector per text of the batches; ``options`` are those of ``SentenceEncoder.encode``."""
        _ = options.pop("hf_split"), options.pop("hf_subset")  # They say nothing about the texts.
        if options.get("batch_size") == 32:  # What mteb passes if the caller names none: the encoder forms its own.
            del options["batch_size"]
        name = get_prompt_name(self.model.prompts, task_metadata, prompt_type)
        if name is not None and name != prompt_type:  # The prompts of roles are chosen below.
            options["prompt_name"] = name
        texts = [text for batch in inputs for text in batch["text"]]
        by_role = {PromptType.query: self.model.encode_query, PromptType.document: self.model.encode_document}
        return by_role.get(prompt_type, self.model.encode)(texts, **options)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Shape: (n, dim) and (m, dim) to (n, m)."""
        return self.model.similarity(torch.as_tensor(embeddings1), torch.as_tensor(embeddings2))

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Shape: (rows, dim) twice to (rows,)."""
        return self.model.similarity_pairwise(torch.as_tensor(embeddings1), torch.as_tensor(embeddings2))
