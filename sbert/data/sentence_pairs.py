"""Readers of pairs and triplets: semantic textual similarity (STS), SICK, natural language inference (NLI)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal

from sbert.data.file_formats import Name
from sbert.data.rows import Convert, check_rows, make_converter, to_word
from sbert.data.tables import read_cells, read_labelled
from sbert.data.text_source import read_texts

LabelledRows = list[dict[str, Any]]
Scale = tuple[float, float] | Literal["auto"] | None

CLASSES = ("contradiction", "entailment", "neutral")
# Keys: the parameter names of the losses. Values: column names in files.
_PAIR = {
    "first": ("sentence1", "sentence_A", "s1", "text1", "premise", "first"),
    "second": ("sentence2", "sentence_B", "s2", "text2", "hypothesis", "second"),
}
_TRIPLET = {
    "anchor": ("anchor", "sent0", "query", "sentence1"),
    "positive": ("positive", "sent1", "pos", "sentence2"),
    "negative": ("negative", "hard_neg", "neg", "sentence3"),
}
_SCORE = ("score", "similarity_score", "label")
_CLASS = ("gold_label", "label", "gold", "entailment_judgment", "entailment_label", "entailment")
_RELATEDNESS = ("relatedness_score", "relatedness")
# The release of 2017 has no header; its columns are genre, file, year, id, score, and both sentences.
_RELEASE = (5, 6, 4)
# The ranges of the human scores.
_STS_SCALE, _SICK_SCALE = (0, 5), (1, 5)


def read_sts(path: Name, scale: Scale = "auto", *, split: str | None = None) -> LabelledRows:
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
        >>> from pathlib import Path
        >>> from sbert.data import read_sts
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "sts-dev.csv"
        ...     _ = file.write_text('news\tx\t2017\t7\t2.500\tA 5" nail.\tA nail.\n', encoding="utf-8")
        ...     read_sts(file)
        [{'first': 'A 5" nail.', 'second': 'A nail.', 'label': 0.5}]
    """
    rows = _read_scored(path, scale, split)
    _check_auto(path, scale, rows)
    return rows


def read_sts_year(folder: Name, scale: Scale = "auto") -> dict[str, LabelledRows]:
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
        >>> from pathlib import Path
        >>> from sbert.data import read_sts_year
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = (Path(folder) / "STS.input.images.txt").write_text("A cat.\tA pet.\nA cat.\tA car.\n")
        ...     _ = (Path(folder) / "STS.gs.images.txt").write_text("4.0\n\n")
        ...     read_sts_year(folder)
        {'images': [{'first': 'A cat.', 'second': 'A pet.', 'label': 0.8}]}
    """
    subsets: dict[str, LabelledRows] = {}
    for path in sorted(Path(folder).glob("STS.input.*.txt")):
        name = path.name.removeprefix("STS.input.").removesuffix(".txt").removeprefix("surprise.")
        if name != "SMT":
            subsets[name] = _read_gold(path, path.with_name(path.name.replace("input", "gs", 1)), scale)
    if not subsets:
        tables = sorted([*Path(folder).glob("*.tsv"), *Path(folder).glob("*.tsv.gz")])
        paths = {path.name.removesuffix(".gz").removesuffix(".tsv"): path for path in tables}
        subsets = {name: _read_scored(path, scale, drop=("",)) for name, path in paths.items() if name != "SMT"}
    if not subsets:
        raise FileNotFoundError(f"{folder} has no STS.input.NAME.txt and no NAME.tsv; pass the folder of one year")
    _check_auto(folder, scale, [row for rows in subsets.values() for row in rows])
    return subsets


def read_sick(path: Name, scale: Scale = "auto", *, split: str | None = None) -> LabelledRows:
    r"""Read the sentence pairs of SICK with their relatedness; ``read_nli`` reads them with their entailment label.

    Args:
        path: ``SICK_train.txt`` or another file of the release; or TSV, CSV or JSONL with sentence1 or sentence_A, and
            so on.
        scale: Lowest and highest relatedness, which are mapped to 0 and 1. ``"auto"`` is (1, 5), the scale of SICK;
            None keeps the scores of the file.
        split: The split to read, if the file has a column of splits, such as ``"TRIAL"`` in ``SICK.txt``.

    Returns:
        Rows with ``first``, ``second`` and ``label``, 0 to 1.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If a column is missing, or a line is invalid; the message gives the line number.

    References:
        Marelli et al., 2014. https://aclanthology.org/L14-1314

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from sbert.data import read_nli, read_sick
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "SICK_trial.txt"
        ...     _ = file.write_text(
        ...         "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
        ...         "1\tA cat sleeps\tNo cat sleeps\t3.5\tCONTRADICTION\n", encoding="utf-8")
        ...     [row["label"] for row in read_sick(file)]
        ...     [row["label"] for row in read_nli(file, ("CONTRADICTION", "ENTAILMENT", "NEUTRAL"))]
        [0.625]
        [0]
    """
    return read_labelled(path, _PAIR, _RELATEDNESS, _make_converter(scale, _SICK_SCALE), split=split)


def read_nli(path: Name, classes: Sequence[str] = CLASSES, *, split: str | None = None) -> LabelledRows:
    r"""Read premises, hypotheses and their labels: SNLI, MultiNLI, KorNLI, XNLI, SICK.

    The rows can be passed to ``SoftmaxLoss``, and to ``CrossEncoder.fit`` with three classes. Rows without an agreed
    label, marked ``-`` (or ``-1`` in files with numeric labels), are left out.

    Args:
        path: A file of the releases of SNLI or MultiNLI (``.jsonl`` or ``.txt``) or of KorNLI; or TSV, CSV or JSONL
            with premise or sentence1, hypothesis or sentence2, and label or gold_label; or a file of SICK.
        classes: The labels; each is replaced by its index in this sequence. The release of SICK has them in
            capitals.
        split: The split to read, if the file has a column named split. Default: all rows.

    Returns:
        Rows with ``first`` (the premise), ``second`` (the hypothesis) and ``label``.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If a column is missing, or a line is invalid; the message gives the line number.

    References:
        Bowman et al., 2015 (SNLI). https://arxiv.org/abs/1508.05326
        Williams et al., 2018 (MultiNLI). https://arxiv.org/abs/1704.05426

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from sbert.data import read_nli
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "snli_1.0_dev.jsonl"
        ...     _ = file.write_text('{"gold_label": "neutral", "sentence1": "A cat.", "sentence2": "A black cat."}\n')
        ...     read_nli(file)
        [{'first': 'A cat.', 'second': 'A black cat.', 'label': 2}]
    """
    drop = {"-", "-1"} - {to_word(word) for word in classes}
    return read_labelled(path, _PAIR, _CLASS, make_converter(classes, None), split=split, drop=drop)


def read_triplets(path: Name, *, split: str | None = None) -> LabelledRows:
    r"""Read triplets of an anchor, a positive and a negative, such as those of AllNLI or of Wikipedia's sections.

    In AllNLI, the anchor is a premise; the positive is a hypothesis that it entails, the negative one that it
    contradicts. The rows can be passed to ``TripletLoss`` and ``MultipleNegativesRankingLoss``.

    Args:
        path: TSV, CSV or JSONL with anchor, positive and negative; with sent0, sent1 and hard_neg, as in SimCSE; with
            Sentence1 to Sentence3, as wikipedia-sections-triplets; or JSONL with an array of three texts per line.
        split: The split to read, if the file has a column named split. Default: all rows.

    Returns:
        Rows with ``anchor``, ``positive`` and ``negative``.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If a column is missing, or a line is invalid; the message gives the line number.

    References:
        Gao et al., 2021, section 4. https://arxiv.org/abs/2104.08821
        Ein Dor et al., 2018 (Wikipedia's sections). https://aclanthology.org/P18-2009

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from sbert.data import read_triplets
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "AllNLI.jsonl"
        ...     _ = file.write_text('["A cat sleeps.", "A cat is resting.", "A cat runs."]\n')
        ...     read_triplets(file)
        [{'anchor': 'A cat sleeps.', 'positive': 'A cat is resting.', 'negative': 'A cat runs.'}]
    """
    return read_labelled(path, _TRIPLET, positions=(0, 1, 2), split=split)


def _read_scored(path: Name, scale: Scale, split: str | None = None, drop: Collection[str] = ()) -> LabelledRows:
    return read_labelled(path, _PAIR, _SCORE, _make_converter(scale), positions=_RELEASE, split=split, drop=drop)


def _check_auto(path: Name, scale: Scale, rows: LabelledRows) -> None:
    """Raise a ValueError if the scores may already be scaled to 0 to 1; "auto" would divide them by 5 again."""
    if scale == "auto" and rows and max(row["label"] for row in rows) <= 1 / _STS_SCALE[1]:
        raise ValueError(f"{path} has no score above 1; pass scale=(0, 1) if scores are 0 to 1, or else scale=(0, 5)")


def _make_converter(scale: Scale, auto: tuple[float, float] = _STS_SCALE) -> Convert:
    """The function that converts a score to a number; ``"auto"`` is the known scale of the data set."""
    return make_converter(None, auto if scale == "auto" else scale)


def _read_gold(path: Path, gold: Path, scale: Scale) -> LabelledRows:
    """The pairs of one file with the scores of another, line by line; pairs without a score are left out."""
    pairs = list(read_cells(path, (("sentence1",), ("sentence2",)), positions=(0, 1)))
    scores = list(read_texts(gold, file_format="text"))
    if len(pairs) != len(scores):
        raise ValueError(f"{path} has {len(pairs)} lines, and {gold.name} {len(scores)}; download both files again")
    cells = [
        (f"{path} and {gold.name}, line {number}", [*pair, score])
        for number, ((_, pair), score) in enumerate(zip(pairs, scores, strict=True), start=1)
        if score.strip()
    ]
    return list(check_rows(cells, list(_PAIR), _make_converter(scale)))
