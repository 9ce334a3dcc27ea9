"""The model card: the README.md of a saved model."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

_CARD = """\
---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags:
- sentence-similarity
- feature-extraction
- sbert
{metadata}---

# {title}

This model maps a text to a vector of {dim} dimensions. Texts with similar meanings get vectors with high {similarity}
similarity.

| | |
|---|---|
| Longest input | {limit} |
| Dimensions | {dim} |
| Similarity | {similarity} |
| Prompts | {prompts} |

```
{modules}
```

## Use

With `pip install sbert`:

```python
from sbert import SentenceEncoder

model = SentenceEncoder("{name}")
vectors = model.encode(["One sentence.", "Another one."])
print(model.similarity(vectors, vectors))
```

{training}Saved by sbert {version}. Its author can add {missing} and the limitations here.
"""


@dataclass(frozen=True)
class Training:
    """What a card says of the training of a model.

    Args:
        base: Name or folder of the model at the start; empty if it was made in memory. The card names no folder.
        sections: The text.
        results: The scores of the last evaluation.
    """

    base: str
    sections: str
    results: Mapping[str, float]


def card(name: str, model: Any) -> str:
    """A short model card with the facts that the encoder itself provides."""
    limit = model.max_seq_length
    trained: Training | None = getattr(model, "trained", None)
    return _CARD.format(
        metadata=metadata(trained, name),
        training=f"{trained.sections}\n\n" if trained else "",
        missing="the licence" if trained else "the training data, the licence",
        title=name.rpartition("/")[2],
        name=name,
        dim=model.get_sentence_embedding_dimension(),
        limit="without limit" if limit is None else f"{limit} tokens",
        similarity=model.similarity_fn_name,
        prompts=", ".join(f"`{key}`: `{text!r}`" for key, text in model.prompts.items() if text) or "none",
        modules=model,
        version=version("sbert"),
    )


def metadata(trained: Training | None, name: str, task: str = "sentence-similarity") -> str:
    """Lines of YAML: the base model, and the results in the form that the hub indexes. Strings are written as JSON.

    Args:
        trained: What is known of the training; None for nothing, which needs no lines.
        name: Name of the model.
        task: What the hub calls the task of the model.
    """
    if trained is None:
        return ""
    on_hub = re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", trained.base) and not Path(trained.base).exists()  # No folder.
    lines = [f"base_model: {json.dumps(trained.base)}"] if on_hub else []
    results = {metric: value for metric, value in trained.results.items() if math.isfinite(value)}
    if results:
        lines += ["model-index:", f"- name: {json.dumps(name)}", "  results:", "  - task:"]
        lines += [f"      type: {task}", "    dataset:", "      type: unknown", "      name: held-out data"]
        lines.append("    metrics:")
    for metric, value in results.items():
        lines += [f"    - type: {json.dumps(metric)}", f"      name: {json.dumps(metric)}", f"      value: {value!r}"]
    return "".join(f"{line}\n" for line in lines)
