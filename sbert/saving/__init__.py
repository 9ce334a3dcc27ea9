"""Model folders: saved completely or not at all, and readable for other tools. The guide is ``guide.md`` here.

Callers use ``save``, ``verify`` and ``push_to_hub`` of ``sbert.SentenceEncoder``, and ``save`` of
``sbert.CrossEncoder``; this package holds the file format. Every name, key and file name of foreign formats stands
here.

>>> import tempfile
>>> from sbert import SentenceEncoder
>>> with tempfile.TemporaryDirectory() as folder:
...     SentenceEncoder().save(f"{folder}/copy")
...     SentenceEncoder(f"{folder}/copy").encode("A cat sleeps.").shape
(256,)
"""
