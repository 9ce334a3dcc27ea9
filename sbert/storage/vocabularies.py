"""Check the token ids in vocabulary files, which a damaged or hostile file may set to any value."""

from __future__ import annotations

import json
import re
from pathlib import Path

from sbert.storage.files import UnreadableError, check_file, reading

# Largest allowed id. Copying a tokenizer takes time proportional to the largest id.
_LAST_ID = 10_000_000
# Maximum bytes of a vocabulary that is parsed to see whether a large number is an id.
_PARSED = 10_000_000
_LARGE_ID = re.compile(rb":\s*[1-9]\d{7}")


def check_ids(path: Path, content: bytes | None = None) -> None:
    """Raise a ValueError if the id of a token is larger than any vocabulary needs.

    Args:
        path: A tokenizer.json or a vocab.json.
        content: The content of the file, if it has been read before.
    """
    with reading(path, "JSON"):
        if content is None:
            check_file(path)
            content = path.read_bytes()
        if not _LARGE_ID.search(content):  # Ten times faster than parsing.
            return
        if len(content) > _PARSED:
            reason = f"is {len(content)} bytes long and gives a number beyond {_LAST_ID}"
            raise UnreadableError(path, reason, "do not trust the folder")
        value = json.loads(content)
        vocabulary = value["model"]["vocab"] if path.name == "tokenizer.json" else value
        ids = vocabulary.items() if isinstance(vocabulary, dict) else ()
        token, last = max(ids, key=lambda item: item[1], default=("", 0))
        if last > _LAST_ID:
            reason = f"gives the token {token!r:.40} the id {last}, where at most {_LAST_ID} is expected"
            raise UnreadableError(path, reason)
