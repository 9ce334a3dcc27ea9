"""The published figures of the Sentence-BERT paper, and the layout of its tables."""

from typing import Any

STS = ["STS12", "STS13", "STS14", "STS15", "STS16", "STSb", "SICK-R"]
TRANSFER = ["MR", "CR", "SUBJ", "MPQA", "SST", "TREC", "MRPC"]
ARGUMENTS, SECTIONS = ["Pearson", "Spearman"], ["accuracy"]
WAYS, DEVICES = ["in input order", "smart batching"], {"cpu": "CPU", "cuda": "GPU"}
SPEEDS = [f"{way}, {device}" for device in DEVICES.values() for way in WAYS]
COLUMNS = {1: STS, 2: ["STSb"], 3: ARGUMENTS, 4: SECTIONS, 5: TRANSFER, 6: ["NLI", "STSb"], 7: SPEEDS}
TITLES = {
    1: "similarity; Spearman's correlation",
    2: "the STS benchmark, test; Spearman's correlation",
    3: "Argument Facet Similarity; correlations of similarities and scores",
    4: "the sections of Wikipedia's articles; accuracy on triplets",
    5: "transfer; accuracy of a logistic regression",
    6: "ablation, the STS benchmark, dev; Spearman's correlation by what was trained on",
    7: "sentences a second",
}

# Reimers and Gurevych, 2019, https://arxiv.org/abs/1908.10084. Spearman's correlation, and accuracy, in percent.
_PAPER_1 = {
    "Avg. GloVe embeddings": (55.14, 70.66, 59.73, 68.25, 63.66, 58.02, 53.76),
    "Avg. BERT embeddings": (38.78, 57.98, 57.98, 63.15, 61.06, 46.35, 58.40),
    "BERT CLS-vector": (20.16, 30.01, 20.09, 36.88, 38.08, 16.50, 42.63),
    "InferSent": (52.86, 66.75, 62.15, 72.77, 66.87, 68.03, 65.65),
    "SBERT-NLI-base": (70.97, 76.53, 73.19, 79.09, 74.30, 77.03, 72.91),
    "SBERT-NLI-large": (72.27, 78.46, 74.90, 80.99, 76.25, 79.23, 73.75),
    "SRoBERTa-NLI-base": (71.54, 72.49, 70.80, 78.74, 73.69, 77.77, 74.46),
    "SRoBERTa-NLI-large": (74.53, 77.00, 73.18, 81.85, 76.82, 79.10, 74.29),
}
_PAPER_2 = {  # And the deviation over ten seeds.
    **{name: (figures[5],) for name, figures in _PAPER_1.items()},
    "BERT-STSb-base": (84.30, 0.76),
    "BERT-STSb-large": (85.64, 0.81),
    "SBERT-STSb-base": (84.67, 0.19),
    "SBERT-STSb-large": (84.45, 0.43),
    "SRoBERTa-STSb-base": (84.92, 0.34),
    "SRoBERTa-STSb-large": (85.02, 0.76),
    "BERT-NLI-STSb-base": (88.33, 0.19),
    "BERT-NLI-STSb-large": (88.77, 0.46),
    "SBERT-NLI-STSb-base": (85.35, 0.17),
    "SBERT-NLI-STSb-large": (86.10, 0.13),
    "SRoBERTa-NLI-STSb-base": (84.79, 0.38),
    "SRoBERTa-NLI-STSb-large": (86.15, 0.35),
}
_PAPER_3 = {  # Pearson's and Spearman's correlation.
    "Avg. GloVe embeddings": (32.40, 34.00),
    "InferSent": (27.08, 26.63),
    "BERT-AFS-base, 10-fold": (77.20, 74.84),
    "SBERT-AFS-base, 10-fold": (76.57, 74.13),
    "BERT-AFS-large, 10-fold": (78.68, 76.38),
    "SBERT-AFS-large, 10-fold": (77.85, 75.93),
    "BERT-AFS-base, cross-topic": (58.49, 57.23),
    "SBERT-AFS-base, cross-topic": (52.34, 50.65),
    "BERT-AFS-large, cross-topic": (62.02, 60.34),
    "SBERT-AFS-large, cross-topic": (53.82, 53.10),
}
_PAPER_4 = {  # The mean of word vectors is that of Ein Dor et al., 2018.
    "Avg. GloVe embeddings": (65.0,),
    "SBERT-WikiSec-base": (80.42,),
    "SBERT-WikiSec-large": (80.78,),
    "SRoBERTa-WikiSec-base": (79.45,),
    "SRoBERTa-WikiSec-large": (79.73,),
}
_PAPER_5 = {
    "Avg. GloVe embeddings": (77.25, 78.30, 91.17, 87.85, 80.18, 83.0, 72.87),
    "Avg. fastText embeddings": (77.96, 79.23, 91.68, 87.81, 82.15, 83.6, 74.49),
    "Avg. BERT embeddings": (78.66, 86.25, 94.37, 88.66, 84.40, 92.8, 69.45),
    "BERT CLS-vector": (78.68, 84.85, 94.21, 88.23, 84.13, 91.4, 71.13),
    "InferSent": (81.57, 86.54, 92.50, 90.38, 84.18, 88.2, 75.77),
    "SBERT-NLI-base": (83.64, 89.43, 94.39, 89.86, 88.96, 89.6, 76.00),
    "SBERT-NLI-large": (84.88, 90.07, 94.52, 90.33, 90.66, 87.4, 75.94),
}
_PAPER_6 = {  # BERT-base on the dev set of the STS benchmark: trained on NLI, and on the STS benchmark.
    "MEAN": (80.78, 87.44),
    "MAX": (79.07, 69.92),
    "CLS": (79.80, 86.62),
    "(u, v)": (66.04,),
    "(|u-v|)": (69.78,),
    "(u*v)": (70.54,),
    "(|u-v|, u*v)": (78.37,),
    "(u, v, u*v)": (77.44,),
    "(u, v, |u-v|)": (80.78,),
    "(u, v, |u-v|, u*v)": (80.44,),
}
_PAPER_7 = {  # Sentences a second on a CPU (i7-5820K) and on a GPU (V100); SBERT-base without smart batching, and with.
    "Avg. GloVe embeddings": {"cpu": (6469,)},
    "InferSent": {"cpu": (137,), "cuda": (1876,)},
    "SBERT-base": {"cpu": (44, 83), "cuda": (1378, 2042)},
}

# Rows of the paper that are not measured here, by table: systems of other papers.
_ENCODER = "Universal Sentence Encoder"
ABSENT = {
    1: [_ENCODER],
    2: [_ENCODER],
    3: ["tf-idf", "SVR"],
    4: ["Skip-Thoughts-CS", "the triplet network of Ein Dor et al."],
    5: [_ENCODER],
    7: [_ENCODER],
}

# The groups of a table's rows, by what their systems were trained on.
GROUPS = {
    2: {
        "Not trained for STS": (),
        "Trained on the STS benchmark": ("BERT-STSb", "SBERT-STSb"),
        "Trained on NLI and the STS benchmark": ("BERT-NLI-STSb", "SBERT-NLI-STSb"),
    },
    3: {
        "Not trained on arguments": (),
        "10-fold cross-validation": ("BERT-AFS, 10-fold", "SBERT-AFS, 10-fold"),
        "Trained on two topics, measured on the third": ("BERT-AFS, cross-topic", "SBERT-AFS, cross-topic"),
    },
}

# Systems without a backbone of one of several kinds and sizes.
_WITHOUT_A_SIZE = {"Avg. GloVe embeddings", "Avg. fastText embeddings", "InferSent"}

# Our rows, where the paper's has another name.
_BESIDE = {
    "BiLSTM-max, NLI": "InferSent",
    "BiLSTM-max": "InferSent",
    "SBERT": "SBERT-base",
}


def group(table: int, row: str) -> str:
    """The group of a row; the first group has all rows that no other names."""
    groups = GROUPS.get(table, {"": ()})
    return next((name for name, rows in groups.items() if row in rows), next(iter(groups)))


def paper(table: int, row: str, kind: str = "SBERT", size: str = "base") -> dict[str, Any]:
    """The published figures of a row, by column: a mean, or a mean and its standard deviation.

    Args:
        table: Its number.
        row: Its name here.
        kind: ``"SBERT"`` or ``"SRoBERTa"``, by the backbone.
        size: ``"base"`` or ``"large"``.
    """
    name = _BESIDE.get(row, row)
    of_sizes = name.startswith(("SBERT-", "BERT-")) and table in (1, 2, 3, 4, 5)
    if (kind, size) != ("SBERT", "base") and not of_sizes and name not in _WITHOUT_A_SIZE:
        return {}  # Measured with BERT-base alone.
    if table == 7:
        found = _PAPER_7.get(name, {})
        return {
            f"{way}, {DEVICES[device]}": (figure,)
            for device, figures in found.items()
            for way, figure in zip(WAYS, figures, strict=False)
        }
    if name.startswith(("SBERT-", "BERT-")):
        # The S is for a sentence's vector; a RoBERTa that reads both sentences stands in no table.
        system, comma, protocol = name.partition(",")
        name = f"{system.replace('SBERT', kind)}-{size}{comma}{protocol}" if name[0] == "S" or kind == "SBERT" else ""
    tables = {1: _PAPER_1, 2: _PAPER_2, 3: _PAPER_3, 4: _PAPER_4, 5: _PAPER_5, 6: _PAPER_6}
    figures = tables[table].get(name, ())
    if table == 2:
        return {"STSb": figures} if figures else {}
    return {column: (figure,) for column, figure in zip(COLUMNS[table], figures, strict=False)}
