"""Readers of similarity data: the STS benchmark, the years 2012 to 2016, SICK."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from sbert.data.nli import CLASSES
from sbert.data.records import Name
from sbert.data.rows import Convert, conversion, row_of
from sbert.data.tables import cells, read_table
from sbert.data.texts import read_texts

_FIRST = ("sentence1", "sentence_A", "s1", "text1")
_SECOND = ("sentence2", "sentence_B", "s2", "text2")
_COLUMNS = {"sentence1": _FIRST, "sentence2": _SECOND}
_SCORE = ("score", "similarity_score", "label")
_SICK = {
    "relatedness": ("relatedness_score", "relatedness"),
    "entailment": ("entailment_judgment", "entailment_label", "entailment"),
}
# The release of 2017 has no header: genre, file, year, id, score, and both sentences.
_PLACES = (5, 6, 4)


def read_sts(path: Name, scale: tuple[float, float] | None = None, *, split: str | None = None) -> list[dict[str, Any]]:
    r"""Pairs of sentences and how alike people found them: the STS benchmark, KorSTS, and files of that kind.

    Args:
        path: A file of the benchmark's release of 2017, such as ``sts-test.csv``; or TSV, CSV or JSONL with columns
            sentence1 and sentence2 (or s1 and s2), and score, similarity_score or label.
        scale: Lowest and highest score, such as (0, 5), which become 0 and 1; as in the file where it is not given.
        split: The part to read, of a file with a column split; all of it where it is not given.

    Returns:
        Rows with ``sentence1``, ``sentence2`` and ``label``.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a column is not there, or a line does not fit, with its number.

    References:
        Cer et al., 2017. https://aclanthology.org/S17-2001
        Ham et al., 2020 (KorSTS). https://arxiv.org/abs/2004.03289

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "sts-dev.csv"
        ...     _ = file.write_text('news\tx\t2017\t7\t2.500\tA 5" nail.\tA nail.\n', encoding="utf-8")
        ...     read_sts(file, scale=(0, 5))
        [{'sentence1': 'A 5" nail.', 'sentence2': 'A nail.', 'label': 0.5}]
    """
    return _scored(path, scale, split)


def read_sts_year(folder: Name, scale: tuple[float, float] | None = None) -> dict[str, list[dict[str, Any]]]:
    r"""The sub-sets of a year's shared task, STS12 to STS16.

    Pairs without a gold score are left out, and so is the sub-set SMT of 2013, as in everybody's tables: its text
    is not free. The word ``surprise`` in the names of two sub-sets of 2012 is left out, too.

    Args:
        folder: With ``STS.input.NAME.txt`` and ``STS.gs.NAME.txt``, as SentEval has them; or with ``NAME.tsv``, as
            ``read_sts`` takes it.
        scale: As in ``read_sts``.

    Returns:
        Rows as those of ``read_sts``, by the name of their sub-set.

    Raises:
        FileNotFoundError: If there is no such folder, it has no such files, or gold scores are not there.
        ValueError: If a line does not fit, with its number, or there are not as many pairs as lines of gold scores.

    References:
        Agirre et al., 2012 to 2016, such as https://aclanthology.org/S16-1081
        Conneau and Kiela, 2018 (SentEval). https://arxiv.org/abs/1803.05449

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = (Path(folder) / "STS.input.images.txt").write_text("A cat.\tA pet.\nA cat.\tA car.\n")
        ...     _ = (Path(folder) / "STS.gs.images.txt").write_text("4.2\n\n")
        ...     read_sts_year(folder)
        {'images': [{'sentence1': 'A cat.', 'sentence2': 'A pet.', 'label': 4.2}]}
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(Path(folder).glob("STS.input.*.txt")):
        name = path.name.removeprefix("STS.input.").removesuffix(".txt").removeprefix("surprise.")
        if name != "SMT":
            found[name] = _with_gold(path, path.with_name(path.name.replace("input", "gs", 1)), scale)
    if not found:
        tables = sorted([*Path(folder).glob("*.tsv"), *Path(folder).glob("*.tsv.gz")])
        named = {path.name.removesuffix(".gz").removesuffix(".tsv"): path for path in tables}
        found = {name: _scored(path, scale, drop=("",)) for name, path in named.items() if name != "SMT"}
    if not found:
        raise FileNotFoundError(f"{folder} has no STS.input.NAME.txt and no NAME.tsv; name the folder of one year")
    return found


def read_sick(
    path: Name,
    label: str = "relatedness",
    scale: tuple[float, float] | None = None,
    *,
    classes: Sequence[str] = CLASSES,
    split: str | None = None,
) -> list[dict[str, Any]]:
    r"""Pairs of sentences of SICK, with their relatedness from 1 to 5, or whether one entails the other.

    Args:
        path: ``SICK_train.txt`` and the like, or TSV, CSV or JSONL with sentence1 or sentence_A, and so on.
        label: ``"relatedness"`` or ``"entailment"``.
        scale: Lowest and highest relatedness, such as (1, 5), which become 0 and 1.
        classes: The three words of entailment, each of which becomes its index here.
        split: The part to read of a file that holds all, such as ``"TRIAL"`` of ``SICK.txt``.

    Returns:
        Rows with ``sentence1``, ``sentence2`` and ``label``.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If ``label`` is neither; or if a line does not fit, with its number.

    References:
        Marelli et al., 2014. https://aclanthology.org/L14-1314

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "SICK_trial.txt"
        ...     _ = file.write_text(
        ...         "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
        ...         "1\tA cat sleeps\tNo cat sleeps\t3.6\tCONTRADICTION\n", encoding="utf-8")
        ...     read_sick(file)[0]["label"], read_sick(file, "entailment")[0]["label"]
        (3.6, 0)
    """
    if label not in _SICK:
        raise ValueError(f"label={label!r} is unknown; pass one of {', '.join(map(repr, _SICK))}")
    if label == "relatedness":
        return read_table(path, _COLUMNS, _SICK[label], _number(scale), split=split)
    if scale is not None:
        raise ValueError("scale= makes fractions of the relatedness; entailment has classes")
    index = conversion([word.lower() for word in classes], None)
    return read_table(path, _COLUMNS, _SICK[label], lambda where, value: index(where, str(value).lower()), split=split)


def _scored(
    path: Name, scale: tuple[float, float] | None, split: str | None = None, drop: Collection[str] = ()
) -> list[dict[str, Any]]:
    return read_table(path, _COLUMNS, _SCORE, _number(scale), places=_PLACES, split=split, drop=drop)


def _number(scale: tuple[float, float] | None) -> Convert:
    """What makes one number of a score."""
    convert = conversion(None, scale)

    def number(where: str, value: Any) -> float:
        found = convert(where, value)
        if isinstance(found, list):
            raise ValueError(f"{where}: the score is a list; put one number there")
        return float(found)

    return number


def _with_gold(path: Path, gold: Path, scale: tuple[float, float] | None) -> list[dict[str, Any]]:
    """The pairs of one file that have a score in another, line by line."""
    if not gold.exists():
        raise FileNotFoundError(f"{gold} does not exist, which has the scores of {path.name}; put it there")
    pairs = list(cells(path, (("sentence1",), ("sentence2",)), places=(0, 1)))
    scores = list(read_texts(gold, file_format="text"))
    if len(pairs) != len(scores):
        raise ValueError(f"{path} has {len(pairs)} lines, and {gold.name} {len(scores)}; get both files again")
    convert = _number(scale)
    rows = []
    for number, ((where, pair), score) in enumerate(zip(pairs, scores, strict=True), start=1):
        if score.strip():
            row = row_of(where, list(_COLUMNS), pair)
            rows.append({**row, "label": convert(f"{gold}, line {number}", score)})
    return rows
