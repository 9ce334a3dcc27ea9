"""What the losses of this package have in common: their settings, and what they are told about the data."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Self

from torch import Tensor, nn

from sbert.inputs.arguments import known_arguments
from sbert.losses.checks import Data, check_finite_labels


def sum_parts(value: Any, parts: dict[str, float] | None = None) -> Any:
    """What a loss has returned; if that is a dict of parts, their sum, and the value of each is added to ``parts``.

    Raises:
        ValueError: If a part is not a scalar tensor with a name.
    """
    if not isinstance(value, Mapping):
        return value
    for name, part in value.items():
        if not (isinstance(name, str) and name and isinstance(part, Tensor) and part.ndim == 0):
            raise ValueError(f"the loss returned the part {name!r}: {part!r:.60}; return scalar tensors by their names")
    if parts is not None:
        parts.update({name: part.item() for name, part in value.items()})
    return sum(value.values())


class LossModule(nn.Module):
    """A loss with settings. A loss of your own may be a plain function, or any ``nn.Module``.

    A model among the arguments of the constructor is a TypeError that shows the right call. The settings, which are
    the arguments that the loss stores under their own names, are part of ``repr``, by which a checkpoint recognizes
    the loss.

    Example:
        >>> from sbert.losses.module import LossModule
        >>> class Scaled(LossModule):
        ...     def __init__(self, factor=2.0):
        ...         super().__init__()
        ...         self.factor = factor
        >>> Scaled()
        Scaled(factor=2.0)
    """

    def __new__(cls, *values: Any, **named: Any) -> Self:
        for value in (*values, *named.values()):
            if "model" in named or is_model_like(value):
                parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
                needed = ", ".join(str(part).partition(":")[0] for part in parameters if part.default is part.empty)
                reason = f"{cls.__name__} was given a model ({type(value).__name__}); a loss never sees the model"
                raise TypeError(f"{reason}. Pass it to the trainer: Trainer(model, data, {cls.__name__}({needed}))")
        return super().__new__(cls)

    def __init_subclass__(cls) -> None:
        cls.__init__ = known_arguments(cls.__init__, label=cls.__name__)  # type: ignore[method-assign]

    # What the data must have: rows in its largest batch; and labels that differ, for the reason that stands here.
    least_rows: int = 1
    needs_different_labels: str = ""

    def __init__(self) -> None:
        super().__init__()

    def extra_repr(self) -> str:
        """The settings as ``name=value``."""
        names = inspect.signature(type(self).__init__).parameters
        settings = [(name, getattr(self, name)) for name in names if hasattr(self, name)]
        return ", ".join([f"{name}={value!r}" for name, value in settings if not callable(value)])

    def check_labels(self, labels: Tensor) -> None:
        """Raise a ValueError for labels that the loss does not take: those that are not finite, or what it says."""
        check_finite_labels(self, labels)

    def check_data(self, data: Data) -> None:
        """Raise a ValueError if the data teaches the loss nothing: too few rows to compare, or equal labels."""
        loss, labels = type(self).__name__, data.labels
        if data.rows < self.least_rows:
            name = f"batches of at most {data.rows} row{'s' * (data.rows > 1)} teach {loss} nothing"
            remedy = f"pass at least {self.least_rows} rows and a batch_size of at least {self.least_rows}"
            raise ValueError(f"{name}, which compares the rows of a batch; {remedy}")
        reason = self.needs_different_labels
        if reason and labels is not None and labels.ndim == 1 and bool((labels == labels[0]).all()):
            name = f"every label is {labels[0].item():g}, which teaches {loss} nothing"
            raise ValueError(f"{name}: {reason}; add rows with other labels")


def is_model_like(value: object) -> bool:
    """Whether the value is a model that turns texts into vectors or scores, or a part of one, from any library."""
    # Not hasattr(value, "tokenizer"): reading this property may build a tokenizer.
    owners = (value, *type(value).__mro__[:-1]) if isinstance(value, nn.Module) else ()
    return any("tokenizer" in vars(place) or hasattr(place, "save_pretrained") for place in owners)
