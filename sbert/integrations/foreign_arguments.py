"""What sentence-transformers and scikit-learn call arguments, and what those are called here.

Only a call with an unknown argument reads this file: ``sbert.inputs.arguments`` then imports it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Names that are not taken, and the names here that an error suggests; () if there is no equivalent.
NAMES = {
    "absolute_margin": ("margin",),
    "calibration_embeddings": ("ranges", "vectors"),
    "corpus_chunk_size": (),
    "corpus_embeddings": ("corpus",),
    "embeddings": ("vectors", "vectors_or_model"),
    "k": ("top_k", "clusters"),
    "metric": ("similarity",),
    "model": ("vectors_or_model", "scores"),
    "pooling_mode": ("mode",),
    "num_negatives": ("negatives",),
    "query_chunk_size": (),
    "query_embeddings": ("queries",),
    "random_state": ("seed",),
    "score_function": ("similarity",),
    "similarity": ("name",),
}
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
# Arguments without an equivalent, which are taken at their default alone: that, and what to do instead.
REFUSED: dict[str, tuple[Any, str]] = {
    "trust_remote_code": (
        False,
        "code from model folders is never run; pass trust_remote_code=False, which loads each model that transformers"
        " knows (see the guide of sbert.integrations)",
    ),
    "backend": ("torch", "models run in torch here; 'sbert export' writes them for other runtimes"),
    "model_card_data": (None, "edit the README.md of the saved folder"),
    "keep_in_fp32_modules": (None, "pass dtype='float32'"),
    "safe_serialization": (True, "weights are written as safetensors"),
    "train_datasets": (None, "edit the README.md of the saved folder"),
    "local_model_path": (None, "load the model from there, and push it"),
    "exist_ok": (False, "it is pushed whether the repository exists or not; leave this out"),
    "replace_model_card": (False, "the model card is replaced in any case; leave this out"),
    "create_pr": (False, "pass revision= for a branch of its own"),
}


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
        ValueError: If one without an equivalent does not have its default. The message says what to do instead.

    Example:
        >>> translate("CrossEncoder", ["model", "classes"], (), {"num_labels": 3, "backend": "torch"})
        ((), {'classes': 3})
    """
    renamed: dict[str, Any] = {}
    for name, value in options.items():
        if name in REFUSED:
            default, remedy = REFUSED[name]
            if value != default:
                raise ValueError(f"{label}() got {name}={value!r:.60}, where only {default!r} is supported; {remedy}")
            continue
        ours = name if name in names else ALIASES.get(name, name)
        if ours in renamed:
            raise TypeError(f"{label}() got {ours!r} under two names; pass it once")
        renamed[ours] = value
    if label == "SentenceEncoder":  # Whose modules are given by position.
        chain = renamed.pop("modules", None) or ()
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
