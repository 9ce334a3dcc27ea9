"""What sentence-transformers and scikit-learn call arguments, and what those are called here.

Only a call with an unknown argument reads this file: ``sbert.inputs.arguments`` then imports it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from sbert.integrations import switching

# Names that are not taken, and the names here that an error suggests; () if there is no equivalent.
NAMES: dict[str, tuple[str, ...]] = {
    "absolute_margin": ("margin",),
    "calibration_embeddings": ("ranges", "vectors"),
    "corpus_chunk_size": (),
    "corpus_embeddings": ("corpus",),
    "embeddings": ("vectors", "vectors_or_model"),
    "k": ("top_k", "clusters"),
    "metric": ("similarity",),
    "model": ("vectors_or_model", "scores"),
    "model_name": ("modules", "model"),
    "pooling_mode": ("mode",),
    "num_negatives": ("negatives",),
    "query_chunk_size": (),
    "query_embeddings": ("queries",),
    "random_state": ("seed",),
    "score_function": ("similarity",),
    "similarity": ("name",),
}
for _row in switching.ROWS:
    if _row.section == switching.TRAINING and _row.ours:
        NAMES |= dict.fromkeys(_row.theirs, (_row.ours,))
# Names that the encoders take as well as ours.
ALIASES = {
    "model_name_or_path": "model",
    "use_auth_token": "token",
    "processor_kwargs": "tokenizer_kwargs",
    "num_labels": "classes",
    "max_length": "max_seq_length",
    "activation_fn": "activation",
    "inputs": "sentences",
    "model_name": "name",
}
# Arguments without an equivalent: those that change nothing here, and those that are taken at their default alone.
REFUSED = {name: row for row in switching.ROWS if row.section == switching.OF_MODELS for name in row.theirs}


def translate(
    label: str, names: list[str], args: tuple[Any, ...], options: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A call under our names; arguments without an equivalent are left out if they have their default.

    Args:
        label: The function, for errors.
        names: Our names of its arguments.
        args: Its arguments by position.
        options: Its arguments by name.

    Raises:
        TypeError: If an argument is given under both names.
        ValueError: If one without an equivalent has another value than it can have here. The message says what to do.

    Example:
        >>> translate("CrossEncoder", ["model", "classes"], (), {"num_labels": 3, "backend": "torch"})
        ((), {'classes': 3})
    """
    renamed: dict[str, Any] = {}
    for name, value in options.items():
        if (row := REFUSED.get(name)) and name not in names:
            if row.how != "any" and value != (default := json.loads(row.how)):
                raise ValueError(f"{label}() got {name}={value!r:.60}, where only {default!r} is supported; {row.here}")
            continue
        alias = ALIASES.get(name, name)  # SentenceEncoder takes its model by position.
        ours = alias if name not in names and (alias in names or alias == "model") else name
        if ours in renamed:
            raise TypeError(f"{label}() got {ours!r} under two names; pass it once")
        renamed[ours] = value
    if label == "SentenceEncoder":  # Whose modules are given by position.
        chain = renamed.pop("modules", None) or ()
        chain = [chain] if isinstance(chain, (str, os.PathLike)) else chain
        args = (*args, *(chain.values() if isinstance(chain, Mapping) else chain))
        model = renamed.pop("model", None)
        args = args if model is None else (*args, model)
    if label == "CrossEncoder.predict" and renamed.pop("apply_softmax", False):
        renamed["activation"] = _with_softmax(args[0], renamed.get("activation"))
    return args, renamed


def _with_softmax(model: Any, activation: Any) -> Any:
    """The activation of a cross-encoder, with a softmax over the scores of several classes behind it."""
    first = activation or model.activation
    return (lambda scores: first(scores).softmax(-1)) if model.classes > 1 else first
