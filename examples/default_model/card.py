"""The card of the model that examples/default_model/train.py makes: figures, training, data, limits."""

from collections.abc import Iterable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file

from examples.default_model.imitation import TEMPERATURE
from examples.default_model.texts import COLLECTIONS, SHARED
from examples.shared import load
from sbert import SentenceEncoder
from sbert.data import Retrieval, read_retrieval
from sbert.evaluation import RetrievalEvaluator, STSSuite, ranking_metrics
from sbert.search import BM25, HybridIndex

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
{width}, vectors of {width} dimensions and length 1, texts of up to {longest} tokens. For similarity the first {shorter}
dimensions are enough; for retrieval they are not.

```python
from sbert import SentenceEncoder

model = SentenceEncoder()  # or SentenceEncoder(truncate_dim={least}), for similarity alone
vectors = model.encode(["The cat sleeps.", "A kitten is napping."])
print(model.similarity(vectors, vectors))
```

## How good it is

Similarity: Spearman's correlation of cosines with human scores, times 100. No scored pair was trained on, and the
sentences of these sets were removed from the training sentences. Retrieval: nDCG@10, times 100, of three collections:
Cranfield (abstracts of aerodynamics), CACM (abstracts of computing) and TIME (news of 1963). Passages that share
{shared} words in a row with their documents were removed from the training passages. BM25 compares words as they are,
or leaves out stop words and compares stems.

All these sets were looked at when the training and the mean of the weights were chosen; expect a little less on others.

{figures}

`sbert evaluate --suite sts,retrieval --data FOLDER` prints the first row without CACM and TIME.

For search, take its vectors and BM25 together (`sbert search --hybrid`, `HybridIndex`), with stems of the words, the
default where `sbert[search]` is installed. On CACM and TIME that is better than either alone, on Cranfield as good as
BM25. Of ten other collections, which were kept apart from all choices, it was better on eight when BM25 had the weight
0.6 for every query; on two, one of both alone was. Measure on texts of your own (`examples/recommend.py`).

## How it was trained

```bash
{command}
```

The student imitates the teacher's vectors and the similarities between them. The targets are the teacher's vectors,
projected onto their first {width} principal directions, so that the first dimensions carry the most information. No
scores or classes are used; the fourth part also uses which title or question belongs to which passage. The training has
four parts:

1. {sentences:,} sentences;
2. once more those that say what is seen in a picture, and a quarter as many others;
3. {passages:,} passages of up to {longest} tokens, each with its title or question or first sentence, beside
   {beside:,} sentences. A batch has similar passages in it, so that the student learns to tell them apart. For this
   part the vocabulary grew from {words:,} to {all_words:,} tokens, made from all these texts; the embedding of a new
   token starts as the mean of those of the old tokens that it consists of;
4. a part of the same texts, in {ranking_steps:,} steps. In every second step, the loss also compares how student and
   teacher rank the other texts of the batch: the Kullback-Leibler divergence of the softmax of their similarities, at
   temperature {temperature}. In the steps between, titles and questions learn to find their passages among those of the
   batch.

At the end, letters of other scripts were left out of the vocabulary, so that their words are unknown; Greek letters
that are symbols of science remain, and {vocabulary:,} tokens in all. Vectors of English texts do not change by that.

The weights are the mean of those after the second, third and fourth part. The third part gives its best evaluation on
the STS benchmark's dev part, the fourth its last step. The log and the curve are in the repository's
examples/default_model. On the STS benchmark's dev part, {before:.1f} after the second part became {after:.1f}.

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
| arXiv abstracts | CC0 1.0 (arXiv's metadata) |
| Standard Ebooks: fiction and non-fiction | public domain, CC0 1.0 |
| OpenStax textbooks (access for free at openstax.org), as of before they became CC BY-NC-SA | CC BY 4.0, older \
editions CC BY 3.0 |
| Microsoft's documentation: C++, PowerShell, Office, Business Central, WSL | CC BY 4.0 |
| MedQuAD questions and answers about health | CC BY 4.0 |
| CRAFT, articles of biomedicine | CC BY, by article |
| The Turing Way; Software Carpentry | CC BY 4.0 |
| Wikinews | CC BY 2.5 |
| Stack Exchange | CC BY-SA 2.5, 3.0, 4.0, by date |
| Wikipedia's current events; Dive into Deep Learning | CC BY-SA 4.0 |
| ClapNQ, dev part | Apache 2.0; its passages CC BY-SA 3.0 |
| documentation of software in Debian; The Rust book | PSF, PostgreSQL, Apache 2.0, BSD, MIT, public domain; \
Debian's handbook CC BY-SA 3.0 |
| SciTLDR | Apache 2.0 |
| laws of the District of Columbia, CFPB's regulations, State Department's history, 18F, NIST SP 800-63 (republished \
courtesy of NIST), presidents' speeches | public domain |
| digital.gov; CIA's Factbook | CC0 1.0 |
| Encyclopaedia Britannica of 1911 | public domain |
| public domain recipes | Unlicense |

## What it is for, and what not

For comparing, searching and clustering English sentences and short passages where a small and quick model is wanted:
first steps, tests, notebooks, machines without a GPU or a network.

- English only: words in other scripts are unknown, and texts of such words cause a warning; words of other languages in
  Latin letters are split into many tokens.
- It reads {longest} tokens of a text: split longer texts into passages.
- On Cranfield and TIME, its retrieval is behind that of its teacher and of BM25: see the table.
- It is no fair test to measure it on ClapNQ, Natural Questions, SciTLDR, MedQuAD, Stack Exchange or Quora questions.
- With `truncate_dim` below {width}, retrieval loses far more than similarity does: see the table.
- llama.cpp's converter knows a tokenizer by the token ids of one test string, and does not know this vocabulary. Its
  normalizer and pre-tokenizer are those of BERT uncased, which the converter calls "jina-v2-en".
- It has seen captions, reviews, questions, news, textbooks, law, health, software and old prose; hardly any code or
  chat.
- Like its teacher, it says what texts are about; negation, numbers, and who does what to whom count for little.
- The model has the biases of its training texts. Do not use it to make decisions about people.
"""


def card(
    folder: Path,
    data: Path,
    teacher: str,
    dims: Sequence[int],
    settings: dict[str, Any],
    *,
    command: str,
    sentences: int,
    passages: int,
    before: float,
    after: float,
) -> str:
    """The text of the card.

    Args:
        folder: The folder of the model.
        data: The folder with the STS data sets and the retrieval collections, for the evaluation.
        teacher: A folder or a name on the hub, evaluated for comparison.
        dims: The output dimensions to evaluate, the largest first.
        settings: The settings of the training.
        command: The command of the training.
        sentences: Number of training sentences.
        passages: Number of training passages.
        before: Spearman correlation on the STS benchmark's dev part after the second part.
        after: The same after the training.
    """
    # In float32 on a CPU, so that another machine prints the same figures.
    load_one = partial(SentenceEncoder, folder, device="cpu", dtype="float32")
    models = {f"{dim} dimensions": load_one(truncate_dim=dim) for dim in dims}
    suite = STSSuite(data)
    collections = {name: read_retrieval(data / place) for name, place in COLLECTIONS.items()}
    names = [*suite.sets, *collections]
    rows = [["", *names], ["---", *["---:"] * len(names)]]
    for title, model in {**models, f"its teacher, {Path(teacher).name}": load(teacher).to("cpu")}.items():
        found = {name: RetrievalEvaluator(*collection)(model)["ndcg@10"] for name, collection in collections.items()}
        found |= suite(model)
        rows.append([title, *(f"{100 * found[name]:.1f}" for name in names)])
    searches = {"BM25": bm25, "BM25, stems": partial(bm25, language="english")}
    searches[f"{dims[0]} dimensions and BM25, stems"] = partial(hybrid, model=models[f"{dims[0]} dimensions"])
    for title, search in searches.items():
        scores = (f"{100 * search(collection):.1f}" for collection in collections.values())
        rows.append([title, *[""] * len(suite.sets), *scores])
    return _CARD.format(
        **settings,
        command=command,
        sentences=sentences,
        passages=passages,
        before=before,
        after=after,
        shared=SHARED,
        temperature=TEMPERATURE,
        parameters=sum(weight.numel() for weight in load_file(folder / "model.safetensors").values()) / 1e6,
        shorter=" or ".join(map(str, dims[1:])) or dims[0],
        least=dims[-1],
        vocabulary=len(models[f"{dims[0]} dimensions"].tokenizer),
        figures="\n".join(f"| {' | '.join(row)} |" for row in rows),
        table="\n".join(f"| {name} | {value} |" for name, value in settings.items()),
        versions=", ".join(f"{name} {version(name)}" for name in ("sbert", "torch", "transformers")),
    )


def bm25(collection: Retrieval, language: str | None = None) -> float:
    """The mean nDCG@10 of search by words."""
    lexical = BM25(language=language)
    lexical.add(collection.corpus.values(), collection.corpus)
    return mean_ndcg(collection, lexical.search([*collection.queries.values()], 10).ids)


def hybrid(collection: Retrieval, model: SentenceEncoder) -> float:
    """The mean nDCG@10 of search by vectors and stemmed words."""
    index = HybridIndex(model, language="english")
    index.add(collection.corpus.values(), collection.corpus)
    return mean_ndcg(collection, ([hit.id for hit in hits] for hits in index.search([*collection.queries.values()])))


def mean_ndcg(collection: Retrieval, found: Iterable[Iterable[str]]) -> float:
    """The mean nDCG@10 of the documents that were found for each query."""
    relevant = [collection.relevant[query] for query in collection.queries]
    every = ([grades.get(key, 0) for key in ids] for grades, ids in zip(relevant, found, strict=True))
    ndcg = ranking_metrics.ndcg_at
    return float(np.mean([ndcg(gains, 10, [*best.values()]) for gains, best in zip(every, relevant, strict=True)]))
