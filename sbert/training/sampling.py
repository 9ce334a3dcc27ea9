"""Which rows go into which batch of an epoch: plain functions of the rows, the batch size and a generator."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from weakref import WeakSet

import numpy as np

if TYPE_CHECKING:
    from sbert.training.dataset import Rows

# Batches whose rows are sorted by length together: neighbours are alike, and still no batch is the same twice.
_POOL = 50


def random(rows: Rows, batch_size: int, generator: np.random.Generator) -> list[np.ndarray]:
    """Rows in random order."""
    return _cut(generator.permutation(len(rows)), batch_size)


def length(rows: Rows, batch_size: int, generator: np.random.Generator) -> list[np.ndarray]:
    """Rows of like length together, in random order otherwise."""
    sizes = np.fromiter((sum(map(len, rows.texts(row))) for row in range(len(rows))), np.int64, len(rows))
    batches = []
    for pool in _cut(generator.permutation(len(rows)), batch_size * _POOL):
        batches += _cut(pool[np.argsort(sizes[pool], kind="stable")], batch_size)
    return [batches[i] for i in generator.permutation(len(batches))]


def no_duplicates(rows: Rows, batch_size: int, generator: np.random.Generator) -> list[np.ndarray]:
    """No text stands in two rows of a batch, so that no row's positive is another's negative.

    Each row goes into the first batch with room behind the last one that holds any of its texts. Where a text
    stands in more rows than there are full batches, further batches are opened for it, and stay short.
    """
    last: dict[str, int] = {}  # The last batch that holds a text.
    batches: list[list[int]] = []
    after: list[int] = []  # From a full batch toward the next with room.

    def with_room(batch: int) -> int:
        path = []
        while batch < len(batches) and len(batches[batch]) == batch_size:
            path.append(batch)
            batch = after[batch]
        for full in path:
            after[full] = batch
        return batch

    for row in generator.permutation(len(rows)).tolist():
        texts = set(rows.texts(row))
        batch = with_room(max(last.get(text, -1) for text in texts) + 1)
        if batch == len(batches):
            batches.append([])
            after.append(batch + 1)
        batches[batch].append(row)
        last.update(dict.fromkeys(texts, batch))
    needed = -(-len(rows) // batch_size)
    if len(batches) > 1.1 * needed + 1:
        _tell(
            rows,
            f"a text stands in so many rows that {len(batches)} batches are needed in place of {needed}; many of them"
            " are short, so drop some of its rows",
        )
    return [np.array(batch) for batch in batches]


def group_by_label(rows: Rows, batch_size: int, generator: np.random.Generator) -> list[np.ndarray]:
    """Each label of a batch stands there at least twice, as losses that make triplets of labels need it.

    It holds two labels or more. Left out of an epoch are rows whose label stands nowhere else, those that remain at
    the end and all have one label, and in batches of less than 6 rows one row of each label that has an odd number
    of them; a warning says how many, once for the same rows.

    Raises:
        ValueError: If the rows have no labels, or no label stands twice.
    """
    if rows.labels is None or rows.labels.ndim != 1:
        raise ValueError("sampler='group_by_label' needs rows with one label each; pass another sampler")
    if batch_size < 4:
        raise ValueError("sampler='group_by_label' needs two rows of two labels; pass a batch_size of 4 or more")
    groups: list[list[int]] = []  # Of two rows of one label, or of three where two such groups have room.
    labels = rows.labels.numpy()
    order = generator.permutation(len(rows))
    for label in np.unique(labels):
        same = order[labels[order] == label].tolist()
        pairs = [same[i : i + 2] for i in range(0, len(same) - len(same) % 2, 2)]
        if len(same) % 2 and pairs and batch_size >= 6:
            pairs[-1].append(same[-1])
        groups += pairs
    if not groups:
        raise ValueError("no label stands in two rows; triplets need two rows of a label")
    waiting = deque(groups[place] for place in generator.permutation(len(groups)))
    batches: list[np.ndarray] = []
    while waiting:
        batch = list(waiting.popleft())
        other = next((i for i, group in enumerate(waiting) if labels[group[0]] != labels[batch[0]]), None)
        if other is None:
            break
        batch += waiting[other]
        del waiting[other]
        while waiting and len(batch) + len(waiting[0]) <= batch_size:
            batch += waiting.popleft()
        batches.append(np.array(batch))
    left = len(rows) - sum(map(len, batches))
    if left and batches:
        alone = int((np.unique(labels, return_counts=True)[1] == 1).sum())
        _tell(
            rows,
            f"sampler='group_by_label' leaves {left} of {len(rows)} rows out of an epoch, {alone} of them because their"
            " label stands in one row alone and others because no row of another label is left to go with them",
        )
    return batches


# Those of which something has been said, which the next epoch need not repeat.
_told: WeakSet[Rows] = WeakSet()


def _tell(rows: Rows, message: str) -> None:
    if rows not in _told:
        _told.add(rows)
        warnings.warn(message, stacklevel=3)


SAMPLERS: dict[str, Callable[[Rows, int, np.random.Generator], list[np.ndarray]]] = {
    "random": random,
    "no_duplicates": no_duplicates,
    "group_by_label": group_by_label,
    "length": length,
}


def name_of(sampler: object) -> str:
    """Of a sampler that goes by its name, or of a function."""
    return sampler if isinstance(sampler, str) else getattr(sampler, "__name__", type(sampler).__name__)


def interleave(counts: Sequence[int], mix: str, generator: np.random.Generator) -> np.ndarray:
    """Which dataset gives the next batch, over an epoch.

    Args:
        counts: Batches of each dataset.
        mix: ``"round_robin"`` or ``"proportional"``.
        generator: Of the order, where it is random.

    Example:
        >>> interleave([3, 2], "round_robin", np.random.default_rng(0)).tolist()
        [0, 1, 0, 1]
        >>> sorted(interleave([3, 2], "proportional", np.random.default_rng(0)).tolist())
        [0, 0, 0, 1, 1]
    """
    if mix == "round_robin":
        return np.tile(np.arange(len(counts)), min(counts))
    return generator.permutation(np.repeat(np.arange(len(counts)), counts))


def _cut(order: np.ndarray, size: int) -> list[np.ndarray]:
    return [order[start : start + size] for start in range(0, len(order), size)]
