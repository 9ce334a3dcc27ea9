"""What a loss takes, read in one place: by the trainer, by the losses made of losses, and by whoever lists them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor, nn

from sbert.losses.checks import is_model_like

Loss = Callable[..., Tensor]

# What a loss may take beside its columns.
EXTRAS = ("labels", "texts", "guide")


@dataclass(frozen=True)
class Signature:
    """What a loss takes: its columns by name, whether more may follow, and which extras.

    A parameter without a default is a column, and columns are given by position. ``*negatives`` takes further ones.
    ``labels``, ``texts`` and ``guide`` are extras, with a default or without, and are given by name. Any other
    parameter with a default is a setting of the loss, which training leaves alone.

    Args:
        name: Of the loss.
        columns: Names of the columns.
        more: Name of the further columns, such as ``negatives``, if there may be any.
        extras: Those of ``labels``, ``texts`` and ``guide`` that it takes.
        needs_labels: Whether it has no default for the labels.
        settings: Names of its settings.
    """

    name: str
    columns: tuple[str, ...]
    more: str | None
    extras: frozenset[str]
    needs_labels: bool
    settings: tuple[str, ...] = ()

    @classmethod
    def of(cls, loss: Loss) -> Signature:
        """The signature of a function, or of a module's ``forward``.

        What decorates a function says so as ``functools.wraps`` does. What is made of several losses has its own
        signature in the attribute ``signature``, as ``WeightedSum`` does.

        Raises:
            TypeError: If it is no loss, takes no columns, needs what no data has, or has a column behind a parameter
                that is none.

        Example:
            >>> Signature.of(lambda anchor, positive, labels, temperature=0.05: anchor.sum()).columns
            ('anchor', 'positive')
        """
        known = getattr(loss, "signature", None)
        if isinstance(known, cls):
            return known
        _check_loss(loss)
        function, name = inspect.unwrap(loss), getattr(loss, "__name__", type(loss).__name__)
        function = function.forward if isinstance(function, nn.Module) else function
        columns: list[str] = []
        others: list[str] = []
        more, needs_labels = None, False
        for parameter in inspect.signature(function).parameters.values():
            default = parameter.default is not parameter.empty
            if parameter.kind is parameter.VAR_KEYWORD:
                continue
            if parameter.name in EXTRAS or default:
                others.append(parameter.name)
                needs_labels |= parameter.name == "labels" and not default
            elif parameter.kind is parameter.KEYWORD_ONLY:
                raise TypeError(f"{name} needs {parameter.name!r}, which no data has; it may take {', '.join(EXTRAS)}")
            elif others:
                raise TypeError(
                    f"{name} has the column {parameter.name!r} behind {others[-1]!r}, which columns, given by position,"
                    f" would fill; put {others[-1]!r} last"
                )
            elif parameter.kind is parameter.VAR_POSITIONAL:
                more = parameter.name
            else:
                columns.append(parameter.name)
        if not columns and more is None:
            raise TypeError(f"{name} takes no columns; give it parameters such as anchor and positive")
        extras = frozenset(others) & frozenset(EXTRAS)
        settings = tuple(other for other in others if other not in extras)
        return cls(name, tuple(columns), more, extras, needs_labels, settings)

    @classmethod
    def together(cls, name: str, signatures: Sequence[Signature]) -> Signature:
        """What several losses take that are all given the same columns, by position.

        The columns bear the names of the loss that names most of them, the first of those.

        Raises:
            ValueError: If they take different numbers of columns, or the same names at different places.

        Example:
            >>> pair = Signature.of(lambda first, second, labels: first.sum())
            >>> ranking = Signature.of(lambda anchor, positive, *negatives: anchor.sum())
            >>> str(Signature.together("both", [pair, ranking]))
            'first, second'
        """
        widest = max(signatures, key=lambda signature: len(signature.columns))
        for other in signatures:
            both = zip(other.columns, widest.columns, strict=False)
            swapped = any(own != column and own in widest.columns for own, column in both)
            if swapped or (other.more is None and len(other.columns) < len(widest.columns)):
                raise ValueError(
                    f"{widest.name} takes {widest}, but {other.name} takes {other}; pass losses of as many columns, in"
                    " one order"
                )
        return cls(
            name,
            widest.columns,
            widest.more if all(signature.more for signature in signatures) else None,
            frozenset().union(*(signature.extras for signature in signatures)),
            any(signature.needs_labels for signature in signatures),
        )

    def of_pairs(self) -> Signature:
        """What the data has to have where the one column of the loss holds a model's scores of two texts.

        Raises:
            TypeError: If the loss takes more or less than one column.
            ValueError: If it takes what pairs do not have.

        Example:
            >>> Signature.of(lambda scores, labels: scores.sum()).of_pairs().columns
            ('first', 'second')
        """
        if len(self.columns) != 1:
            raise TypeError(f"{self.name} takes {self}; a model of pairs gives it one column, so take scores alone")
        wanting = sorted(self.extras - {"labels"})
        if wanting:
            raise ValueError(
                f"{self.name} takes {wanting[0]}, which goes with texts' vectors; a model of pairs has none"
            )
        return replace(self, columns=("first", "second"), more=None)

    def names(self, width: int) -> tuple[str, ...]:
        """What the loss calls so many columns; further ones bear one name.

        Example:
            >>> Signature.of(lambda anchor, positive, *negatives: 0).names(4)
            ('anchor', 'positive', 'negatives', 'negatives')
        """
        return (*self.columns[:width], *[str(self.more)] * (width - len(self.columns)))

    def __str__(self) -> str:
        return ", ".join([*self.columns, *([f"*{self.more}"] if self.more else [])])


def _check_loss(loss: object) -> None:
    if isinstance(loss, type):
        raise TypeError(f"the loss is the class {loss.__name__}; call it with its settings: {loss.__name__}(...)")
    if is_model_like(loss):
        raise TypeError(f"the loss is a model ({type(loss).__name__}); pass the model first, then a loss of vectors")
    if not callable(loss):
        raise TypeError(f"the loss is of type {type(loss).__name__}; pass a function or a module")
