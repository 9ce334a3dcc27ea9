r"""Texts and training rows from files, and readers of the field's data sets.

``Texts`` reads texts for ``encode`` from files, folders or a data set of any size, with the columns that go with them;
``read_texts`` is its short form. ``read_rows`` reads rows that a ``sbert.Trainer`` takes, from TSV, CSV, JSONL, JSON
and Parquet files. The other readers know the layout in which the field's data sets are published:

| reader | data |
|---|---|
| ``read_sts``, ``read_sts_year``, ``read_sick`` | STS benchmark and KorSTS; a year of STS12 to STS16 by sub-set; SICK |
| ``read_nli``, ``read_triplets`` | SNLI, MultiNLI, KorNLI; the triplets of AllNLI and of Wikipedia's sections |
| ``read_retrieval`` | a folder in BEIR's layout: ``RetrievalEvaluator(*read_retrieval(folder))`` |
| ``read_hub_retrieval`` | the data sets of NanoBEIR and of repositories like it, with the candidates that BM25 found |

They return rows with the names that losses expect (``first``, ``second``, ``label``), and scores from 0 to 1:

>>> import tempfile
>>> from pathlib import Path
>>> from sbert.data import read_sts
>>> with tempfile.TemporaryDirectory() as folder:
...     _ = Path(folder, "test.tsv").write_text("score\tsentence1\tsentence2\n5\tA cat.\tThe cat.\n0\tA cat.\tTaxes.\n")
...     rows = list(read_sts(f"{folder}/test.tsv"))
>>> rows[0]
{'first': 'A cat.', 'second': 'The cat.', 'label': 1.0}

A data frame of pandas, polars or Arrow needs no reader: the trainer takes it as it is.

## Pitfalls

- The ending of the file says its format, unless it is given. The readers of data sets look at the first line of
  ``.csv`` and ``.txt`` files, which some publishers fill with tab-separated values.
- A quotation mark in a sentence of a TSV file is a character, not the beginning of a quoted field.
- A line that does not fit is an error with its number. Nothing is skipped.
"""

from sbert.data.file_formats import FILE_FORMATS
from sbert.data.retrieval_data import HubRetrieval, Retrieval, read_hub_retrieval, read_retrieval
from sbert.data.rows import read_classes, read_rows
from sbert.data.sentence_pairs import read_nli, read_sick, read_sts, read_sts_year, read_triplets
from sbert.data.text_source import Texts, read_texts
from sbert.inputs.arguments import publish

__all__ = [
    "FILE_FORMATS",
    "HubRetrieval",
    "Retrieval",
    "Texts",
    "read_classes",
    "read_hub_retrieval",
    "read_nli",
    "read_retrieval",
    "read_rows",
    "read_sick",
    "read_sts",
    "read_sts_year",
    "read_texts",
    "read_triplets",
]

publish(__name__)
