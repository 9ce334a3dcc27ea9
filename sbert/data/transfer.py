"""Readers of classification tasks: the SentEval tasks, SNLI and MultiNLI."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sbert.data.files import Name
from sbert.data.labels import conversion
from sbert.data.nli import CLASSES, read_nli
from sbert.data.rows import rows_of
from sbert.data.sts import read_sick
from sbert.data.tables import check_folder, find, located, read_table

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class TransferTask:
    """Texts, or pairs of texts, with class labels.

    Args:
        name: Name of the task.
        classes: Names of the labels 0, 1 and so on.
        splits: Rows in the form that ``Trainer`` takes, by split: ``"train"``, ``"test"`` and optionally ``"dev"``; or
            only ``"all"``, if the data has no splits and cross-validation is used.

    Example:
        >>> rows = [{"sentence": "A fine film.", "label": 1}, {"sentence": "A dull one.", "label": 0}]
        >>> TransferTask("films", ("bad", "good"), {"all": rows}).columns
        ['sentence']
    """

    name: str
    classes: tuple[str, ...]
    splits: Mapping[str, Rows]

    @property
    def columns(self) -> list[str]:
        """Names of the one or two columns of text."""
        return [name for name in next(iter(self.splits.values()))[0] if name != "label"]


@dataclass(frozen=True)
class _Source:
    """The possible files of a task, and how to read them.

    Args:
        classes: Names of the labels.
        splits: For each split, the possible paths in the folder.
        read: Reads the rows of a file, given its path and the classes.
    """

    classes: tuple[str, ...]
    splits: Mapping[str, Sequence[str]]
    read: Callable[[Path, Sequence[str]], Rows]


def read_transfer(folder: Name, task: str) -> TransferTask:
    r"""Read a transfer task: vectors are evaluated by the accuracy of a simple classifier trained on them.

    The SentEval tasks MR, CR, SUBJ, MPQA, SST2, SST5, TREC, MRPC and SICK-E; in addition SNLI and MNLI. The test set of
    MNLI is its matched development set, since the labels of its test set are not public.

    Args:
        folder: The ``downstream`` folder of SentEval, with ``MR/rt-polarity.pos`` and so on; or a folder with one table
            per task (``MR.tsv`` with columns label and text) or per split (``TREC_train.tsv`` with coarse and text,
            ``MRPC_test.tsv`` with label, sentence1 and sentence2), at the top or in its folder ``senteval``. Inference
            data is in folders of its own: ``SICK`` or ``sick``, ``snli_1.0``, ``multinli_1.0`` or ``nli``.
        task: Name of the task.

    Raises:
        FileNotFoundError: If a file is missing, with its possible names.
        ValueError: If the task is unknown; or if a line is invalid, with the line number.

    References:
        Conneau and Kiela, 2018. https://arxiv.org/abs/1803.05449

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = (Path(folder) / "MR.tsv").write_text("label\ttext\n1\ta \"fine\" film\n0\ta dull one\n")
        ...     read_transfer(folder, "MR").splits["all"]
        [{'sentence': 'a "fine" film', 'label': 1}, {'sentence': 'a dull one', 'label': 0}]
    """
    source = _SOURCES.get(task)
    if source is None:
        raise ValueError(f"the task {task!r} is unknown; pass one of {', '.join(_SOURCES)}")
    paths = {split: find(folder, names) for split, names in source.splits.items()}
    splits = {split: source.read(path, source.classes) for split, path in paths.items()}
    return TransferTask(task, source.classes, splits)


def tasks_in(folder: Name) -> list[str]:
    """The tasks of which a folder has all splits.

    Raises:
        FileNotFoundError: If the folder does not exist.
    """
    check_folder(folder)
    return [
        name for name, source in _SOURCES.items() if all(located(folder, names) for names in source.splits.values())
    ]


# --------------------------------------------------------------------------------------------------------- files

_OPPOSITES = {".pos": ".neg", ".subjective": ".objective"}


def _sentences(path: Path, classes: Sequence[str]) -> Rows:
    """Sentences with a label: from a table, or in one of SentEval's three formats."""
    if path.suffix in _OPPOSITES:  # One sentence per line, one file per class.
        files = (path, 1), (path.with_suffix(_OPPOSITES[path.suffix]), 0)
        found = [(where, [line, label]) for file, label in files for where, line in _lines(file)]
    elif path.suffix == ".label":  # NUM:dist How far is it?
        found = [(where, [line.partition(" ")[2], line.partition(":")[0]]) for where, line in _lines(path)]
    elif path.name.startswith("sentiment-"):  # The sentence, a tab, the label.
        found = [(where, [*line.rpartition("\t")[::2]]) for where, line in _lines(path)]
    else:
        return _table(path, classes, {"sentence": ("sentence", "text")}, "coarse")
    return list(rows_of(found, ["sentence"], conversion(classes, None)))


def _decoded(path: Path) -> str:
    """The content of a file. Some of these files are in Windows-1252."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; put it there, beside the file of the other class")
    for encoding in ("utf-8-sig", "cp1252"):
        with suppress(UnicodeDecodeError):
            return path.read_bytes().decode(encoding)
    raise ValueError(f"{path}: neither UTF-8 nor Windows-1252; convert the file to UTF-8")


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """The lines that are not blank, with their locations."""
    text = _decoded(path)
    if not text.strip():
        raise ValueError(f"{path} has no rows; download the file again, or pass another")
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield f"{path}, line {number}", line.strip()


def _paraphrases(path: Path, classes: Sequence[str]) -> Rows:
    return _table(path, classes, {"first": ("sentence1", "#1 String"), "second": ("sentence2", "#2 String")}, "Quality")


def _table(path: Path, classes: Sequence[str], columns: Mapping[str, Sequence[str]], label: str) -> Rows:
    return read_table(path, columns, ("label", label), conversion(classes, None))


def _entailment(path: Path, classes: Sequence[str]) -> Rows:
    return read_sick(path, "entailment", classes=classes)


# --------------------------------------------------------------------------------------------------------- tasks


def _tables(name: str, *others: str) -> tuple[str, ...]:
    return (f"{name}.tsv", f"senteval/{name}.tsv", *others)


def _parts(name: str, **others: str) -> dict[str, tuple[str, ...]]:
    return {split: _tables(f"{name}_{split}", other) for split, other in others.items()}


def _sentiment(name: str, folder: str, classes: int) -> _Source:
    files = {split: f"SST/{folder}/sentiment-{split}" for split in ("train", "dev", "test")}
    return _Source(tuple(map(str, range(classes))), _parts(name, **files), _sentences)


def _inference(**names: Sequence[str]) -> _Source:
    """The published files of a data set, or tables in the folder ``nli``."""
    endings = {split: [f"{name}{end}" for name in given for end in _ENDINGS] for split, given in names.items()}
    return _Source(CLASSES, endings, read_nli)


_ENDINGS = (".tsv", ".jsonl", ".txt")
_BINARY = ("0", "1")
_SICK = ("train", "SICK_train.txt"), ("dev", "SICK_trial.txt"), ("test", "SICK_test_annotated.txt")
_SOURCES = {
    "MR": _Source(_BINARY, {"all": _tables("MR", "MR/rt-polarity.pos")}, _sentences),
    "CR": _Source(_BINARY, {"all": _tables("CR", "CR/custrev.pos")}, _sentences),
    "SUBJ": _Source(_BINARY, {"all": _tables("SUBJ", "SUBJ/subj.subjective")}, _sentences),
    "MPQA": _Source(_BINARY, {"all": _tables("MPQA", "MPQA/mpqa.pos")}, _sentences),
    "SST2": _sentiment("SST2", "binary", 2),
    "SST5": _sentiment("SST5", "fine", 5),
    "TREC": _Source(
        ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"),
        _parts("TREC", train="TREC/train_5500.label", test="TREC/TREC_10.label"),
        _sentences,
    ),
    "MRPC": _Source(
        _BINARY,
        _parts("MRPC", train="MRPC/msr_paraphrase_train.txt", test="MRPC/msr_paraphrase_test.txt"),
        _paraphrases,
    ),
    "SICK-E": _Source(CLASSES, {split: (f"sick/{split}.tsv", f"SICK/{name}") for split, name in _SICK}, _entailment),
    "SNLI": _inference(
        train=("snli_1.0/snli_1.0_train", "nli/snli_train", "nli/snli_train_subset"),
        dev=("snli_1.0/snli_1.0_dev", "nli/snli_dev"),
        test=("snli_1.0/snli_1.0_test", "nli/snli_test"),
    ),
    "MNLI": _inference(
        train=("multinli_1.0/multinli_1.0_train", "nli/mnli_train", "nli/mnli_train_ptbtok"),
        test=("multinli_1.0/multinli_1.0_dev_matched", "nli/mnli_dev_matched"),
    ),
}
