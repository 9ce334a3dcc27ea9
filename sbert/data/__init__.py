"""Texts and training rows from files, and readers of the field's data sets."""

from sbert.data.nli import read_nli, read_triplets
from sbert.data.records import FORMATS
from sbert.data.retrieval import Retrieval, read_retrieval
from sbert.data.rows import read_classes, read_rows
from sbert.data.sts import read_sick, read_sts, read_sts_year
from sbert.data.texts import read_texts
from sbert.data.transfer import TransferTask, read_transfer

__all__ = [
    "FORMATS",
    "Retrieval",
    "TransferTask",
    "read_classes",
    "read_nli",
    "read_retrieval",
    "read_rows",
    "read_sick",
    "read_sts",
    "read_sts_year",
    "read_texts",
    "read_transfer",
    "read_triplets",
]
