"""The model cards, the README.md of saved models: templates filled with what a model knows of itself."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

_IN_RUNS = re.compile(r"final|best|checkpoints|(step|checkpoint)-\d+")  # Folders of models in those of runs.


class Training(NamedTuple):
    """What a card says of the training of a model.

    Args:
        base: Name or folder of the model at the start; empty if it was made in memory. The card names no folder.
        sections: The text.
        results: The scores of the last evaluation.
    """

    base: str
    sections: str
    results: Mapping[str, float]


def fill_template(file: str, /, **values: object) -> str:
    """The text of a file in the folder ``templates`` with values in place of the names in braces."""
    return (Path(__file__).parent / "templates" / file).read_text(encoding="utf-8").format(**values)


def name_model(name: str | None, path: Path) -> tuple[str, str]:
    """The title of a card, and the arguments of the call that loads the model: no folder of the author's computer.

    Args:
        name: Name of the model, such as ``"me/model"`` on the hub. Default: that of the folder, or of the output folder
            of a training, which holds it as ``final``, ``best`` or a checkpoint.
        path: The folder.

    Example:
        >>> from pathlib import Path
        >>> from sbert.saving.model_card import name_model
        >>> name_model(None, Path("cats/final"))
        ('cats', '("cats/final")')
        >>> name_model("me/cats", Path("/tmp/model"))
        ('cats', '("me/cats")')
    """
    if name and "/" in name:
        return name.rpartition("/")[2], f"({json.dumps(name)})"
    path, here = path.resolve(), Path.cwd()
    title = name or next((part for part in reversed(path.parts) if not _IN_RUNS.fullmatch(part)), path.name)
    if path == here or not path.is_relative_to(here):
        return title, '(".")  # the folder of this card'
    return title, f"({json.dumps(path.relative_to(here).as_posix(), ensure_ascii=False)})"


def encoder_card(name: str | None, path: Path, model: Any) -> str:
    """The card of an encoder."""
    title, loaded = name_model(name, path)
    language = f"language: {json.dumps(model.language)}\n" if model.language else ""
    limit, trained = model.max_seq_length, getattr(model, "trained", None)
    return fill_template(
        "encoder.md",
        metadata=language + _metadata(trained, name or title, "sentence-similarity"),
        training=f"{trained.sections}\n\n" if trained else "",
        missing="the licence" if trained else "the training data, the licence",
        title=title,
        loaded=loaded,
        task=f', task="{model.routes[0]}"' if model.routes else "",
        dim=model.get_sentence_embedding_dimension(),
        limit="without limit" if limit is None else f"{limit} tokens",
        similarity=model.similarity_fn_name,
        prompts=", ".join(f"`{key}`: `{text!r}`" for key, text in model.prompts.items() if text) or "none",
        modules=model,
        version=version("sbert"),
    )


def cross_encoder_card(name: str | None, path: Path, model: Any) -> str:
    """The card of a cross-encoder."""
    title, loaded = name_model(name, path)
    trained, task = getattr(model, "trained", None), "text-ranking" if model.classes == 1 else "text-classification"
    return fill_template(
        "cross_encoder.md",
        metadata=_metadata(trained, name or title, task),
        training=f"\n{trained.sections}\n" if trained else "",
        title=title,
        loaded=loaded,
        task=task,
        classes="one score" if model.classes == 1 else f"{model.classes} scores",
    )


def _metadata(trained: Training | None, name: str, task: str) -> str:
    """Lines of YAML: the base model, and the results in the form that the hub indexes. Strings are written as JSON."""
    if trained is None:
        return ""
    on_hub = re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", trained.base) and not Path(trained.base).exists()  # No folder.
    lines = [f"base_model: {json.dumps(trained.base)}"] if on_hub else []
    results = {metric: value for metric, value in trained.results.items() if math.isfinite(value)}
    if results:
        lines += ["model-index:", f"- name: {json.dumps(name)}", "  results:", "  - task:", f"      type: {task}"]
        lines += ["    dataset:", "      type: unknown", "      name: held-out data", "    metrics:"]
    for metric, value in results.items():
        lines += [f"    - type: {json.dumps(metric)}", f"      name: {json.dumps(metric)}", f"      value: {value!r}"]
    return "".join(f"{line}\n" for line in lines)
