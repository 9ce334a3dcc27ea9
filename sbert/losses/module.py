"""What the losses of this package have in common: their settings, and what they are told about the data."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor, nn

if TYPE_CHECKING:
    from typing_extensions import Self


class LossModule(nn.Module):
    """A loss with settings. A loss of your own may be a plain function, or any ``nn.Module``.

    A model among the arguments of the constructor is a TypeError that shows the right call. The settings, which are
    the arguments that the loss stores under their own names, are part of ``repr``, by which a checkpoint recognizes
    the loss.

    Example:
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
                own = list(inspect.signature(cls.__init__).parameters.values())[1:]
                needed = ", ".join(str(one).partition(":")[0] for one in own if one.default is one.empty)
                given = f"{cls.__name__} was given a model ({type(value).__name__}); a loss never sees the model"
                raise TypeError(f"{given}. Pass it to the trainer: Trainer(model, data, {cls.__name__}({needed}))")
        return super().__new__(cls)

    def __init__(self) -> None:
        super().__init__()

    def extra_repr(self) -> str:
        """The settings as ``name=value``."""
        names = inspect.signature(type(self).__init__).parameters
        settings = [(name, getattr(self, name)) for name in names if hasattr(self, name)]
        return ", ".join([f"{name}={value!r}" for name, value in settings if not callable(value)])


def is_model_like(value: object) -> bool:
    """Whether the value is a model that turns texts into vectors or scores, or a part of one, from any library."""
    # Not hasattr(value, "tokenizer"): reading this property may build a tokenizer.
    owners = (value, *type(value).__mro__[:-1]) if isinstance(value, nn.Module) else ()
    return any("tokenizer" in vars(place) or hasattr(place, "save_pretrained") for place in owners)


class Data(NamedTuple):
    """What a loss is told about the data set before training.

    Args:
        rows: Number of rows in the largest batch.
        columns: Number of text columns.
        labels: Labels of all rows; None if the data has none.
    """

    rows: int
    columns: int
    labels: Tensor | None


def run_check(loss: object, given: Tensor | Data) -> None:
    """Call the loss's ``check_labels`` or ``check_data``, if it has one; a plain function accepts everything."""
    check = getattr(loss, "check_data", None) if isinstance(given, Data) else getattr(loss, "check_labels", None)
    if check is not None:
        check(given)
