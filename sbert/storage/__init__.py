"""Files and folders: read completely, written completely or not at all, fetched from the hub; and locks of processes.

Model folders come from strangers, and disks and machines fail. So every reader checks sizes before it allocates memory,
runs no code from a file, and names the file in its errors; every writer writes beside the target and replaces it in one
step (``sbert.storage.atomic``).

>>> import tempfile
>>> from pathlib import Path
>>> from sbert.storage.atomic import write_text
>>> with tempfile.TemporaryDirectory() as folder:
...     write_text(Path(folder, "note.txt"), "complete")
...     Path(folder, "note.txt").read_text()
'complete'
"""
