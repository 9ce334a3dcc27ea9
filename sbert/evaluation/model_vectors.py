"""ModelVectors and scores of a model for evaluators, each text and each pair computed once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sbert.distributed.ranks import ALONE, Ranks
from sbert.inputs.prompts import ROLES, default_prompt, prompt_text
from sbert.pipeline.batching import unique

Floats = npt.NDArray[np.float32]


class ModelVectors:
    """The vectors of texts by one model, with a cache: each text is encoded once, even for several evaluators.

    Args:
        model: Any object with ``encode(list of str)``, which returns vectors as an array, a tensor or a list. If it
            has ``encode_query`` and ``encode_document``, these are used for queries and documents.
        ranks: The processes that share the work; all must ask for the same texts in the same order.
        show_progress_bar: As in ``SentenceEncoder.encode``; not passed to models of other libraries.

    Raises:
        TypeError: If the model has neither ``encode`` nor, for pairs, ``predict``.

    Example:
        >>> from sbert import SentenceEncoder
        >>> from sbert.evaluation import ModelVectors
        >>> model = SentenceEncoder()
        >>> vectors = ModelVectors(model)
        >>> vectors(["A cat.", "A dog.", "A cat."]).shape
        (3, 256)
    """

    def __init__(self, model: Any, ranks: Ranks = ALONE, show_progress_bar: bool | None = None) -> None:
        if isinstance(model, str) or not any(callable(getattr(model, name, None)) for name in ("encode", "predict")):
            kind, remedy = type(model).__name__, "a SentenceEncoder, or any object with a method encode(list of str)"
            raise TypeError(f"the model is of type {kind}; pass {remedy}")
        self._model = model
        self.is_sparse: bool = bool(getattr(model, "is_sparse", False))  # Whether most dimensions are 0.
        self.ranks: Ranks = ranks
        self.show_progress_bar: bool | None = show_progress_bar if ranks.first else False  # One bar: that of rank 0.
        # Keyword arguments for the model's methods; none for models of other libraries.
        takes_bar = hasattr(model, "is_cross_encoder")
        self._options: dict[str, Any] = {"show_progress_bar": self.show_progress_bar} if takes_bar else {}
        # For each kind and prompt, the row of each text in a table of vectors, and the table.
        self._cache: dict[tuple[str, str | None], tuple[dict[str, int], Floats]] = {}

    def choose_similarity(self, name: str | None) -> str:
        """A similarity; by default the cosine, or the dot product of sparse vectors, or MaxSim of those of tokens.

        Raises:
            ValueError: If the model gives one vector per token, and the similarity is another one than MaxSim.
        """
        of_tokens = getattr(self._model, "is_multi_vector", False)
        if of_tokens and name not in (None, "maxsim"):
            raise ValueError(f"similarity={name!r} compares vectors of texts, not of tokens; pass 'maxsim' or None")
        return name or ("maxsim" if of_tokens else "dot" if self.is_sparse else "cosine")

    @property
    def is_cross_encoder(self) -> bool:
        """Whether the model gives scores of pairs instead of vectors."""
        return bool(getattr(self._model, "is_cross_encoder", not hasattr(self._model, "encode")))

    def __call__(self, texts: Sequence[str], kind: str = "text", prompt: str | None = None) -> Floats:
        """The vectors of texts, from the cache if they were encoded before.

        Args:
            texts: Any number of texts; the same text may occur several times.
            kind: ``"text"``; or ``"query"`` or ``"document"``, for the model's prompts for queries and documents.
            prompt: The name of one of the model's prompts, or a text, instead of the model's prompt for this kind.

        Shape:
            Output: (texts, dim) float32; of a multi-vector encoder (texts,), an array (tokens, dim) for each.

        Raises:
            ValueError: If the model has a default prompt, but none for this kind; or a vector is not finite.
        """
        rows, table = self._cache.get((kind, prompt), ({}, None))
        new = [text for text in dict.fromkeys(texts) if text not in rows]
        if new or table is None:
            encoded = self.encode_uncached(new, kind, prompt)
            table = encoded if table is None else np.concatenate([table, encoded])
            rows.update({text: row for row, text in enumerate(new, start=len(rows))})
            self._cache[kind, prompt] = rows, table
        return table[np.fromiter((rows[text] for text in texts), np.int64, len(texts))]

    def of_texts(self, texts: Sequence[str], prompt: str | None = None) -> Floats:
        """The same of a model that has to give one vector per text.

        Shape:
            Output: (texts, dim).

        Raises:
            TypeError: If the model gives one vector per token.
        """
        vectors = self(texts, prompt=prompt)
        if vectors.dtype == object:
            raise TypeError("the model gives one vector per token, not per text as this evaluator needs; add a Pooling")
        return vectors

    def encode_uncached(self, texts: Sequence[str], kind: str = "text", prompt: str | None = None) -> Floats:
        """The same without the cache, for large corpora that are needed only once."""
        if self.is_cross_encoder:
            name = type(self._model).__name__
            raise TypeError(f"a {name} gives scores of pairs, but this evaluator needs vectors; pass a SentenceEncoder")
        options, encode = dict(self._options), self._model.encode
        if prompt is None:
            self._check_prompt(kind)
        else:
            options["prompt"] = prompt_text(self._model, prompt, "prompt" if kind == "text" else f"{kind}_prompt")
        if kind != "text":
            encode = getattr(self._model, f"encode_{kind}", encode)

        def vectors(part: Sequence[str]) -> Floats:
            encoded = _to_array(encode(list(part), **options))
            if (encoded.ndim != 2 and encoded.dtype != object) or len(encoded) != len(part):
                name, shape = type(self._model).__name__, encoded.shape
                raise ValueError(f"{name}.encode returns the shape {shape} for {len(part)} texts; return (texts, dim)")
            return encoded

        return self._share(texts, vectors)

    def _check_prompt(self, kind: str) -> None:
        """Raise a ValueError if the default prompt, which is for all texts, would be used for a query or document."""
        default, prompts = default_prompt(self._model), getattr(self._model, "prompts", None) or {}
        if default and kind in ROLES and not any(name in prompts for name in ROLES[kind]):
            names = " or ".join(map(repr, ROLES[kind]))
            lacking = f"the model has the default prompt {default!r} and no prompt {names}"
            raise ValueError(f"{lacking} for a {kind}; pass {kind}_prompt=: a prompt's name, its text, or '' for none")

    def score_pairs(self, first: Sequence[str], second: Sequence[str]) -> Floats:
        """The scores of pairs of texts by a cross-encoder; each different pair is scored once.

        Shape:
            Output: (pairs,) or (pairs, classes).
        """
        different, _, positions = unique(list(zip(first, second, strict=True)))
        scores = self._share(different, lambda part: _to_array(self._model.predict(list(part), **self._options)))
        return np.take(scores, positions, axis=0)

    def _share(self, items: Sequence[Any], action: Callable[[Sequence[Any]], Floats]) -> Floats:
        """The result of an action for all items; each rank runs it on its part of them."""
        ranks = ALONE if getattr(self._model, "is_multi_vector", False) else self.ranks
        # A rank without items takes one nevertheless, to know the shape of the results.
        part = items[ranks.rank :: ranks.world] or items[:1]
        array = ranks.together(lambda: action(part))
        if ranks.world == 1 or not items:
            return _check_finite(array, items)
        result = torch.from_numpy(np.ascontiguousarray(array[: len(items[ranks.rank :: ranks.world])]))
        size = math.prod(result.shape[1:])
        gathered = ranks.gather(result.reshape(len(result), 1, size), len(items))  # (items, 1, size)
        return _check_finite(gathered.reshape(len(items), *result.shape[1:]).numpy(), items)


def _to_array(values: Any) -> Floats:
    """ModelVectors or scores of any type as a float32 array on the host."""
    if isinstance(values, list) and values and getattr(values[0], "ndim", 1) == 2:  # Of tokens: an array for each text.
        return np.fromiter(values, object, len(values))
    if isinstance(values, (list, tuple)) and values and isinstance(values[0], torch.Tensor):
        values = torch.stack(list(values))
    if isinstance(values, torch.Tensor):
        values = values.detach().float().cpu().to_dense().numpy()
    values = values.toarray() if hasattr(values, "toarray") else values  # Of SciPy.
    return np.asarray(values, np.float32)


def _check_finite(values: Floats, items: Sequence[Any]) -> Floats:
    """Raise if a value is not finite: comparisons with NaN are false, so the metrics would look valid."""
    wrong = np.flatnonzero(~np.fromiter((np.isfinite(row).all() for row in values), bool, len(values)))
    if len(wrong):
        remedy = "check whether its weights are finite, and pass dtype='float32' if it was loaded with another dtype"
        raise ValueError(f"the model gives NaN or infinity for {items[wrong[0]]!r:.80}; {remedy}")
    return values
