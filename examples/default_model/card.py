"""The card of the model that examples/default_model/train.py makes: figures, training, data, limits."""

from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from examples.shared import load
from sbert import SentenceEncoder
from sbert.data import read_retrieval
from sbert.evaluation import RetrievalEvaluator, STSSuite

_CARD = """\
---
language: en
license: apache-2.0
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags:
- sentence-similarity
- feature-extraction
- sbert
---

# sbert-mini

The small model for English that comes with `sbert`: {parameters:.1f} million parameters, {layers} layers of width
{width}, vectors of {width} dimensions and length 1. For similarity their first {shorter} dimensions are enough; for
retrieval they are not.

```python
from sbert import SentenceEncoder

model = SentenceEncoder()  # or SentenceEncoder(truncate_dim={least}), for similarity alone
vectors = model.encode(["The cat sleeps.", "A kitten is napping."])
print(model.similarity(vectors, vectors))
```

## How good it is

Similarity: Spearman's correlation of cosines with people's scores, times 100. No scored pair was trained on, and the
sentences of these sets were taken out of what was. Retrieval: nDCG@10 on Cranfield's abstracts of aerodynamics, times
100; the collection was used to choose how many tokens the model reads, for nothing else.

{figures}

`sbert evaluate --suite sts,retrieval --data FOLDER` prints the first row.

## How it was trained

```bash
{command}
```

The student imitates the teacher's vectors of {sentences:,} sentences and the similarities between them. It knows the
teacher's vectors by their {width} widest directions, the widest first: so the first dimensions hold the most. In the
last part it went over {last:,} of the sentences again: those that say what is seen in a picture, and a quarter as many
others. No pair of sentences was labelled for it. The log and the curve are in the repository's
examples/default_model. On the STS
benchmark's dev part, {before:.1f} became {after:.1f}.

Made with {versions}.

| setting | |
|---|---|
{table}

## Data and licences

The weights are under the Apache licence 2.0, like the library and the teacher. The texts that it learned from come with
terms of their own, and not all are free; if these bind you, train a model on other texts with the same command.

| texts | terms, as far as they are known |
|---|---|
| SNLI, and its counterfactual revisions | CC BY-SA 4.0 |
| MultiNLI | OANC's, CC BY and others, by genre |
| WANLI | CC BY 4.0 |
| Multi30k and Flickr8k captions | research, non-commercial |
| ASSET simplifications | CC BY-NC 4.0 |
| PAN paraphrases | none stated |
| Quora question pairs | non-commercial |
| IMDb reviews | none stated |
| Reuters-21578 | research |

## What it is for, and what not

For comparing, searching and clustering English sentences and short passages where a small and quick model is wanted:
first steps, tests, notebooks, machines without a GPU or a network.

- English alone: words of other languages fall to pieces.
- It reads {reads} tokens of a text, and learned from sentences of {words_of[0]} to {words_of[1]} words: split longer
  texts into passages. It has positions for {longest} tokens, but vectors of longer texts are worse, not better:
  with `max_seq_length={longest}` Cranfield's figure is {at_longest:.1f}.
- With `truncate_dim` below {width}, retrieval loses far more than similarity does: see the last column.
- llama.cpp's converter knows a tokenizer by the token ids of one test string, and does not know this vocabulary. Its
  normalizer and pre-tokenizer are those of BERT uncased, which the converter calls "jina-v2-en".
- It has seen captions, reviews, questions and the news of 1987; hardly any code, law, medicine or chat.
- Like its teacher, it says what texts are about; negation, numbers, and who does what to whom count for little.
- What its texts hold against groups of people is in its vectors. It must not decide about persons.
"""


def card(
    folder: Path,
    data: Path,
    teacher: str,
    dims: Sequence[int],
    settings: dict[str, Any],
    *,
    command: str,
    words_of: tuple[int, int],
    sentences: int,
    last: int,
    before: float,
    after: float,
) -> str:
    """The text of the card.

    Args:
        folder: The folder of the model.
        data: The folder with the STS data sets and Cranfield, for the evaluation.
        teacher: A folder or a name on the hub, evaluated for comparison.
        dims: The output dimensions to evaluate, the largest first.
        settings: The settings of the training.
        command: The command of the training.
        words_of: Minimum and maximum number of words of the training sentences.
        sentences: Number of training sentences.
        last: Number of sentences in the second part of the training.
        before: Spearman correlation on the STS benchmark's dev part before the training.
        after: The same after the training.
    """
    # In float32 on a CPU, so that another machine prints the same figures.
    load_one = partial(SentenceEncoder, folder, device="cpu", dtype="float32")
    models = {f"{dim} dimensions": load_one(truncate_dim=dim) for dim in dims}
    suite, retrieval = STSSuite(data), RetrievalEvaluator(*read_retrieval(data / "cranfield"))
    names = [*suite.sets, "Cranfield"]
    rows = [["", *names], ["---", *["---:"] * len(names)]]
    for title, model in {**models, f"its teacher, {Path(teacher).name}": load(teacher).to("cpu")}.items():
        found = {**suite(model), "Cranfield": retrieval(model)["ndcg@10"]}
        rows.append([title, *(f"{100 * found[name]:.1f}" for name in names)])
    longest = load_one()
    longest.max_seq_length = settings["longest"]
    return _CARD.format(
        **settings,
        command=command,
        words_of=words_of,
        sentences=sentences,
        last=last,
        before=before,
        after=after,
        at_longest=100 * retrieval(longest)["ndcg@10"],
        parameters=sum(weight.numel() for weight in load_file(folder / "model.safetensors").values()) / 1e6,
        shorter=" or ".join(map(str, dims[1:])) or dims[0],
        least=dims[-1],
        figures="\n".join(f"| {' | '.join(row)} |" for row in rows),
        table="\n".join(f"| {name} | {value} |" for name, value in settings.items()),
        versions=", ".join(f"{name} {version(name)}" for name in ("sbert", "torch", "transformers")),
    )
