"""Readers of the transfer tasks: SentEval's classification tasks, and the inference data of SICK, SNLI and MNLI."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sbert.data import read_nli, read_rows

Rows = list[dict[str, Any]]

ENTAILMENT = ("contradiction", "entailment", "neutral")
OPPOSITES = {".pos": ".neg", ".subjective": ".objective"}


@dataclass(frozen=True)
class TransferTask:
    """Texts, or pairs of texts, with class labels.

    Args:
        name: Name of the task.
        columns: Names of the one or two columns of text.
        splits: Rows by split: ``"train"``, ``"test"`` and optionally ``"dev"``; or only ``"all"``, if the data has no
            splits and cross-validation is used.
    """

    name: str
    columns: list[str]
    splits: Mapping[str, Rows]


@dataclass(frozen=True)
class Source:
    """The possible files of a task, and how to read them.

    Args:
        classes: Names of the labels 0, 1 and so on.
        splits: For each split, the possible paths in the folder.
        read: Reads the rows of a file, given its path and the classes.
    """

    classes: tuple[str, ...]
    splits: Mapping[str, Sequence[str]]
    read: Callable[[Path, Sequence[str]], Rows]


def read_transfer(folder: Path, name: str) -> TransferTask:
    """Read a task from SentEval's folder ``downstream``, or from a folder of tables.

    Args:
        folder: With ``MR/rt-polarity.pos`` and so on; or with one table per task (``MR.tsv`` with columns label and
            text) or per split (``TREC_train.tsv`` with coarse and text, ``MRPC_test.tsv`` with label, sentence1 and
            sentence2), at the top or in its folder ``senteval``. Inference data is in folders of its own: ``SICK`` or
            ``sick``, ``snli_1.0``, ``multinli_1.0`` or ``nli``. The test set of MNLI is its matched development set.
        name: Name of the task.

    Raises:
        FileNotFoundError: If a file is missing, with its possible names.
        ValueError: If the task is unknown, or a line is invalid.
    """
    if name not in SOURCES:
        raise ValueError(f"the task {name!r} is unknown; pass one of {', '.join(SOURCES)}")
    source, splits = SOURCES[name], {}
    for split, names in source.splits.items():
        if (path := locate(folder, names)) is None:
            raise FileNotFoundError(f"{folder} has no {' or '.join(names)}; put one there, or pass another folder")
        splits[split] = source.read(path, source.classes)
    first = next(iter(splits.values()))[0]
    return TransferTask(name, [column for column in first if column != "label"], splits)


def list_tasks(folder: Path) -> list[str]:
    """The tasks of which a folder has all splits."""
    if not folder.is_dir():
        raise FileNotFoundError(f"the folder {folder} does not exist; pass the folder of the data")
    return [
        name
        for name, source in SOURCES.items()
        if all(locate(folder, names) is not None for names in source.splits.values())
    ]


def locate(folder: Path, names: Sequence[str]) -> Path | None:
    """The first of the named files that exists in a folder, gzipped or not."""
    paths = (folder / f"{name}{end}" for name in names for end in ("", ".gz"))
    return next((path for path in paths if path.exists()), None)


def read_sentences(path: Path, classes: Sequence[str]) -> Rows:
    """Sentences with a label: from a table, or in one of SentEval's three formats."""
    if path.suffix in OPPOSITES:  # One sentence per line, one file per class.
        files = (path, "1"), (path.with_suffix(OPPOSITES[path.suffix]), "0")
        cells = [(line, label) for file, label in files for line in read_lines(file)]
    elif path.suffix == ".label":  # NUM:dist How far is it?
        cells = [(line.partition(" ")[2], line.partition(":")[0]) for line in read_lines(path)]
    elif path.name.startswith("sentiment-"):  # The sentence, a tab, the label.
        cells = [(line.rpartition("\t")[0], line.rpartition("\t")[2]) for line in read_lines(path)]
    else:
        label = "coarse" if path.name.startswith("TREC") else "label"
        return [
            {"sentence": row["text"], "label": row["label"]}
            for row in read_rows(path, ["text"], label, classes=classes)
        ]
    return [{"sentence": text, "label": classes.index(label)} for text, label in cells]


def read_lines(path: Path) -> Iterator[str]:
    """The lines that are not blank. Some of these files are in Windows-1252."""
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("cp1252")
    return filter(None, map(str.strip, text.split("\n")))


def read_paraphrases(path: Path, classes: Sequence[str]) -> Rows:
    """The pairs of MRPC, as published or with the columns label, sentence1 and sentence2."""
    is_published = path.suffix == ".txt"
    columns = ["#1 String", "#2 String"] if is_published else ["sentence1", "sentence2"]
    rows = read_rows(path, columns, "Quality" if is_published else "label", classes=classes, file_format="tsv")
    return [{"first": row[columns[0]], "second": row[columns[1]], "label": row["label"]} for row in rows]


def read_entailment(path: Path, classes: Sequence[str]) -> Rows:
    """The pairs of SICK with their entailment; the labels of the release are in capitals."""
    return read_nli(path, [word.upper() for word in classes] if path.suffix == ".txt" else classes)


# --------------------------------------------------------------------------------------------------------- tasks


def tables(name: str, *others: str) -> tuple[str, ...]:
    """The possible paths of a table."""
    return (f"{name}.tsv", f"senteval/{name}.tsv", *others)


def parts(name: str, **others: str) -> dict[str, tuple[str, ...]]:
    """The possible paths of each split."""
    return {split: tables(f"{name}_{split}", other) for split, other in others.items()}


def inference(**names: Sequence[str]) -> Source:
    """The published files of a data set, or tables in the folder ``nli``."""
    ends = (".tsv", ".jsonl", ".txt")
    return Source(
        ENTAILMENT,
        {split: [f"{name}{end}" for name in files for end in ends] for split, files in names.items()},
        read_nli,
    )


SPLITS = ("train", "dev", "test")
BINARY = ("0", "1")
SICK = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
SOURCES = {
    "MR": Source(BINARY, {"all": tables("MR", "MR/rt-polarity.pos")}, read_sentences),
    "CR": Source(BINARY, {"all": tables("CR", "CR/custrev.pos")}, read_sentences),
    "SUBJ": Source(BINARY, {"all": tables("SUBJ", "SUBJ/subj.subjective")}, read_sentences),
    "MPQA": Source(BINARY, {"all": tables("MPQA", "MPQA/mpqa.pos")}, read_sentences),
    "SST2": Source(BINARY, parts("SST2", **{part: f"SST/binary/sentiment-{part}" for part in SPLITS}), read_sentences),
    "SST5": Source(
        tuple("01234"), parts("SST5", **{split: f"SST/fine/sentiment-{split}" for split in SPLITS}), read_sentences
    ),
    "TREC": Source(
        ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"),
        parts("TREC", train="TREC/train_5500.label", test="TREC/TREC_10.label"),
        read_sentences,
    ),
    "MRPC": Source(
        BINARY,
        parts("MRPC", train="MRPC/msr_paraphrase_train.txt", test="MRPC/msr_paraphrase_test.txt"),
        read_paraphrases,
    ),
    "SICK-E": Source(
        ENTAILMENT, {split: (f"sick/{split}.tsv", f"SICK/{name}") for split, name in SICK.items()}, read_entailment
    ),
    "SNLI": inference(
        train=("snli_1.0/snli_1.0_train", "nli/snli_train", "nli/snli_train_subset"),
        dev=("snli_1.0/snli_1.0_dev", "nli/snli_dev"),
        test=("snli_1.0/snli_1.0_test", "nli/snli_test"),
    ),
    "MNLI": inference(
        train=("multinli_1.0/multinli_1.0_train", "nli/mnli_train", "nli/mnli_train_ptbtok"),
        test=("multinli_1.0/multinli_1.0_dev_matched", "nli/mnli_dev_matched"),
    ),
}
