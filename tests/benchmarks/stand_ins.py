"""Small models, data sets and files under the names that scripts and tests of sentence-transformers load.

Rows come from STS benchmark, in the folder of evaluation data that SBERT_DATA names; nothing is downloaded.
"""

from __future__ import annotations

import ast
import csv
import gzip
import io
import json
import os
import pickle
import random
import re
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import torch

from tests import small

TRAIN, OTHER = 64, 40  # Rows of a split.
OWN = {"all-MiniLM": 384, "TinyBERT_L": 48, "-tiny": 128}  # Dimensions of models, by a part of the name.
NANOBEIR = (
    "ClimateFEVER DBPedia FEVER FiQA2018 HotpotQA MSMARCO NFCorpus NQ QuoraRetrieval SCIDOCS ArguAna SciFact Touche2020"
)
# By the beginnings of the names of data sets on the hub, with their subset: "column=value", values as in _cells().
COLUMNS = {
    "mteb/stsbenchmark-sts": "sentence1=a sentence2=b score=five",
    "mteb/sts17": "sentence1=a sentence2=b score=five",
    "sentence-transformers/stsb": "sentence1=a sentence2=b score=score",
    "sentence-transformers/all-nli pair-class": "premise=a hypothesis=b label=relation",
    "sentence-transformers/all-nli pair-score": "sentence1=a sentence2=b score=score",
    "sentence-transformers/all-nli triplet": "anchor=a positive=b negative=n",
    "sentence-transformers/all-nli": "anchor=a positive=b",
    "sentence-transformers/wikipedia-sections": "anchor=a positive=b negative=n",
    "sentence-transformers/quora-duplicates triplet": "anchor=a positive=b negative=n",
    "sentence-transformers/quora-duplicates pair-class": "sentence1=a sentence2=b label=same",
    "sentence-transformers/quora-duplicates pair": "anchor=a positive=b",
    "sentence-transformers/quora-duplicates-mining questions": "qid=text_id question=text",
    "sentence-transformers/quora-duplicates-mining duplicates": "qid1=id qid2=other_id",
    "sentence-transformers/gooaq": "question=a answer=b",
    "sentence-transformers/natural-questions": "query=a answer=b",
    "sentence-transformers/parallel-sentences": "english=a non_english=b",
    "sentence-transformers/wikipedia-en-sentences": "sentence=a",
    "sentence-transformers/simple-wiki": "text=a simplified=b",
    "sentence-transformers/sentence-compression": "text=a simplified=b",
    "sentence-transformers/altlex": "text=a simplified=b",
    "sentence-transformers/coco-captions": "caption1=a caption2=b",
    "sentence-transformers/flickr30k-captions": "caption1=a caption2=b",
    "sentence-transformers/yahoo-answers": "question=a answer=b",
    "sentence-transformers/stackexchange-duplicates": "title1=a title2=b",
    "sentence-transformers/msmarco-co-condenser": "query=a positive=b negative=n",
    "sentence-transformers/msmarco queries": "query_id=id query=a",
    "sentence-transformers/msmarco corpus": "passage_id=id passage=b",
    "sentence-transformers/msmarco triplets": "query_id=id positive_id=id negative_id=negative_id",
    "sentence-transformers/msmarco labeled-list": "query_id=id doc_ids=ids labels=labels",
    "sentence-transformers/msmarco bert-ensemble-mse": "query_id=id passage_id=id score=score",
    "sentence-transformers/msmarco bert-ensemble-margin-mse": "query_id=id positive_id=id negative_id=negative_id"
    " score=score",
    "sentence-transformers/NanoBEIR-en queries": "_id=id text=a",
    "sentence-transformers/NanoBEIR-en corpus": "_id=id text=b",
    "sentence-transformers/NanoBEIR-en qrels": "query-id=id corpus-id=id",
    "sentence-transformers/NanoBEIR-en bm25": "query-id=id corpus-ids=ids",
    "tomaarsen/msmarco-Qwen3-Reranker-0.6B": "query=a positive=b negative=n score=both",
    "microsoft/ms_marco": "query=a passages=passages",
    "BeIR/quora queries": "_id=id text=a",
    "BeIR/quora corpus": "_id=id text=b",
    "BeIR/quora-qrels": "query-id=number corpus-id=number score=same",
    "quora": "questions=questions is_duplicate=same",
    "nq_open": "question=a answer=b",
    "princeton-nlp/datasets-for-simcse": "text=a",
    "yahoo_answers_topics": "best_answer=b",
}


@cache
def rows() -> list[tuple[str, str, float]]:
    """Pairs of texts with a score of 0 to 5; no text is in two rows, and the order is by chance."""
    path = Path(os.environ["SBERT_DATA"]) / "stsb" / "train.tsv"
    seen: set[str] = set()
    pairs = []
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            a, b = (row[name].replace('"', "") for name in ("sentence1", "sentence2"))
            if not seen & {a, b} and a != b:
                pairs.append((a, b, float(row["score"])))
            seen |= {a, b}
    random.Random(0).shuffle(pairs)
    return pairs[:600]


def _cells(start: int, count: int) -> list[dict[str, Any]]:
    """All values that a column can have, for each row of a split."""
    chosen = rows()[start : start + count]
    cells: list[dict[str, Any]] = []
    for i, (a, b, score) in enumerate(chosen):
        near = [(i + step) % count for step in (0, 7, 11, 13, 17, 19)]
        labels = [1, 0, 0, 0, 0, 0]
        cell = {"a": a, "b": b, "n": chosen[near[1]][1], "five": score, "score": score / 5, "both": [score, score / 3]}
        cell |= {"same": int(score >= 3), "relation": 0 if score > 3.5 else 2 if score < 1.5 else 1, "number": i}
        cell |= {"id": str(i), "other_id": str(i + 1 - 2 * (i % 2)), "negative_id": str(near[1]), "labels": labels}
        # In these, a text and the text that follows are duplicates.
        cell |= {"text_id": str(i), "text": chosen[i // 2][i % 2], "ids": [str(j) for j in near]}
        cell["passages"] = {"passage_text": [chosen[j][1] for j in near], "is_selected": labels}
        cell["questions"] = {"id": [2 * i, 2 * i + 1], "text": [a, b]}
        cells.append(cell)
    return cells


def load_dataset(path: str, name: str | None = None, *args: Any, split: Any = None, **options: Any) -> Any:
    """In place of ``datasets.load_dataset``: a small data set with the columns of the one on the hub.

    Raises:
        ValueError: If the table has no columns for it.
    """
    from datasets import Dataset, DatasetDict

    wanted = f"{path} {name or ''}".strip()
    known = [key for key in COLUMNS if (wanted + " ").startswith(key if key.endswith("-") else key.rstrip())]
    if not known:
        raise ValueError(f"no small data set for {wanted!r}")
    if split is None:
        splits = ("train", "validation", "test") if "stsb" in path else ("train", "dev")
        return DatasetDict({part: load_dataset(path, name, split=part) for part in splits})
    kind = re.split(r"\W", str(split))[0]
    is_train = kind == "train" or str(split).startswith("Nano")
    start, count = (0, TRAIN) if is_train else (TRAIN + OTHER * (kind == "test"), OTHER)
    columns = [part.split("=") for part in COLUMNS[max(known, key=len)].split()]
    made = Dataset.from_list([{column: cell[value] for column, value in columns} for cell in _cells(start, count)])
    return made.to_iterable_dataset() if options.get("streaming") else made


def shrink_limits() -> None:
    """Let ``select``, ``train_test_split`` and ``random.sample`` take numbers beyond the small number of rows."""
    from datasets import Dataset

    select, split, sample = Dataset.select, Dataset.train_test_split, random.sample

    def select_existing(self: Any, indices: Iterable[int], *args: Any, **options: Any) -> Any:
        indices = list(indices)
        if not indices or max(indices) >= len(self):
            indices = list(dict.fromkeys(i % len(self) for i in indices)) or list(range(len(self)))
        return select(self, indices, *args, **options)

    def split_small(self: Any, test_size: Any = None, *args: Any, **options: Any) -> Any:
        size = min(test_size, len(self) // 5) if isinstance(test_size, int) else test_size
        return split(self, size, *args, **options)

    Dataset.select, Dataset.train_test_split = select_existing, split_small
    random.sample = lambda population, k, **more: sample(list(population), min(k, len(population)), **more)


def names_in(scripts: Iterable[Path]) -> set[str]:
    """Texts in scripts that may be names of models."""
    nodes = [node for script in scripts for node in ast.walk(ast.parse(script.read_text(encoding="utf-8")))]
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    named = re.compile(r"[\w.-]*[\w-]{3}/?[\w.-]+")
    return {text for text in texts if named.fullmatch(text) and re.search("\\w[-/]|LaBSE", text)}


def write_models(cache: Path, names: Iterable[str], dim: int) -> None:
    """A cache of the hub in which each name is a small BERT of random weights.

    A name with "MiniLM" has 384 dimensions, one with "tiny" 128 and one with "TinyBERT_L" 48; the others have ``dim``.
    """
    from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification

    words = {word for a, b, _ in rows() for word in re.findall(r"\w+|[^\w\s]", f"{a} {b}".lower())}
    tokenizer = small.wrapped(small.wordpiece(sorted(words)), 128)
    revision = "0" * 40
    for name in names:
        width = next((size for part, size in OWN.items() if part in name), dim)
        classes = 3 if "nli" in name else 1 if re.search("cross-encoder|rerank", name) else 0
        shared = cache / f"model-{width}-{classes}"
        if not shared.exists():
            torch.manual_seed(0)
            shape = {"hidden_size": width, "num_hidden_layers": 2 if width > 300 else 3, "num_attention_heads": 4}
            shape |= {"vocab_size": len(tokenizer), "intermediate_size": 128, "num_labels": classes or 2}
            config = BertConfig(**shape, pad_token_id=tokenizer.pad_token_id)
            (BertForSequenceClassification if classes else BertForMaskedLM)(config).save_pretrained(shared)
            tokenizer.save_pretrained(shared)
        for full in (name, f"sentence-transformers/{name}")[: 2 - ("/" in name)]:
            repository = cache / f"models--{full.replace('/', '--')}"
            (repository / "refs").mkdir(parents=True, exist_ok=True)
            (repository / "refs" / "main").write_text(revision)
            snapshot = repository / "snapshots" / revision
            if not snapshot.exists():
                snapshot.mkdir(parents=True)
                for file in shared.iterdir():
                    (snapshot / file.name).symlink_to(file)


def write_nanobeir(cache: Path) -> None:
    """NanoBEIR's data sets in a cache of the hub, as files."""
    repository = cache / "datasets--sentence-transformers--NanoBEIR-en"
    (repository / "refs").mkdir(parents=True, exist_ok=True)
    (repository / "refs" / "main").write_text("0" * 40)
    for part in ("corpus", "queries", "qrels", "bm25"):
        folder = repository / "snapshots" / ("0" * 40) / part
        folder.mkdir(parents=True, exist_ok=True)
        lines = map(json.dumps, load_dataset("sentence-transformers/NanoBEIR-en", part, split="Nano").to_list())
        text = "\n".join(lines)
        for name in NANOBEIR.split():
            (folder / f"Nano{name}-00000-of-00001.jsonl").write_text(text, encoding="utf-8")


def _tables() -> dict[str, list[Any]]:
    """The text files that scripts download or read, by their names: lines, or the values between tabs."""
    pairs = rows()
    texts = [text for a, b, _ in pairs for text in (a, b)]
    words = sorted({word for text in texts for word in re.findall(r"[a-z]+", text.lower())})
    numbers = random.Random(1)
    candidates = [(i, [i, *((i + j) % 600 for j in range(7, 19))]) for i in range(40)]
    asked = [(i, i + 1, " ".join(map(str, near[1:])), "1.0") for i, near in candidates]
    splits = ["train", "train", "dev", "test"]
    sts = [(splits[i % 4], "g", "f", "y", i, s, a, b) for i, (a, b, s) in enumerate(pairs[:400])]
    labels = ("contradiction", "neutral", "entailment")
    nli = [(splits[i % 4], "d", "f", a, b, labels[i % 3]) for i, (a, b, _) in enumerate(pairs)]
    quora = ("qid1", "qid2", "question1", "question2", "is_duplicate")
    classified = [(2 * i, 2 * i + 1, a, b, int(s >= 3)) for i, (a, b, s) in enumerate(pairs)]
    articles = [json.dumps({"title": a, "paragraphs": [f"{b} {a} {b} {a} {b}"]}) for a, b, _ in pairs[:150]]
    return {
        "sentences.txt": texts[:300],
        "wiki1m_for_simcse.txt": texts[:300],
        "text_tokenized.txt.gz": [(i, text, text) for i, text in enumerate(texts[:600])],
        "dev.txt": asked,
        "test.txt": asked[::-1],
        "train_random.txt": [(i, i + 1, i + 3) for i in range(100, 400, 2)],
        "stsbenchmark.tsv.gz": [("split", "genre", "dataset", "year", "sid", "score", "sentence1", "sentence2"), *sts],
        "AllNLI.tsv.gz": [("split", "dataset", "filename", "sentence1", "sentence2", "label"), *nli],
        "quora_duplicate_questions.tsv": [("id", *quora), *((i, *row) for i, row in enumerate(classified))],
        "classification/train_pairs.tsv": [quora, *classified[:100]],
        "classification/dev_pairs.tsv": [quora, *classified[100:200]],
        "classification/test_pairs.tsv": [quora, *classified[200:300]],
        "wikipedia_doc_frequencies.txt": ["10000", *((word, numbers.randint(1, 5000)) for word in words)],
        "glove.6B.300d.txt.gz": [
            " ".join([word, *(f"{numbers.gauss(0, 0.4):.4f}" for _ in range(300))]) for word in words
        ],
        "train_5500.label": [f"{'DESC NUM LOC HUM'.split()[i % 4]}:x {text}" for i, text in enumerate(texts[:800])],
        "TREC_10.label": [f"{'DESC NUM LOC HUM'.split()[i % 4]}:x {text}" for i, text in enumerate(texts[800:900])],
        "emnlp2016-2018.json": [
            json.dumps([{"title": a, "abstract": b, "venue": "EMNLP", "year": "2018"} for a, b, _ in pairs[:100]])
        ],
        "simplewiki-2020-11-01.jsonl.gz": articles,
        "wiki-programmming-20210101.jsonl.gz": articles,
        "generated_queries.tsv": [(a, b) for a, b, _ in pairs[:200]],
        "collection.tsv": [(i, b) for i, (_, b, _) in enumerate(pairs[:200])],
        "queries.train.tsv": [(i, a) for i, (a, _, _) in enumerate(pairs[:200])],
        "queries.dev.small.tsv": [(i, a) for i, (a, _, _) in enumerate(pairs[:40])],
        "qrels.dev.tsv": [(i, 0, i, 1) for i in range(40)],
        "qrels.train.tsv": [(i, 0, i, 1) for i in range(40)],
        "msmarco-hard-negatives.jsonl.gz": [
            json.dumps({"qid": i, "pos": [i], "neg": {"bm25": [(i + 7) % 200, (i + 9) % 200]}}) for i in range(200)
        ],
        "msmarco-test2019-queries.tsv.gz": [(i, a) for i, (a, _, _) in enumerate(pairs[:20])],
        "2019qrels-pass.txt": [f"{i} 0 {i} 2" for i in range(20)],
        "msmarco-passagetest2019-top1000.tsv.gz": [
            (i, (i + j) % 50, pairs[i][0], pairs[(i + j) % 50][1]) for i in range(20) for j in range(10)
        ],
    }


def replace_downloads(files: Path) -> None:
    """Copy a small file where a function of the package would download one, in this process."""

    def http_get(url: str, path: str) -> None:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        shutil.copy(files / url.rpartition("/")[2], path)

    for module in [module for name, module in sys.modules.items() if name.startswith("sentence_transformers")]:
        if "http_get" in vars(module):
            module.http_get = http_get  # type: ignore[attr-defined]


def write_files(folder: Path) -> None:
    """The files that scripts download, under the last part of their addresses."""
    for name, lines in _tables().items():
        text = "".join((line if isinstance(line, str) else "\t".join(map(str, line))) + "\n" for line in lines)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    archives = {"collection": ["collection.tsv"], "queries": ["queries.train.tsv"]}
    archives["collectionandqueries"] = ["collection.tsv", "queries.dev.small.tsv"]
    for archive, members in archives.items():
        with tarfile.open(folder / f"{archive}.tar.gz", "w:gz") as tar:
            for member in members:
                tar.add(folder / member, member)
    with zipfile.ZipFile(folder / "quora-IR-dataset.zip", "w") as archive:
        for path in (folder / "classification").iterdir():
            archive.write(path, f"classification/{path.name}")
    scores = {i: {(i + step) % 200: 9.0 - step for step in (0, 7, 9)} for i in range(200)}
    (folder / "cross-encoder-ms-marco-MiniLM-L-6-v2-scores.pkl.gz").write_bytes(gzip.compress(pickle.dumps(scores)))
    torch.manual_seed(0)
    buffer = io.BytesIO()
    torch.save(torch.randn(150, 768).half(), buffer)
    (folder / "simplewiki-2020-11-01-nq-distilbert-base-v1.pt").write_bytes(buffer.getvalue())
