"""Model folders: saved completely or not at all, and readable for other tools.

Callers use ``save``, ``verify`` and ``push_to_hub`` of ``sbert.SentenceEncoder``, and ``save`` of
``sbert.CrossEncoder``; this package holds the file format. Every name, key and file name of foreign formats stands
here.

>>> import tempfile
>>> from sbert import SentenceEncoder
>>> model = SentenceEncoder()
>>> folder = tempfile.mkdtemp()
>>> model.save(f"{folder}/copy")
>>> copy = SentenceEncoder(f"{folder}/copy")
>>> bool((copy.encode("A cat sleeps.") == model.encode("A cat sleeps.")).all())
True

The folder is one that sentence-transformers 2.3 to 6, and the tools around it, read. ``save`` is atomic: after a crash
or a power failure the old folder or the new one is there, and never a mixture.

## Does this machine give the same vectors?

A saved folder contains a few texts with their vectors. ``verify`` encodes the texts again and compares, so a changed
library, a damaged file or another processor is noticed:

>>> bool(copy.verify())
True

## Share a model

``model.push_to_hub("me/copy")`` uploads the folder with a short model card.

## Pitfalls

- A class of your own must be registered before the folder is loaded: import the file with its ``@register_module``
  (see ``sbert.modules``). No code is ever loaded from a model folder.
- ``save`` refuses to replace a folder that contains files of other programs.
- Weights that are pickled (``pytorch_model.bin``) are read as numbers only; save such a model again to get
  ``model.safetensors``.
"""
