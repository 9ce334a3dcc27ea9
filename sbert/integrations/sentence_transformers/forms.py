"""One factory for all their classes: it translates the arguments, and calls ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatch
from typing import Any, NamedTuple

from sbert.integrations import switching
from sbert.integrations.sentence_transformers.names import similarity_name


class Only(NamedTuple):
    """A parameter of theirs without an equivalent: its default, and what to do instead."""

    default: Any
    remedy: str = "leave it out"


class Form(NamedTuple):
    """How one of theirs is made with ours.

    Args:
        make: Our class, or a function.
        names: Their parameters in their order: ``theirs=ours``; ``theirs`` where the name is the same; ``theirs=-`` for
            one that changes no result; ``theirs!`` for one without an equivalent, which stands in ``_ONLY``.
        values: Our arguments, where their default is another one than ours.
    """

    make: Callable[..., Any]
    names: str = ""
    values: Mapping[str, Any] = {}

    def parameters(self) -> dict[str, str]:
        """Ours for each of theirs.

        Example:
            >>> Form(dict, "scale=temperature margin batch_size=- precision!").parameters()
            {'scale': 'temperature', 'margin': 'margin', 'batch_size': '-', 'precision!': 'precision!'}
        """
        return {part.partition("=")[0]: part.rpartition("=")[2] for part in self.names.split()}


_LOSS = Only(None, "write a loss of your own, which is a function: sbert.losses has an example")
_LOADED = Only(None, "pass it to SentenceTransformer")
_ADAMW = "training is with AdamW and a linear schedule"
_ONLY = {
    "activation_fct": _LOSS,
    "activation_fn": _LOSS,
    "aggregate_fn": Only(None, "sbert.evaluation.NanoBEIRSuite gives the figures of each data set"),
    "aggregate_key": Only("mean"),
    "add_transitive_closure": Only(False, "pass all duplicates"),
    "backend": Only("torch", "'sbert export' writes models for other runtimes"),
    "callback": Only(None, "the history of sbert.Trainer has the scores"),
    "config_args": _LOADED,
    "config_kwargs": _LOADED,
    "cos_score_transformation": _LOSS,
    "cross_encoder": Only(None, "filter the rows with its scores yourself"),
    "loss_fct": _LOSS,
    "mrr_at_k": Only(None, "pass at_k"),
    "n_dims_per_step": Only(-1, "all dimensions are trained in each step"),
    "pos_weight": _LOSS,
    "precision": Only(None, "measure the vectors of sbert.search.quantize"),
    "print_wrong_matches": Only(False),
    "processor_kwargs": _LOADED,
    "projection_dim": Only(None),
    "prompt_name": Only(None, "put the instruction before the query"),
    "scheduler": Only("WarmupLinear", _ADAMW),
    "size_average": Only(True),
    "tokenizer_args": _LOADED,
    "tokenizer_name_or_path": Only(None, "pass Transformer(model, tokenizer) of sbert.modules"),
    "truncate_dim": Only(None, "truncate the vectors of teacher and student, which are arrays"),
    "write_predictions": Only(False),
}
# By the names of their parameters.
_CONVERT: dict[str, Callable[[Any], Any]] = {
    "scale": lambda scale: 1 / scale,
    "activation_function": lambda function: "Identity" if function is None else type(function).__name__,
    **dict.fromkeys(
        "similarity_fct distance_metric main_similarity main_similarity_function main_score_function"
        " score_function".split(),
        lambda given: None if given is None else similarity_name(given),
    ),
}


def arguments(name: str, form: Form, args: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
    """Our arguments for theirs.

    Raises:
        TypeError: If there are too many arguments, or one that is unknown.
        ValueError: If one without an equivalent does not have its default.
    """
    names = {theirs.rstrip("!"): to for theirs, to in form.parameters().items()}
    if len(args) > len(names) or set(options) - set(names):
        raise TypeError(f"{name}() takes {', '.join(names)}; got {len(args)} by position, and {', '.join(options)}")
    ours = dict(form.values)
    for theirs, value in {**dict(zip(names, args, strict=False)), **options}.items():
        if names[theirs].endswith("!"):
            default, remedy = _ONLY[theirs]
            if value is not default and value != default:
                raise ValueError(f"{name}({theirs}={value!r:.60}): only {default!r} is supported; {remedy}")
        elif names[theirs] != "-":
            ours[names[theirs]] = _CONVERT[theirs](value) if theirs in _CONVERT else value
    return ours


def factory(name: str, form: Form) -> Callable[..., Any]:
    """The function under their name that makes ours from their arguments."""

    def made(*args: Any, **options: Any) -> Any:
        return form.make(**arguments(name, form, args, options))

    made.__name__ = made.__qualname__ = name
    made.__doc__ = (
        f"``{getattr(form.make, '__name__', name).lstrip('_')}`` with the arguments {', '.join(form.parameters())}."
    )
    return made


def factories(forms: Mapping[str, Form]) -> dict[str, Any]:
    """The functions of a table, by their names."""
    return {name: factory(name, form) for name, form in forms.items()}


def absent(module: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module: what is not offered raises, with the reason of the switching guide."""

    def missing(name: str) -> Any:
        for row in re.findall(r"^\| (``.*) \| (.*) \| (.*) \|$", switching.__doc__ or "", re.MULTILINE):
            if not name.startswith("_") and any(fnmatch(name, known) for known in re.findall(r"``([^`]*)``", row[0])):
                raise ImportError(f"{name} is not offered by {module}; instead: {row[2].replace('``', '')}")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return missing
