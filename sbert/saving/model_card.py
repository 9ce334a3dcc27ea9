"""The model card: the README.md of a saved model."""

from __future__ import annotations

_CARD = """\
---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags:
- sentence-similarity
- feature-extraction
- sbert
---

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

Saved by sbert {version}. Its author can add the training data, the licence and the limitations here.
"""


def card(
    name: str, dim: int, limit: int | None, similarity: str, prompts: dict[str, str], modules: str, version: str
) -> str:
    """A short model card with the facts that the model itself provides."""
    listed = ", ".join(f"`{key}`: `{text!r}`" for key, text in prompts.items() if text)
    return _CARD.format(
        title=name.rpartition("/")[2],
        name=name,
        dim=dim,
        limit="without limit" if limit is None else f"{limit} tokens",
        similarity=similarity,
        prompts=listed or "none",
        modules=modules,
        version=version,
    )
