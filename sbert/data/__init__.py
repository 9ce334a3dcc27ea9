"""Texts and training rows from files."""

from sbert.data.records import FORMATS
from sbert.data.rows import read_classes, read_rows
from sbert.data.texts import read_texts

__all__ = ["FORMATS", "read_classes", "read_rows", "read_texts"]
