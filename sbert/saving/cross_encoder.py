"""What a folder says of a cross-encoder beside its transformer, under the names of sentence-transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from sbert.backends import huggingface
from sbert.modules.dense import ACTIVATIONS
from sbert.saving.format import MODULES, SETTINGS
from sbert.storage.files import UnreadableError, field, read_json, read_object, write_json

# The key in config.json, the name in it, and the key of versions before 4.
_KEY, _NAME, _OLD_KEY = "sentence_transformers", "activation_fn", "sbert_ce_default_activation_function"
_REMEDY = "pass activation="


def _full_name(kind: type[nn.Module]) -> str:
    return f"{kind.__module__}.{kind.__name__}"


# Names read from a file are looked up here and nowhere else. Softmax has an argument that no folder keeps.
_BY_NAME: dict[str, nn.Module] = {
    **{_full_name(kind): kind() for kind in ACTIVATIONS.values()},
    _full_name(nn.Softmax): nn.Softmax(dim=-1),
}


def read_activation(folder: Path) -> nn.Module | None:
    """What the folder says is put on the scores; None where it says nothing.

    Raises:
        ValueError: If it names something else than an activation of torch.
    """
    config, path = read_object(folder / "config.json"), folder / "config.json"
    settings, settings_path = read_object(folder / SETTINGS, missing_ok=True), folder / SETTINGS
    found = [
        (field(settings, settings_path, _NAME, str, None), settings_path),
        (field(field(config, path, _KEY, dict, {}), path, _NAME, str, None), path),
        (field(config, path, _OLD_KEY, str, None), path),
    ]
    name, path = next(((name, path) for name, path in found if name is not None), (None, path))
    if name is None:
        return None
    if name not in _BY_NAME:
        raise UnreadableError(path, f"names the activation {name!r}, which is none of {', '.join(_BY_NAME)}", _REMEDY)
    return _BY_NAME[name]


def check_activation(activation: Any) -> str:
    """The name under which a folder keeps an activation; raise a ValueError if there is none."""
    name = _full_name(type(activation))
    if name not in _BY_NAME or repr(_BY_NAME[name]) != repr(activation):
        raise ValueError(
            f"the activation {activation!r} cannot be saved by name; set model.activation to one of torch.nn's own,"
            " such as nn.Sigmoid() or nn.Identity(), and pass yours to predict()"
        )
    return name


def _check_chain(folder: Path) -> None:
    """Raise a ValueError for a folder of a cross-encoder that does more than a transformer with a head does."""
    settings = read_object(folder / SETTINGS, missing_ok=True)
    if settings.get("model_type") != "CrossEncoder":
        return
    chain = read_json(folder / MODULES) if (folder / MODULES).exists() else []
    kinds = [str(entry.get("type", "")).rpartition(".")[2] for entry in chain]
    if chain and kinds != ["Transformer"]:
        reason = f"chains {', '.join(kinds)}, where only a Transformer with its own head is read"
        raise UnreadableError(folder / MODULES, reason, "use a model that scores pairs with such a head")
    name = settings.get("default_prompt_name")
    if name is not None and (settings.get("prompts") or {}).get(name):
        reason = f"puts the prompt {name!r} before texts, which is not done here"
        raise UnreadableError(folder / SETTINGS, reason, "put it before the texts yourself, and delete the name")


def read_cross_encoder(folder: Path, classes: int | None, dtype: torch.dtype) -> Any:
    """The transformer in a folder with its head, or with a new one of so many classes if it has none."""
    _check_chain(folder)
    config = huggingface.load_config(folder, {})
    path, kinds = folder / "config.json", config.architectures or []
    if any(kind.endswith("ForSequenceClassification") for kind in kinds):
        if classes is not None and classes != config.num_labels:
            remedy = "leave classes= out, or begin with a model without a head"
            raise UnreadableError(path, f"describes a head of {config.num_labels} scores, not {classes}", remedy)
        return huggingface.load_classifier(folder, config, dtype, fresh=False)
    if classes is None and any(kind.endswith("ForCausalLM") for kind in kinds):
        reason = f"describes a model that writes ({kinds[0]}), and holds no head that scores"
        raise UnreadableError(path, reason, "pass classes= for a new head, which has to be trained")
    config.num_labels = classes or 1
    return huggingface.load_classifier(folder, config, dtype, fresh=True)


_CARD = """\
# {name}

Scores pairs of texts; {classes} a pair.

```python
from sbert import CrossEncoder

model = CrossEncoder("{name}")
model.predict([("A cat sleeps.", "A kitten naps."), ("A cat sleeps.", "Taxes rise.")])
```
"""


def write_cross_encoder(
    folder: Path, name: str, model: Any, tokenizer: Any, limit: int | None, activation: Any
) -> None:
    """Write a transformer with a head as an ordinary folder of Hugging Face's.

    Raises:
        ValueError: If the activation has no name that a folder can keep.
    """
    kind = check_activation(activation)
    with huggingface.quiet():
        model.save_pretrained(folder, safe_serialization=True)
        stated = tokenizer.model_max_length
        tokenizer.model_max_length = limit or stated
        tokenizer.save_pretrained(folder)
        tokenizer.model_max_length = stated
    config = read_object(folder / "config.json")
    config.pop(_OLD_KEY, None)
    write_json(folder / "config.json", {**config, _KEY: {_NAME: kind}})
    scores = "one score" if model.config.num_labels == 1 else f"{model.config.num_labels} scores"
    (folder / "README.md").write_text(_CARD.format(name=name, classes=scores), encoding="utf-8")
