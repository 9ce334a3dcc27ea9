"""Readers of classification tasks: those of SentEval, and inference with all its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sbert.data.nli import CLASSES, read_nli
from sbert.data.records import Name
from sbert.data.rows import conversion, row_of
from sbert.data.sts import read_sick
from sbert.data.tables import check_folder, find, located, read_table

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class TransferTask:
    """Texts, or pairs of texts, and their classes.

    Args:
        name: Of the task.
        classes: Words for the labels 0, 1 and so on.
        splits: Rows as a ``Trainer`` takes them, by ``"train"``, perhaps ``"dev"``, and ``"test"``; or by ``"all"``
            where nobody has split them, and one measures by cross-validation.

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
    """Where a task's parts may be, and how they are read.

    Args:
        classes: Words for the labels.
        splits: By the name of the part, paths in the folder, one of which is there.
        read: Makes rows of a file.
    """

    classes: tuple[str, ...]
    splits: Mapping[str, Sequence[str]]
    read: Callable[[Path, Sequence[str]], Rows]


def read_transfer(folder: Name, task: str) -> TransferTask:
    r"""A task that vectors are judged by: how well a simple classifier of them does.

    Of SentEval's tasks: MR, CR, SUBJ, MPQA, SST2, SST5, TREC, MRPC and SICK-E; beside them SNLI, and MNLI, whose
    matched development part is the test, as the test's labels are not published.

    Args:
        folder: The ``downstream`` folder of SentEval, with ``MR/rt-polarity.pos`` and so on; or one with a table a
            task (``MR.tsv`` with columns label and text) or a part (``TREC_train.tsv`` with coarse and text,
            ``MRPC_test.tsv`` with label, sentence1 and sentence2), in it or in its folder ``senteval``. Inference is
            in folders of its own: ``SICK`` or ``sick``, ``snli_1.0``, ``multinli_1.0`` or ``nli``.
        task: Its name.

    Raises:
        FileNotFoundError: If a file is not there, saying what it may be called.
        ValueError: If the task is unknown; or if a line does not fit, with its number.

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
    """The tasks of which a folder has every part.

    Raises:
        FileNotFoundError: If there is no such folder.
    """
    check_folder(folder)
    return [
        name for name, source in _SOURCES.items() if all(located(folder, names) for names in source.splits.values())
    ]


# --------------------------------------------------------------------------------------------------------- files

_OPPOSITES = {".pos": ".neg", ".subjective": ".objective"}


def _sentences(path: Path, classes: Sequence[str]) -> Rows:
    """Sentences with a label: in a table, or in one of SentEval's three ways."""
    if path.suffix in _OPPOSITES:  # One sentence a line, and one file a class.
        other = path.with_suffix(_OPPOSITES[path.suffix])
        return [
            {"sentence": text, "label": label} for label, file in ((1, path), (0, other)) for _, text in _lines(file)
        ]
    convert = conversion(classes, None)
    if path.suffix == ".label":  # NUM:dist How far is it?
        cells = [(where, [line.partition(" ")[2], line.partition(":")[0]]) for where, line in _lines(path)]
    elif path.name.startswith("sentiment-"):  # The sentence, a tab, the label.
        cells = [(where, [*line.rpartition("\t")[::2]]) for where, line in _lines(path)]
    else:
        return read_table(path, {"sentence": ("sentence", "text")}, ("label", "coarse"), convert)
    return [row_of(where, ["sentence"], cell, convert) for where, cell in cells]


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """The lines that are not blank, and where they stand; some of the authors did not write UTF-8."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; put it there, beside its like")
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        try:
            text = raw.decode("cp1252")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: neither UTF-8 nor Windows-1252; convert the file to UTF-8") from error
    if not text.strip():
        raise ValueError(f"{path} has no rows; get the file again, or name another")
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield f"{path}, line {number}", line.strip()


def _paraphrases(path: Path, classes: Sequence[str]) -> Rows:
    columns = {"first": ("sentence1", "#1 String"), "second": ("sentence2", "#2 String")}
    return read_table(path, columns, ("label", "Quality"), conversion(classes, None))


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
    """The published files of a set, or tables in the folder ``nli``."""
    endings = {split: [f"{name}{end}" for name in given for end in _ENDINGS] for split, given in names.items()}
    return _Source(CLASSES, endings, read_nli)


_ENDINGS = (".tsv", ".jsonl", ".txt")
_SOURCES = {
    "MR": _Source(("0", "1"), {"all": _tables("MR", "MR/rt-polarity.pos")}, _sentences),
    "CR": _Source(("0", "1"), {"all": _tables("CR", "CR/custrev.pos")}, _sentences),
    "SUBJ": _Source(("0", "1"), {"all": _tables("SUBJ", "SUBJ/subj.subjective")}, _sentences),
    "MPQA": _Source(("0", "1"), {"all": _tables("MPQA", "MPQA/mpqa.pos")}, _sentences),
    "SST2": _sentiment("SST2", "binary", 2),
    "SST5": _sentiment("SST5", "fine", 5),
    "TREC": _Source(
        ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"),
        _parts("TREC", train="TREC/train_5500.label", test="TREC/TREC_10.label"),
        _sentences,
    ),
    "MRPC": _Source(
        ("0", "1"),
        _parts("MRPC", train="MRPC/msr_paraphrase_train.txt", test="MRPC/msr_paraphrase_test.txt"),
        _paraphrases,
    ),
    "SICK-E": _Source(
        CLASSES,
        {
            "train": ("sick/train.tsv", "SICK/SICK_train.txt"),
            "dev": ("sick/dev.tsv", "SICK/SICK_trial.txt"),
            "test": ("sick/test.tsv", "SICK/SICK_test_annotated.txt"),
        },
        _entailment,
    ),
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
