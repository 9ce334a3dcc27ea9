"""The model card: the README.md of a saved model."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

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


def card(name: str, model: Any) -> str:
    """A short model card with the facts that the encoder itself provides."""
    limit = model.max_seq_length
    return _CARD.format(
        title=name.rpartition("/")[2],
        name=name,
        dim=model.get_sentence_embedding_dimension(),
        limit="without limit" if limit is None else f"{limit} tokens",
        similarity=model.similarity_fn_name,
        prompts=", ".join(f"`{key}`: `{text!r}`" for key, text in model.prompts.items() if text) or "none",
        modules=model,
        version=version("sbert"),
    )
