"""The signature of a loss: which columns, labels and other data it takes. No other file decides this."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from sbert.losses.module import is_model_like

Loss = Callable[..., Tensor]

# Changes the texts of a batch, and adds row data: (rows of texts, random numbers) -> (rows of texts, row data by name).
Collate = Callable[[list[tuple[str, ...]], np.random.Generator], tuple[list[tuple[str, ...]], dict[str, Any]]]

# What a loss may take beside its columns.
EXTRAS = ("labels", "texts", "guide")


@dataclass(frozen=True)
class Signature:
    """What a loss takes, read from the names and defaults of its parameters.

    - A parameter without a default is a column: the vectors of one column of texts, passed by position.
    - ``*negatives``, or any other ``*name``, takes all further columns.
    - ``labels``, ``texts`` and ``guide`` are extras, with or without a default, passed by name.
    - A parameter after ``*`` without a default is row data: the data's column of that name, such as a weight, an id or
      a list of scores, passed by name. Numbers, and lists of as many numbers in each row, arrive as one tensor
      (rows, ...) in the model's dtype if they are fractions; anything else as the list of the rows' values. Where data
      does not fit in memory, this is decided for each batch.
    - Any other parameter with a default is row data if the data has a column of that name, else a setting.
    - A loss may have a method ``collate(texts, generator)``, which changes the texts of a batch before they are
      tokenized, or adds row data: see ``sbert.losses``.

    Args:
        name: Name of the loss, for errors.
        columns: Names of the columns.
        more: Name of the parameter that takes further columns, such as ``negatives``; None if there is none.
        extras: Those of ``labels``, ``texts`` and ``guide`` that the loss takes.
        needs_labels: Whether ``labels`` has no default.
        settings: Names of the parameters that are settings unless the data has a column of that name.
        labels_are_classes: Whether the labels are classes, which may be words in the data, as for ``SoftmaxLoss``.
        labels_are_vectors: Whether the labels are vectors of the same dim as the columns, as for ``MSELoss``.
        row_data: Names of the row data without a default.
        collates: The methods ``collate`` of the loss, or of the losses that it combines.
    """

    name: str
    columns: tuple[str, ...]
    more: str | None
    extras: frozenset[str]
    needs_labels: bool
    settings: tuple[str, ...] = ()
    labels_are_vectors: bool = False
    labels_are_classes: bool = False
    row_data: tuple[str, ...] = ()
    collates: tuple[Collate, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, loss: Loss) -> Signature:
        """Read the signature of a function, or of a module's ``forward``.

        A decorator must use ``functools.wraps``, so that the function below it can be read. A loss that combines
        other losses stores its own signature in the attribute ``signature``, as ``WeightedSum`` does.

        Raises:
            TypeError: If the loss is not callable, is a class or a model, has no columns, has a column after an
                extra or a setting, or takes what losses of sentence-transformers do.

        Example:
            >>> from sbert.losses.signature import Signature
            >>> Signature.of(lambda anchor, positive, labels, temperature=0.05: anchor.sum()).columns
            ('anchor', 'positive')
        """
        stored = getattr(loss, "signature", None)
        if isinstance(stored, cls):
            return stored
        _check_loss(loss)
        function, name = inspect.unwrap(loss), getattr(loss, "__name__", type(loss).__name__)
        function = function.forward if isinstance(function, nn.Module) else function
        parameters = [part for part in inspect.signature(function).parameters.values() if part.kind != part.VAR_KEYWORD]
        _check_order(name, parameters)
        columns = {part.name: part.kind for part in parameters if _is_column(part)}
        defaults = {part.name: part.default is not part.empty for part in parameters if not _is_column(part)}
        foreign = type(loss).__module__.startswith("sentence_transformers.")
        if foreign or "sentence_features" in columns:
            remedy = "here it sees vectors: pass a function of them, such as loss(anchor, positive, labels)"
            raise TypeError(f"{name} is a loss of sentence-transformers, which runs the model; {remedy}")
        if not columns:
            raise TypeError(f"{name} takes no columns; give it parameters such as anchor and positive")
        variable = inspect.Parameter.VAR_POSITIONAL
        return cls(
            name=name,
            columns=tuple(column for column, kind in columns.items() if kind != variable),
            more=next((column for column, kind in columns.items() if kind == variable), None),
            extras=frozenset(EXTRAS).intersection(defaults),
            needs_labels=defaults.get("labels") is False,
            settings=tuple(other for other, has_default in defaults.items() if other not in EXTRAS and has_default),
            labels_are_vectors=bool(getattr(loss, "labels_are_vectors", False)),
            labels_are_classes=bool(getattr(loss, "labels_are_classes", False)),
            row_data=tuple(other for other, has_default in defaults.items() if other not in EXTRAS and not has_default),
            collates=(loss.collate,) if hasattr(loss, "collate") else (),
        )

    @classmethod
    def combine(cls, name: str, signatures: Sequence[Signature]) -> Signature:
        """The signature of a loss that passes the same columns, by position, to several losses.

        The names of the columns are those of the loss with the most columns; if several have the most, of the first.

        Raises:
            ValueError: If the losses take different numbers of columns, or the same names in a different order.

        Example:
            >>> from sbert.losses.signature import Signature
            >>> pair = Signature.of(lambda first, second, labels: first.sum())
            >>> ranking = Signature.of(lambda anchor, positive, *negatives: anchor.sum())
            >>> str(Signature.combine("both", [pair, ranking]))
            'first, second'
        """
        longest = max(signatures, key=lambda signature: len(signature.columns))
        for other in signatures:
            pairs = zip(other.columns, longest.columns, strict=False)
            swapped = any(name != column and name in longest.columns for name, column in pairs)
            if swapped or (other.more is None and len(other.columns) < len(longest.columns)):
                both = f"{longest.name} takes {longest}, but {other.name} takes {other}"
                raise ValueError(f"{both}; pass losses of as many columns, in the same order")
        settings = dict.fromkeys(name for signature in signatures for name in signature.settings)
        unmasked = any(signature.takes_lists and "mask" not in signature.by_name for signature in signatures)
        return cls(
            name=name,
            columns=longest.columns,
            more=longest.more if all(signature.more for signature in signatures) else None,
            extras=frozenset().union(*(signature.extras for signature in signatures)),
            needs_labels=any(signature.needs_labels for signature in signatures),
            settings=tuple(name for name in settings if name != "mask" or not unmasked),
            labels_are_vectors=any(signature.labels_are_vectors for signature in signatures),
            labels_are_classes=any(signature.labels_are_classes for signature in signatures),
            row_data=tuple(dict.fromkeys(name for signature in signatures for name in signature.row_data)),
            collates=tuple(collate for signature in signatures for collate in signature.collates),
        )

    def of_pairs(self) -> Signature:
        """The columns that the data needs if the loss takes the scores of a cross-encoder.

        A loss with one column of scores takes pairs, rows of two texts. A loss with ``*scores``, one column for each
        document, takes rows of a query and a list of documents; where the lists of a batch differ in length, they are
        padded, and the loss is given ``mask``, if it has this parameter.

        Raises:
            TypeError: If the loss takes other columns.
            ValueError: If it takes ``texts`` or ``guide``, which pairs do not have.

        Example:
            >>> from sbert.losses.signature import Signature
            >>> Signature.of(lambda scores, labels: scores.sum()).of_pairs().columns
            ('first', 'second')
            >>> Signature.of(lambda *scores, labels, mask=None: scores[0].sum()).of_pairs().columns
            ('query', 'documents')
        """
        if len(self.columns) != (not self.takes_lists):
            remedy = "take scores alone; or *scores, for rows of a query and a list of documents"
            raise TypeError(f"{self.name} takes {self}; a cross-encoder gives one column, so {remedy}")
        if unavailable := sorted(self.extras - {"labels"}):
            what = f"{unavailable[0]}, which belongs to the vectors of texts"
            raise ValueError(f"{self.name} takes {what}; a cross-encoder has none")
        if not self.takes_lists:
            return replace(self, columns=("first", "second"), more=None)
        extras = self.extras | {"mask"} & self.by_name
        settings, row_data = (tuple(n for n in names if n != "mask") for names in (self.settings, self.row_data))
        columns = ("query", "documents")
        return replace(self, columns=columns, more=None, extras=extras, settings=settings, row_data=row_data)

    @property
    def takes_lists(self) -> bool:
        """Whether the loss takes any number of columns and names none of them, such as the scores of documents.

        Example:
            >>> from sbert.losses.signature import Signature
            >>> Signature.of(lambda *scores, labels: scores[0].sum()).takes_lists
            True
        """
        return not self.columns and self.more is not None

    @property
    def by_name(self) -> frozenset[str]:
        """Names of all that the loss takes by name: extras, row data and settings.

        Example:
            >>> from sbert.losses.signature import Signature
            >>> sorted(Signature.of(lambda anchor, labels, scale=1.0, *, weight: anchor.sum()).by_name)
            ['labels', 'scale', 'weight']
        """
        return self.extras.union(self.row_data, self.settings)

    def names(self, count: int) -> tuple[str, ...]:
        """The loss's names for this number of columns; all further columns have the same name.

        Example:
            >>> from sbert.losses.signature import Signature
            >>> Signature.of(lambda anchor, positive, *negatives: 0).names(4)
            ('anchor', 'positive', 'negatives', 'negatives')
        """
        return (*self.columns[:count], *[str(self.more)] * (count - len(self.columns)))

    def accepts(self, count: int) -> bool:
        """Whether the loss takes this number of columns.

        Example:
            >>> from sbert.losses.signature import Signature
            >>> ranking = Signature.of(lambda anchor, positive, *negatives: 0)
            >>> [ranking.accepts(count) for count in (1, 2, 3)]
            [False, True, True]
        """
        least = max(1, len(self.columns))
        return count == least or (count > least and self.more is not None)

    def __str__(self) -> str:
        return ", ".join([*self.columns, *([f"*{self.more}"] if self.more else [])])


def _is_column(parameter: inspect.Parameter) -> bool:
    named = parameter.name in EXTRAS or parameter.kind == parameter.KEYWORD_ONLY
    return not named and parameter.default is parameter.empty


def _check_order(name: str, parameters: Sequence[inspect.Parameter]) -> None:
    """Raise unless all columns can be passed by position, before everything else."""
    earlier = None
    for parameter in parameters:
        if not _is_column(parameter):
            earlier = parameter.name
        elif earlier is not None:
            what = f"{name} has the column {parameter.name!r} after {earlier!r}; put {earlier!r} last"
            raise TypeError(f"{what}; if {parameter.name!r} is not text but data of the row, put it after a *")


def _check_loss(loss: object) -> None:
    if isinstance(loss, type):
        raise TypeError(f"the loss is the class {loss.__name__}; call it with its settings: {loss.__name__}(...)")
    if is_model_like(loss):
        raise TypeError(f"the loss is a model ({type(loss).__name__}); pass the model first, then a loss of vectors")
    if not callable(loss):
        raise TypeError(f"the loss is of type {type(loss).__name__}; pass a function or a module, after the data")
