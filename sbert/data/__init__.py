r"""Texts and training rows from files, and readers of the field's data sets. The guide is ``guide.md`` in this folder.

| reader | data |
|---|---|
| ``Texts``, ``read_texts`` | texts for ``encode`` from files, folders or data sets of any size, and their columns |
| ``read_rows`` | rows that a ``sbert.Trainer`` takes, from TSV, CSV, JSONL, JSON and Parquet files |
| ``read_sts``, ``read_sts_year``, ``read_sick`` | STS benchmark and KorSTS; a year of STS12 to STS16 by sub-set; SICK |
| ``read_nli``, ``read_triplets`` | SNLI, MultiNLI, KorNLI, SICK's classes; triplets of AllNLI and of Wikipedia |
| ``read_retrieval`` | a folder in BEIR's layout: ``RetrievalEvaluator(*read_retrieval(folder))`` |
| ``read_hub_retrieval`` | the data sets of NanoBEIR and of repositories like it, with the candidates that BM25 found |

>>> import tempfile
>>> from pathlib import Path
>>> from sbert.data import read_texts
>>> with tempfile.TemporaryDirectory() as folder:
...     _ = Path(folder, "notes.csv").write_text("id,text\n7,A cat sleeps.\n8,Taxes rise.\n")
...     list(read_texts(f"{folder}/notes.csv", column="text"))
['A cat sleeps.', 'Taxes rise.']
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
