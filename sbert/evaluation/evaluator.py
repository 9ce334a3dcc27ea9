"""What every evaluator is: figures of a model's vectors, each text encoded once."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sbert.inputs.prompts import ROLES, default_prompt, prompt_text
from sbert.pipeline.batching import unique
from sbert.pipeline.ranks import ALONE, Ranks
from sbert.storage.atomic import write_text

# What a ``Trainer`` takes as its evaluator: a function of a model that returns one score, or several by name.
Evaluate = Callable[[Any], "float | Mapping[str, float]"]

# The methods of a model that encode each kind of text; the first that the model has is used.
_METHODS = {"text": ("encode",), "query": ("encode_query", "encode"), "document": ("encode_document", "encode")}


class Vectors:
    """The vectors of texts by one model: a text is encoded once, whoever asks for it.

    Args:
        model: Anything with ``encode(list of str)``, which returns vectors as an array, a tensor or a list. Of a model
            with ``encode_query`` and ``encode_document``, these encode what is asked for as such.
        ranks: The processes that share the work; each asks for the same texts in the same order.
        show_progress_bar: As in ``SentenceEncoder.encode``; other models are not told.

    Raises:
        TypeError: If the model has neither ``encode`` nor, for pairs, ``predict``.

    Example:
        >>> vectors = Vectors(model)
        >>> vectors(["A cat.", "A dog.", "A cat."]).shape
        (3, 384)
    """

    def __init__(self, model: Any, ranks: Ranks = ALONE, show_progress_bar: bool | None = None) -> None:
        if not any(callable(getattr(model, name, None)) for name in ("encode", "predict")):
            raise TypeError(
                f"the model is of type {type(model).__name__}; pass a SentenceEncoder, or any object with a method"
                " encode(list of str) that returns a vector for each"
            )
        self.model, self.ranks = model, ranks
        self.show_progress_bar = show_progress_bar if ranks.first else False  # One bar, of the first one's part.
        self._places: dict[tuple[str, str | None], dict[str, int]] = {}
        self._tables: dict[tuple[str, str | None], np.ndarray] = {}

    @property
    def is_cross_encoder(self) -> bool:
        """Whether the model gives scores of pairs, and no vectors."""
        return bool(getattr(self.model, "is_cross_encoder", not hasattr(self.model, "encode")))

    @property
    def _options(self) -> dict[str, Any]:
        """What a model's methods are given beside texts: of models that are not ours, nothing is known."""
        return {"show_progress_bar": self.show_progress_bar} if hasattr(self.model, "is_cross_encoder") else {}

    def __call__(self, texts: Sequence[str], kind: str = "text", prompt: str | None = None) -> np.ndarray:
        """Vectors of texts, kept for whoever asks for them again.

        Args:
            texts: Any number, some of which may be the same.
            kind: ``"text"``, or ``"query"`` and ``"document"`` for the model's prompts of these.
            prompt: The name of one of the model's prompts, or a text, in place of its own for that kind.

        Shape:
            Output: (texts, dim) float32.

        Raises:
            ValueError: If the model has a default prompt and none for queries, or documents, that are asked for.
        """
        key = kind, prompt
        places = self._places.setdefault(key, {})
        new = [text for text in dict.fromkeys(texts) if text not in places]
        if new or key not in self._tables:
            found = self.fresh(new, kind, prompt)
            table = self._tables.get(key)
            self._tables[key] = found if table is None else np.concatenate([table, found])
            places.update({text: len(places) + i for i, text in enumerate(new)})
        return self._tables[key][np.fromiter((places[text] for text in texts), np.int64, len(texts))]

    def fresh(self, texts: Sequence[str], kind: str = "text", prompt: str | None = None) -> np.ndarray:
        """The same without keeping them, for texts that are many and asked for once."""
        if self.is_cross_encoder:
            raise TypeError(
                f"a {type(self.model).__name__} gives scores of pairs, and this evaluator asks for vectors; pass a"
                " SentenceEncoder"
            )
        options = self._options
        if prompt is not None:
            argument = "prompt" if kind == "text" else f"{kind}_prompt"
            options["prompt"] = prompt_text(self.model, prompt, argument)
        else:
            self._check_prompt(kind)
        encode = next(getattr(self.model, name) for name in _METHODS[kind] if hasattr(self.model, name))

        def vectors(part: Sequence[str]) -> np.ndarray:
            found = _array(encode(list(part), **options))
            if found.ndim != 2 or len(found) != len(part):
                raise ValueError(
                    f"{type(self.model).__name__}.encode returns the shape {found.shape} for {len(part)} texts; return"
                    " (texts, dim)"
                )
            return found

        return self._shared(texts, vectors)

    def _check_prompt(self, kind: str) -> None:
        """Raise a ValueError if the default prompt, which is one for all texts, would stand before this kind."""
        default, known = default_prompt(self.model), getattr(self.model, "prompts", None) or {}
        if default and kind in ROLES and not any(name in known for name in ROLES[kind]):
            raise ValueError(
                f"the model has the default prompt {self.model.default_prompt_name!r} ({default!r}) and no prompt"
                f" {' or '.join(map(repr, ROLES[kind]))}, so nothing says what stands before a {kind}; pass"
                f" {kind}_prompt=, a prompt's name or its text, and '' for none"
            )

    def pairs(self, first: Sequence[str], second: Sequence[str]) -> np.ndarray:
        """The scores of pairs by a model that reads two texts at once, each different pair scored once.

        Shape:
            Output: (pairs,) or (pairs, classes).
        """
        different, _, places = unique(list(zip(first, second, strict=True)))
        scores = self._shared(different, lambda part: _array(self.model.predict(list(part), **self._options)))
        return np.take(scores, places, axis=0)

    def _shared(self, items: Sequence[Any], action: Callable[[Sequence[Any]], np.ndarray]) -> np.ndarray:
        """What an action makes of the items, each rank having done its part of them."""
        ranks = self.ranks
        # A rank without a part does one item all the same, for the shape of what comes out.
        own = items[ranks.rank :: ranks.world] or items[:1]
        made = torch.from_numpy(np.ascontiguousarray(ranks.together(lambda: action(own))))
        if ranks.world == 1 or not items:
            return _finite(made.numpy(), items)
        made, width = made[: len(items[ranks.rank :: ranks.world])], math.prod(made.shape[1:])
        everyones = ranks.gather(made.reshape(len(made), 1, width), len(items))  # (items, 1, width)
        return _finite(everyones.reshape(len(items), *made.shape[1:]).numpy(), items)


def _array(found: Any) -> np.ndarray:
    """Vectors or scores, whatever they come as, as float32 on the host."""
    if isinstance(found, (list, tuple)) and found and isinstance(found[0], torch.Tensor):
        found = torch.stack(list(found))
    if isinstance(found, torch.Tensor):
        found = found.detach().float().cpu().numpy()
    return np.asarray(found, np.float32)


def _finite(found: np.ndarray, items: Sequence[Any]) -> np.ndarray:
    """What was found, if all of it is finite: comparisons with NaN are false, and figures of them look like figures."""
    wrong = np.flatnonzero(~np.isfinite(found).all(axis=tuple(range(1, found.ndim))))
    if len(wrong):
        raise ValueError(
            f"the model gives NaN or infinity for {items[wrong[0]]!r:.80}; see whether its weights are finite, and pass"
            " dtype='float32' if it was loaded with another"
        )
    return found


class Evaluator(ABC):
    """Figures of a model, by name; a ``Trainer`` takes one, and so do people.

    Somebody's own is a class with the method ``measure``; any function of a model will do where neither several
    ranks nor vectors that evaluators share are wanted.

    Example:
        >>> class MeanLength(Evaluator):
        ...     def measure(self, vectors):
        ...         return {"length": float(np.linalg.norm(vectors(["A cat.", "A dog."]), axis=1).mean())}
        >>> round(MeanLength()(model)["length"], 3)
        1.0
    """

    @abstractmethod
    def measure(self, vectors: Vectors) -> dict[str, float]:
        """The figures, the first of which says which model is the best; more is better."""

    def __call__(
        self,
        model: Any,
        *,
        output: str | os.PathLike[str] | None = None,
        ranks: Ranks = ALONE,
        show_progress_bar: bool | None = False,
    ) -> dict[str, float]:
        """Measure a model.

        Args:
            model: A ``SentenceEncoder``, or anything with ``encode(list of str)``; for evaluators that say so, a
                ``CrossEncoder``, or anything with ``predict(list of pairs)``.
            output: A file that a line is added to: CSV where it ends in ``.csv``, or else JSONL.
            ranks: The processes that share the work, all of which call this; a ``Trainer`` passes its own.
            show_progress_bar: As in ``encode``.

        Raises:
            OSError: If ``output`` cannot be written.
            ValueError: If a vector or a score of the model's is NaN or infinite, or ``output`` is a CSV file with other
                contents.
        """
        measured = self.measure(Vectors(model, ranks, show_progress_bar))
        found = {name: float(figure) for name, figure in measured.items()}
        if output is not None:
            when = time.strftime("%Y-%m-%dT%H:%M:%S%z")
            name = getattr(model, "name_or_path", type(model).__name__)
            named = {"time": when, "model": name, "evaluator": type(self).__name__}
            # If it fails, it fails on all ranks, none of which goes on alone.
            ranks.run_on_main(lambda: write_line(output, {**named, **found}))
        return found


class SequentialEvaluator(Evaluator):
    """Several evaluators as one, which share the vectors of the texts that they have in common.

    Args:
        evaluators: By name; each figure is called ``name_figure``. The first says which model is the best.

    Raises:
        TypeError: If they are not given by name, or one is no ``Evaluator``.
        ValueError: If there are none.

    Example:
        >>> from sbert.evaluation import SimilarityEvaluator
        >>> first = SimilarityEvaluator(["A cat.", "A cat."], ["A kitten.", "Taxes rise."], [4.5, 0])
        >>> second = SimilarityEvaluator(["A cat.", "A cat."], ["A kitten.", "A dog."], [4.5, 3])
        >>> SequentialEvaluator({"far": first, "near": second})(model)["far_spearman"]
        1.0
    """

    def __init__(self, evaluators: Mapping[str, Evaluator]) -> None:
        if not evaluators:
            raise ValueError("there are no evaluators; pass one or more, by name")
        if not isinstance(evaluators, Mapping):
            raise TypeError(f"evaluators is of type {type(evaluators).__name__}; pass a dict of them by name")
        for name, evaluator in evaluators.items():
            if not isinstance(evaluator, Evaluator):
                raise TypeError(f"evaluators[{name!r}] is {evaluator!r:.60}; pass an Evaluator, which measures vectors")
        self.evaluators = dict(evaluators)

    def measure(self, vectors: Vectors) -> dict[str, float]:
        return {
            f"{name}_{figure}": value
            for name, evaluator in self.evaluators.items()
            for figure, value in evaluator.measure(vectors).items()
        }


def write_line(path: str | os.PathLike[str], record: Mapping[str, Any]) -> None:
    r"""Add a record to a file of results.

    A CSV file gets the columns that it lacks; in JSONL, half a line that a killed process left stays a line of its own.

    Args:
        path: Of the file, CSV where it ends in ``.csv``, or else JSONL.
        record: Values by name.

    Raises:
        OSError: If the file cannot be written.
        ValueError: If there is a CSV file with other contents than a header and rows.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "results.csv"
        ...     write_line(file, {"model": "a", "spearman": 0.5})
        ...     write_line(file, {"model": "b", "spearman": 0.6, "pearson": 0.7})
        ...     file.read_text().splitlines()
        ['model,spearman,pearson', 'a,0.5,', 'b,0.6,0.7']
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.suffix.lower() != ".csv":
        finite = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in record.items()
        }
        with target.open("a+b") as file:
            # Reading begins at the end, which a whole line has brought to a new one.
            file.seek(max(0, file.tell() - 1))
            broken = file.read() not in (b"", b"\n")
            file.write(("\n" * broken + json.dumps(finite, ensure_ascii=False) + "\n").encode())
        return
    rows: list[dict[str, Any]] = []
    columns: list[str] = []
    if target.exists() and target.stat().st_size:
        with target.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            try:
                columns, rows = list(reader.fieldnames or ()), list(reader)
            except (csv.Error, UnicodeDecodeError) as error:
                raise ValueError(f"{target} is no CSV file of results ({error}); name another file") from error
        if any(None in row or None in row.values() for row in rows) or len(set(columns)) < len(columns):
            raise ValueError(f"{target} has rows that do not fit its header; mend them, or name another file")
        if not set(columns) & set(record):
            raise ValueError(f"{target} has other columns ({', '.join(columns)[:60]}); name another file")
    columns += [name for name in record if name not in columns]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows([*rows, record])
    write_text(target, text.getvalue())
