"""The card of the model that examples/default_model/train.py makes: figures, training, data, limits."""

from collections.abc import Iterable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file

from examples.default_model.imitation import TEMPERATURE
from examples.default_model.kinds import as_table, rows_of
from examples.default_model.texts import CODE, COLLECTIONS, SHARED
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

The small model for English that comes with `sbert`: {parameters:.1f} million parameters, {number} layers of width
{hidden}, vectors of {width} dimensions and length 1, texts of up to {longest} tokens. For similarity the first
{shorter} dimensions are enough; for retrieval they are not.

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

All of these were looked at when the training was chosen (how much of the teachers' mean is left, the share of the
words, which runs are averaged, the embeddings of rare tokens, and how much of the mean is added); expect a little less
on others.

{figures}

`sbert evaluate --suite sts,retrieval --data FOLDER` prints the first row without CACM and TIME.

By kind of query: the mean reciprocal rank of the right text among 500 to 2,000, times 100. The passages, and five
packages of Python, were held out from the training. Claims are the last sentences of passages, which are then without
them; "behind 150 words" is a passage that follows 150 words of another one; code are Python functions without their
docstrings, found by the first sentence of these.

{kinds}

`python -m examples.default_model.kinds --data FOLDER` prints both rows.

For search, take its vectors and BM25 together (`sbert search --hybrid`, `HybridIndex`), with stems of the words, the
default where `sbert[search]` is installed. Long documents are found better with
`HybridIndex.add(texts, chunk=60, late=True)`. Measure on texts of your own (`examples/recommend.py`).

## How it was trained

```bash
{command}
```

The vectors of the teachers, {teachers}, each less so much of its mean that
a mean of length {rest} is left, stand side by side, and beside them vectors of the words: random projections of the
tf-idf vectors of the texts' stems, with a share of {lexical} in the similarity, so that rare words count, as in BM25.
All are rotated to their principal directions, so that the first dimensions carry the most information.

The student starts as the layers {layers} of {first}, with {inner:,} neurons in each feed-forward layer and
{pieces:,} tokens, those that the training texts use most, and with a linear layer that is fitted to the teachers'
vectors. Letters of other scripts are no tokens, so that their words are unknown. It learned the first {width}
dimensions, and, in all dimensions, the similarities and the ranking (the Kullback-Leibler divergence of the softmax of
similarities, at temperature {temperature}) of the texts of each batch, in {epochs} epochs of {texts:,} texts, of which
it read {trained} tokens. A batch has similar sentences and similar passages in it, so that the student learns to tell
them apart. After that, the linear layer alone was trained further, and the mean of its vectors, times {added}, was
added to each.

Texts: {sentences_:,} sentences; {passages:,} passages and functions, each with its title, question, first sentence or
docstring, and with a query as people type it: three to five words, or a sentence, some in lower case or with a typo.
Of {excerpts:,} passages, it read {words} words alone: of two in three the first, of the others
those in the middle.

The log and the curve are in the repository's examples/default_model.

Made with {versions}.

| setting | |
|---|---|
{table}

## Data and licences

The weights are under the Apache licence 2.0, like the library; of the teachers, all-MiniLM-L6-v2 and all-mpnet-base-v2
are under the Apache licence 2.0, multilingual-e5-small under the MIT licence. All texts that the model learned from
have licences that allow it:

| texts | licence |
|---|---|
| SNLI, and its counterfactual revisions | CC BY-SA 4.0 |
| MultiNLI | OANC's, CC BY, CC BY-SA and public domain, by genre |
| WANLI | CC BY 4.0 |
| NLI of Wikipedia's sentences (New York University) | CC BY-SA 3.0, GFDL |
| questions of Natural Questions | CC BY-SA 3.0, Apache 2.0 |
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
| WordNet 3.0, copyright 2006 by Princeton University | WordNet's own, which is like BSD's |
| functions of Python's standard library | PSF |
| functions of {code} | MIT, BSD or Apache 2.0; matplotlib's, Pillow's and apsw's own, which are like these |

## What it is for, and what not

For comparing, searching and clustering English sentences, short passages and Python functions where a small and quick
model is wanted: first steps, tests, notebooks, machines without a GPU or a network.

- English only: words in other scripts are unknown, and texts of such words cause a warning; words of other languages in
  Latin letters are split into many tokens.
- It reads {longest} tokens of a text: split longer texts into passages. What a text says at its beginning counts more.
- It is no fair test to measure it on ClapNQ, Natural Questions, SciTLDR, MedQuAD, Stack Exchange, or on the definitions
  of WordNet that are in STS13.
- With `truncate_dim` below {width}, retrieval loses far more than similarity does: see the table.
- llama.cpp's converter knows a tokenizer by the token ids of one test string, and does not know this vocabulary. Its
  normalizer and pre-tokenizer are those of BERT uncased, which the converter calls "jina-v2-en".
- Like its teachers, it says what texts are about; negation, numbers, and who does what to whom count for little.
- The model has the biases of its training texts. Do not use it to make decisions about people.
"""


def card(
    folder: Path,
    data: Path,
    teachers: Sequence[str],
    dims: Sequence[int],
    settings: dict[str, Any],
    *,
    command: str,
    sentences: int,
    passages: int,
) -> str:
    """The text of the card.

    Args:
        folder: The folder of the model.
        data: The folder with the STS data sets and the retrieval collections, for the evaluation.
        teachers: Folders or names on the hub; the first is evaluated for comparison.
        dims: The output dimensions to evaluate, the largest first.
        settings: The settings of the training.
        command: The command of the training.
        sentences: Number of training sentences.
        passages: Number of passages and functions.
    """
    # In float32 on a CPU, so that another machine prints the same figures.
    load_one = partial(SentenceEncoder, folder, device="cpu", dtype="float32")
    models = {f"{dim} dimensions": load_one(truncate_dim=dim) for dim in dims}
    first = models[f"{dims[0]} dimensions"]
    names_of_teachers = [Path(name).name for name in teachers]
    teacher = {names_of_teachers[0]: load(teachers[0]).to("cpu")}
    suite = STSSuite(data)
    collections = {name: read_retrieval(data / place) for name, place in COLLECTIONS.items()}
    names = [*suite.sets, *collections]
    rows = [["", *names], ["---", *["---:"] * len(names)]]
    for title, model in {**models, **teacher}.items():
        found = {name: RetrievalEvaluator(*collection)(model)["ndcg@10"] for name, collection in collections.items()}
        found |= suite(model)
        rows.append([title, *(f"{100 * found[name]:.1f}" for name in names)])
    searches = {"BM25": bm25, "BM25, stems": partial(bm25, language="english")}
    searches[f"{dims[0]} dimensions and BM25, stems"] = partial(hybrid, model=first)
    for title, search in searches.items():
        scores = (f"{100 * search(collection):.1f}" for collection in collections.values())
        rows.append([title, *[""] * len(suite.sets), *scores])
    return _CARD.format(
        **settings | {"layers": listed(settings["layers"], "and"), "words": listed(settings["words"], "or")},
        command=command,
        texts=sentences + 3 * passages,
        sentences_=sentences,
        passages=passages,
        shared=SHARED,
        temperature=TEMPERATURE,
        parameters=sum(weight.numel() for file in folder.rglob("*.safetensors") for weight in load_file(file).values())
        / 1e6,
        number=len(settings["layers"]),
        hidden=first[0].dim,
        teachers=" and ".join(names_of_teachers),
        first=names_of_teachers[0],
        code=", ".join(CODE.split()),
        shorter=" or ".join(map(str, dims[1:])) or dims[0],
        least=dims[-1],
        figures=as_table(rows),
        kinds=as_table(rows_of({"sbert-mini": first, **teacher}, data)),
        table="\n".join(f"| {name} | {value} |" for name, value in settings.items()),
        versions=", ".join(f"{name} {version(name)}" for name in ("sbert", "torch", "transformers")),
    )


def listed(numbers: Sequence[int], last: str) -> str:
    """Numbers with commas, and a word before the last."""
    return f" {last} ".join(filter(None, [", ".join(map(str, numbers[:-1])), str(numbers[-1])]))


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
