"""Whether two folders of a model give the same vectors, to the last bit, of every text in a folder of tables.

python -m tests.benchmarks.same_vectors OLD NEW --data FOLDER [--leave-out FOLDER ...] [--encode N]

For a change of a vocabulary that must change no vector of the texts that were read before. The modules must have equal
weights, but for the order and the number of the token embeddings; so the vectors of a text are equal if its token
embeddings are, which are compared for every text of three letters or more. Of each file, the vectors of at most N texts
are computed, too (default: all).
"""

from __future__ import annotations

import argparse
import gzip
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from sbert import SentenceEncoder

GROUP = 20_000  # Texts that are read at once.
LETTERS = re.compile(r"(?:[^\W\d_].*?){3}", re.DOTALL)


def texts_of(path: Path) -> Iterator[list[str]]:
    """The different texts of a table, in groups."""
    seen: set[str] = set()
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8", newline="\n") as lines:
        cells = (cell for line in islice(lines, 1, None) for cell in line.rstrip("\n").split("\t"))
        # A set takes each text once.
        new = (cell for cell in cells if LETTERS.search(cell) and not (cell in seen or seen.add(cell)))  # type: ignore[func-returns-value]
        while group := list(islice(new, GROUP)):
            yield group


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs=2, type=Path, metavar="MODEL")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--leave-out", nargs="*", default=[], metavar="FOLDER")
    parser.add_argument("--encode", type=int, metavar="N", help="of each file, encode at most N texts")
    options = parser.parse_args()
    models = [SentenceEncoder(folder, device="cpu") for folder in options.models]
    tables, others = zip(*(split(model) for model in models), strict=True)
    assert others[0].keys() == others[1].keys()
    assert all(torch.equal(weight, others[1][name]) for name, weight in others[0].items())
    numbers = np.unique(np.concatenate(tables), axis=0, return_inverse=True)[1].reshape(-1)
    rows = np.split(numbers, [len(tables[0])])  # Of each model and token, a number of its vector: equal for equal ones.

    total = np.zeros(3, int)
    print("| file | texts | encoded | of other tokens |\n|---|---|---|---|")
    for path in sorted(options.data.rglob("*.tsv*")):
        name = path.relative_to(options.data)
        if name.parts[0] in options.leave_out:
            continue
        counts = np.zeros(3, int)
        for texts in texts_of(path):
            tokens = [[row[ids] for ids in model[0].tokenize(texts)] for model, row in zip(models, rows, strict=True)]
            same = [np.array_equal(*both) for both in zip(*tokens, strict=True)]
            other = [text for text, equal in zip(texts, same, strict=True) if not equal]
            assert not any(map(str.isascii, other)), next(filter(str.isascii, other))
            equal = [text for text, equal in zip(texts, same, strict=True) if equal]
            equal = equal[: None if options.encode is None else max(0, options.encode - counts[1])]
            vectors = [model.encode(equal, on_truncate="ignore", show_progress_bar=False) for model in models]
            assert vectors[0].tobytes() == vectors[1].tobytes(), f"{name}: other vectors"
            counts += len(texts), len(equal), len(other)
        total += counts
        print(f"| {name} | {' | '.join(f'{count:,}' for count in counts)} |", flush=True)
    print(f"| all | {' | '.join(f'{count:,}' for count in total)} |")


def split(model: SentenceEncoder) -> tuple[np.ndarray, dict[str, torch.Tensor]]:
    """The table of token embeddings of a model, and its other weights."""
    weights = dict(model.state_dict())
    (name,) = (name for name in weights if "word_embeddings" in name)
    return weights.pop(name).numpy(), weights


if __name__ == "__main__":
    main()
