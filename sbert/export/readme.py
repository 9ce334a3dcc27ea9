"""The README.md of an exported folder: how to run the model without this library."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from importlib.metadata import version

from sbert.encoder import SentenceEncoder
from sbert.export.formats import OUTPUT, Format
from sbert.inputs.prompts import default_prompt
from sbert.modules import Normalize

_README = """\
# {title}

`{file}` maps texts of at most {limit} tokens to vectors of {dim} dimensions{length}.
Exported by sbert {version}{checked}.

{use}

## Prompts

{prompts}
"""
_USE = """\
Inputs: {names}, (rows, longest) int64, padded on the right; `tokenizer.json` truncates and pads.
Output: `{output}`, (rows, {dim}) float32.

```python
import tokenizers, {package}

tokens = tokenizers.Tokenizer.from_file("tokenizer.json").encode_batch({texts})
inputs = {{
{values}}}
{recipe}
```"""
_GGUF = """\
The tokenizer is in the file; llama.cpp does not truncate longer texts. Its `llama-embedding` computes the vectors:

```bash
llama-embedding -m model.gguf --embd-normalize {normalize} -p {text}
```"""
# Of a tokenizer's encoding, the values of each input.
VALUES = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}


def readme(model: SentenceEncoder, file: str, use: str, difference: float | None) -> str:
    """The text.

    Args:
        model: The encoder.
        file: Name of the main file.
        use: How to run it.
        difference: Largest difference from ``encode``, if they were compared.
    """
    listed = "".join(f"| {name} | {text!r} |\n" for name, text in model.prompts.items() if text)
    default = f"By default, {default_prompt(model)!r} stands before every text.\n" if default_prompt(model) else ""
    table = f"Put before a text:\n\n| name | prompt |\n|---|---|\n{listed}\n{default}" if listed else "None.\n"
    compared = "; not compared with it"
    if difference is not None:
        compared = f"; on 20 texts, its vectors differ by at most {difference:.1e} from those of `encode`"
    return _README.format(
        title=model.name_or_path.rstrip("/").rpartition("/")[2] or "Sentence encoder",
        file=file,
        dim=model.get_sentence_embedding_dimension(),
        length=" and length 1" if _normalized(model) else "",
        limit=model.max_seq_length or "any number of",
        version=version("sbert"),
        checked=compared,
        use=use,
        prompts=table.rstrip("\n"),
    )


def _normalized(model: SentenceEncoder) -> bool:
    return isinstance(model[-1], Normalize) and model.truncate_dim is None


def python_use(model: SentenceEncoder, chosen: Format, inputs: Sequence[str]) -> str:
    """How to run a model in Python."""
    values = {name: chosen.value.format(f"[t.{VALUES[name]} for t in tokens]") for name in inputs}
    use = _USE.format(
        names=", ".join(f"`{name}`" for name in inputs),
        output=OUTPUT,
        dim=model.get_sentence_embedding_dimension(),
        package=chosen.package,
        texts=[default_prompt(model) + text for text in ("A cat sleeps.", "Taxes go up.")],
        values="".join(f'    "{name}": {value},\n' for name, value in values.items()),
        recipe=chosen.recipe,
    )
    return "\n\n".join(filter(None, [use, chosen.note]))


def gguf_use(model: SentenceEncoder) -> str:
    """How to run a GGUF model."""
    return _GGUF.format(
        normalize=2 if _normalized(model) else -1, text=shlex.quote(f"{default_prompt(model)}A cat sleeps.")
    )
