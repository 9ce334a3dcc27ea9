"""The texts that the default model learns from: sentences, and passages with their titles or questions.

Nothing of the evaluation data sets is among them: no sentence of STS, SICK and SNLI's dev and test, and no passage that
shares twelve words in a row with a document of the retrieval collections.
"""

import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from examples.paper.pretrain import HELD_OUT, cells, key
from sbert.data import read_retrieval

SENTENCES = [
    "captions/*_5cap.tsv.gz:caption1,caption2,caption3,caption4,caption5",
    "captions/asset*.tsv.gz:original,simp0,simp1,simp2,simp3,simp4,simp5,simp6,simp7,simp8,simp9",
    "nli/snli_train_subset.tsv.gz:premise,hypothesis",
    "nli/mnli_train_ptbtok.tsv.gz:premise,hypothesis",
    "nli/wanli_15k.tsv.gz:premise,hypothesis",
    "nli/snli_counterfactual_cad.tsv.gz:premise,hypothesis",
    "paraphrase/pan_train.tsv.gz:sentence1,sentence2",
    "qqp/*.tsv:question1,question2",
    "text_reuters21578/docs.tsv.gz:title",
]
DOCUMENTS = ["text_reuters21578/docs.tsv.gz:body", "text_imdb/*.tsv.gz:text"]
# Captions and sentences derived from captions: plain, and often similar to each other.
DESCRIPTIONS = [source for source in SENTENCES if source.startswith(("captions/*", "nli/snli"))]
COLLECTIONS = {"Cranfield": "cranfield", "CACM": "retrieval_dev/cacm", "TIME": "retrieval_dev/time"}
PASSAGES = "passages"
WORDS_OF = 3, 60  # Minimum and maximum number of words per sentence.
MOST_OF_A_SOURCE = 15_000  # Passages of one source, so that law and software do not outweigh food and news.
SHARED = 12  # A passage that shares so many words in a row with an evaluation document is left out.
END = re.compile(r"(?<=[.!?])[\"')]*\s+(?=[\"'(]*[A-Z0-9])")

Pair = tuple[str, str]  # A title, question or first sentence, and its passage.


def clean(text: str) -> str:
    """Normalize white space, also before punctuation."""
    return re.sub(r" (?=[.,;:!?)])", "", " ".join(text.split()))


def read_sentences(data: Path) -> Iterator[str]:
    """Yield each sentence once, without those of the evaluation data sets."""
    seen = sentences_of_evaluation(data)
    least, most = WORDS_OF
    whole = (text for text in cells(data, SENTENCES))
    split = (sentence for text in cells(data, DOCUMENTS) for sentence in END.split(" ".join(text.split())))
    for text in (text for some in (whole, split) for text in some):
        text = clean(text)
        mark = key(text)
        if least <= text.count(" ") + 1 <= most and mark not in seen:
            seen.add(mark)
            yield text


def read_pairs(data: Path) -> Iterator[Pair]:
    """Yield each passage once, with its title or question, or else its first sentence, source by source.

    At most ``MOST_OF_A_SOURCE`` passages of a source, first those with a title or question.
    """
    seen, runs = sentences_of_evaluation(data), runs_of_evaluation(data)
    for source in sorted((data / PASSAGES).glob("*/passages.tsv.gz")):
        texts = cells(data, [f"{source.relative_to(data)}:query,text"])
        rows = sorted(zip(texts, texts, strict=True), key=lambda row: not row[0])
        left = MOST_OF_A_SOURCE
        for query, passage in rows:
            passage = clean(passage)
            query = clean(query) or END.split(passage)[0]
            mark = key(passage)
            if left and mark not in seen and key(query) not in seen and runs.isdisjoint(runs_of(passage)):
                seen.add(mark)
                left -= 1
                yield query, passage


def sentences_of_evaluation(data: Path) -> set[str]:
    """The keys of the sentences of all evaluation data sets, and of the queries of the retrieval collections."""
    missing = [source for source in HELD_OUT if not any(data.glob(source.partition(":")[0]))]
    missing += [name for name in COLLECTIONS.values() if not (data / name).is_dir()]
    if missing:
        raise SystemExit(f"{data} lacks {', '.join(missing)}; without them, it could train on evaluation data")
    queries = (query for name in COLLECTIONS.values() for query in read_retrieval(data / name).queries.values())
    return {key(text) for some in (cells(data, HELD_OUT), queries) for text in some}


def runs_of(text: str) -> set[str]:
    """All runs of ``SHARED`` words of a text."""
    words = re.findall(r"\w+", text.lower())
    return {" ".join(words[start : start + SHARED]) for start in range(len(words) - SHARED + 1)}


def runs_of_evaluation(data: Path) -> set[str]:
    """The runs of words of the documents of the retrieval collections."""
    documents = (text for name in COLLECTIONS.values() for text in read_retrieval(data / name).corpus.values())
    return {run for text in documents for run in runs_of(text)}


def cached(read: Callable[[Path], Iterator[Any]], data: Path, most: int | None, seed: int, file: Path) -> list[Any]:
    """The texts in random order, cached in a file."""
    if not file.exists():
        found = list(read(data))
        if not found:
            raise SystemExit(f"{data} has no texts for {file.name}; pass the folder with captions, nli and passages")
        random.Random(seed).shuffle(found)
        half = file.with_suffix(".half")
        half.write_text("".join(json.dumps(text) + "\n" for text in found[:most]), encoding="utf-8")
        half.rename(file)
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
