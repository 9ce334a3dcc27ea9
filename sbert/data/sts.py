"""Readers of semantic textual similarity (STS) data: the STS benchmark, STS 2012 to 2016, SICK."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal

from sbert.data.files import Name
from sbert.data.labels import Convert, conversion
from sbert.data.nli import CLASSES
from sbert.data.rows import row_of
from sbert.data.tables import cells, read_table
from sbert.data.texts import read_texts

# Keys: the parameter names of the losses of two sentences. Values: column names in files.
_COLUMNS = {
    "first": ("sentence1", "sentence_A", "s1", "text1", "first"),
    "second": ("sentence2", "sentence_B", "s2", "text2", "second"),
}
_SCORE = ("score", "similarity_score", "label")
_SICK = {
    "relatedness": ("relatedness_score", "relatedness"),
    "entailment": ("entailment_judgment", "entailment_label", "entailment"),
}
# The release of 2017 has no header; its columns are genre, file, year, id, score, and both sentences.
_PLACES = (5, 6, 4)
# The ranges of the human scores.
_STS_SCALE, _SICK_SCALE = (0, 5), (1, 5)

Scale = tuple[float, float] | Literal["auto"] | None


def read_sts(path: Name, scale: Scale = "auto", *, split: str | None = None) -> list[dict[str, Any]]:
    r"""Read sentence pairs with human similarity scores: the STS benchmark, KorSTS, and similar files.

    The rows can be passed to ``CosineSimilarityLoss``, ``CoSENTLoss``, ``AnglELoss`` and ``CrossEncoder.fit``.

    Args:
        path: A file of the benchmark's release of 2017, such as ``sts-test.csv``; or TSV, CSV or JSONL with columns
            sentence1 and sentence2 (or s1 and s2), and score, similarity_score or label. Case, underscores and spaces
            in column names do not matter.
        scale: Lowest and highest score, which are mapped to 0 and 1. ``"auto"`` is (0, 5), the scale of these data
            sets; None keeps the scores of the file.
        split: The split to read, if the file has a column named split. Default: all rows.

    Returns:
        Rows with ``first``, ``second`` and ``label``, 0 to 1.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If a column is missing, or a line is invalid, with the line number; or if ``scale`` is ``"auto"``
            and no score is above 1: then the scores may already be scaled.

    References:
        Cer et al., 2017. https://aclanthology.org/S17-2001
        Ham et al., 2020 (KorSTS). https://arxiv.org/abs/2004.03289

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "sts-dev.csv"
        ...     _ = file.write_text('news\tx\t2017\t7\t2.500\tA 5" nail.\tA nail.\n', encoding="utf-8")
        ...     read_sts(file)
        [{'first': 'A 5" nail.', 'second': 'A nail.', 'label': 0.5}]
    """
    rows = _scored(path, scale, split)
    _check_auto(path, scale, rows)
    return rows


def read_sts_year(folder: Name, scale: Scale = "auto") -> dict[str, list[dict[str, Any]]]:
    r"""Read the subsets of one year's shared task, STS12 to STS16.

    Pairs without a gold score are left out. So is the subset SMT of 2013, as in published results: its text is not
    free. The prefix ``surprise`` of two subset names of 2012 is removed.

    Args:
        folder: With ``STS.input.NAME.txt`` and ``STS.gs.NAME.txt``, as in SentEval; or with ``NAME.tsv`` files in the
            form of ``read_sts``.
        scale: As in ``read_sts``.

    Returns:
        For each subset name, rows as from ``read_sts``.

    Raises:
        FileNotFoundError: If the folder, its files or the gold scores do not exist.
        ValueError: If a line is invalid, with the line number; or if the numbers of pairs and gold scores differ.

    References:
        Agirre et al., 2012 to 2016, such as https://aclanthology.org/S16-1081
        Conneau and Kiela, 2018 (SentEval). https://arxiv.org/abs/1803.05449

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = (Path(folder) / "STS.input.images.txt").write_text("A cat.\tA pet.\nA cat.\tA car.\n")
        ...     _ = (Path(folder) / "STS.gs.images.txt").write_text("4.0\n\n")
        ...     read_sts_year(folder)
        {'images': [{'first': 'A cat.', 'second': 'A pet.', 'label': 0.8}]}
    """
    subsets: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(Path(folder).glob("STS.input.*.txt")):
        name = path.name.removeprefix("STS.input.").removesuffix(".txt").removeprefix("surprise.")
        if name != "SMT":
            subsets[name] = _with_gold(path, path.with_name(path.name.replace("input", "gs", 1)), scale)
    if not subsets:
        tables = sorted([*Path(folder).glob("*.tsv"), *Path(folder).glob("*.tsv.gz")])
        named = {path.name.removesuffix(".gz").removesuffix(".tsv"): path for path in tables}
        subsets = {name: _scored(path, scale, drop=("",)) for name, path in named.items() if name != "SMT"}
    if not subsets:
        raise FileNotFoundError(f"{folder} has no STS.input.NAME.txt and no NAME.tsv; pass the folder of one year")
    _check_auto(folder, scale, [row for rows in subsets.values() for row in rows])
    return subsets


def read_sick(
    path: Name,
    label: str = "relatedness",
    scale: Scale = "auto",
    *,
    classes: Sequence[str] = CLASSES,
    split: str | None = None,
) -> list[dict[str, Any]]:
    r"""Read the sentence pairs of SICK with their relatedness or their entailment label.

    Args:
        path: ``SICK_train.txt`` or another file of the release; or TSV, CSV or JSONL with sentence1 or sentence_A, and
            so on.
        label: ``"relatedness"`` or ``"entailment"``.
        scale: Lowest and highest relatedness, which are mapped to 0 and 1. ``"auto"`` is (1, 5), the scale of SICK;
            None keeps the scores of the file.
        classes: The three entailment labels; each is replaced by its index in this sequence.
        split: The split to read, if the file has a column of splits, such as ``"TRIAL"`` in ``SICK.txt``.

    Returns:
        Rows with ``first``, ``second`` and ``label``, 0 to 1 for relatedness.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If ``label`` is unknown; or if a line is invalid, with the line number.

    References:
        Marelli et al., 2014. https://aclanthology.org/L14-1314

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "SICK_trial.txt"
        ...     _ = file.write_text(
        ...         "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
        ...         "1\tA cat sleeps\tNo cat sleeps\t3.5\tCONTRADICTION\n", encoding="utf-8")
        ...     read_sick(file)[0]["label"], read_sick(file, "entailment")[0]["label"]
        (0.625, 0)
    """
    if label not in _SICK:
        raise ValueError(f"label={label!r} is unknown; pass one of {', '.join(map(repr, _SICK))}")
    if label == "relatedness":
        return read_table(path, _COLUMNS, _SICK[label], _number(scale, _SICK_SCALE), split=split)
    if scale not in ("auto", None):
        raise ValueError("scale= applies to relatedness; entailment has classes, so leave scale= out")
    index = conversion([word.lower() for word in classes], None)
    return read_table(path, _COLUMNS, _SICK[label], lambda where, value: index(where, str(value).lower()), split=split)


def _scored(path: Name, scale: Scale, split: str | None = None, drop: Collection[str] = ()) -> list[dict[str, Any]]:
    return read_table(path, _COLUMNS, _SCORE, _number(scale), places=_PLACES, split=split, drop=drop)


def _check_auto(path: Name, scale: Scale, rows: list[dict[str, Any]]) -> None:
    """Raise a ValueError if the scores may already be scaled to 0 to 1; "auto" would divide them by 5 again."""
    if scale == "auto" and rows and max(row["label"] for row in rows) <= 1 / _STS_SCALE[1]:
        raise ValueError(f"{path} has no score above 1; pass scale=(0, 1) if scores are 0 to 1, or else scale=(0, 5)")


def _number(scale: Scale, known: tuple[float, float] = _STS_SCALE) -> Convert:
    """The function that converts a score to a float; ``"auto"`` is the known scale of the data set."""
    if isinstance(scale, str) and scale != "auto":
        raise ValueError(f"scale={scale!r} is unknown; pass 'auto', two numbers such as (0, 5), or None")
    convert = conversion(None, known if scale == "auto" else scale)

    def number(where: str, value: Any) -> float:
        if isinstance(value, list):
            raise ValueError(f"{where}: the score is a list; make it one number")
        return float(convert(where, value))

    return number


def _with_gold(path: Path, gold: Path, scale: Scale) -> list[dict[str, Any]]:
    """The pairs of one file with the scores of another, line by line; pairs without a score are left out."""
    if not gold.exists():
        raise FileNotFoundError(f"{gold} does not exist, with the scores of {path.name}; put it there")
    pairs = list(cells(path, (("sentence1",), ("sentence2",)), places=(0, 1)))
    scores = list(read_texts(gold, file_format="text"))
    if len(pairs) != len(scores):
        raise ValueError(f"{path} has {len(pairs)} lines, and {gold.name} {len(scores)}; download both files again")
    convert, columns = _number(scale), list(_COLUMNS)
    return [
        {**row_of(where, columns, pair), "label": convert(f"{gold}, line {number}", score)}
        for number, ((where, pair), score) in enumerate(zip(pairs, scores, strict=True), start=1)
        if score.strip()
    ]
