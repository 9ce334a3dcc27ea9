"""What the losses of this package have in common: their settings, and what they are told about the data."""

from __future__ import annotations

import functools
import inspect
from typing import Any, NamedTuple

from torch import Tensor, nn


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

    def __init__(self) -> None:
        super().__init__()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        construct = cls.__init__
        own = list(inspect.signature(construct).parameters.values())[1:]
        needed = [str(one).partition(":")[0] for one in own if one.default is one.empty]  # Such as dims, or *pairs.

        @functools.wraps(construct)
        def refuse_models(self: LossModule, *values: Any, **named: Any) -> None:
            models = [value for value in (*values, *named.values()) if is_model_like(value)]
            if models or "model" in named:
                given = type(models[0] if models else named["model"]).__name__
                name = type(self).__name__
                raise TypeError(
                    f"{name} was given a model ({given}); a loss is a function of vectors and never sees the model."
                    f" Pass the model to the trainer: Trainer(model, data, {name}({', '.join(needed)}))"
                )
            construct(self, *values, **named)

        cls.__init__ = refuse_models  # type: ignore[method-assign]

    def extra_repr(self) -> str:
        """The settings as ``name=value``."""
        names = [name for name in inspect.signature(type(self)).parameters if hasattr(self, name)]
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names if not callable(getattr(self, name)))


def is_model_like(value: object) -> bool:
    """Whether the value is a model that turns texts into vectors or scores, or a part of one, from any library."""
    if not isinstance(value, nn.Module):
        return False
    # Not hasattr(value, "tokenizer"): reading this property may build a tokenizer.
    return any(
        "tokenizer" in vars(one) or hasattr(one, "save_pretrained") for one in (value, *type(value).__mro__[:-1])
    )


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
