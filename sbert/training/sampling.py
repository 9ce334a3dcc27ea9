"""Samplers: which rows form the batches of an epoch, as functions of the rows, the batch size and a generator."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import count, cycle
from weakref import WeakSet

import numpy as np

from sbert.inputs.arguments import warn
from sbert.training.table import RowIndices
from sbert.training.training_data import TrainingData

# Batches whose rows are sorted by length together: similar lengths in a batch, but other batches in every epoch.
_POOL = 50
# Rows whose texts are read together, and told apart.
_TOGETHER = 200_000


def random(rows: TrainingData, batch_size: int, generator: np.random.Generator) -> list[RowIndices]:
    """Rows in random order."""
    return _blocks(generator.permutation(len(rows)), batch_size)


def in_order(rows: TrainingData, batch_size: int, generator: np.random.Generator) -> list[RowIndices]:
    """Rows in the order of the data."""
    return _blocks(np.arange(len(rows)), batch_size)


def length(rows: TrainingData, batch_size: int, generator: np.random.Generator) -> list[RowIndices]:
    """Batches of rows with similar lengths, in random order."""
    texts = (row for part in _blocks(np.arange(len(rows)), _TOGETHER) for row in rows.texts_of(part))
    sizes = np.fromiter((sum(map(len, row)) for row in texts), np.int64, len(rows))
    batches = []
    for pool in _blocks(generator.permutation(len(rows)), batch_size * _POOL):
        batches += _blocks(pool[np.argsort(sizes[pool], kind="stable")], batch_size)
    return [batches[i] for i in generator.permutation(len(batches))]


def no_duplicates(rows: TrainingData, batch_size: int, generator: np.random.Generator) -> list[RowIndices]:
    """No text occurs in two rows of a batch, so no row's positive is a negative of another row.

    Each row is added to the first batch with room after the last batch that has any of its texts. If a text occurs
    in more rows than there are full batches, further batches are added for it, and stay small.
    """
    batches: list[RowIndices] = []
    for part in _blocks(generator.permutation(len(rows)), _TOGETHER):
        batches += _fill_batches(part, rows.texts_of(part), batch_size)
    needed = -(-len(rows) // batch_size)
    if len(batches) > 1.1 * needed + 1:
        reason = f"a text occurs in so many rows that {len(batches)} batches are needed instead of {needed}"
        _warn_once(rows, f"{reason}, many of them small; remove some of its rows")
    return batches


def _fill_batches(rows: RowIndices, texts: list[tuple[str, ...]], batch_size: int) -> list[RowIndices]:
    last: dict[str, int] = {}  # For each text, the last batch that has it.
    batches: list[list[int]] = []
    with_room: list[int] = []  # The batches that are not full, in order.
    for row, unique_texts in zip(rows.tolist(), map(set, texts), strict=True):
        position = bisect_right(with_room, max(last.get(text, -1) for text in unique_texts))
        if position == len(with_room):
            with_room.append(len(batches))
            batches.append([])
        batch = with_room[position]
        batches[batch].append(row)
        if len(batches[batch]) == batch_size:
            del with_room[position]
        last.update(dict.fromkeys(unique_texts, batch))
    return [np.array(batch) for batch in batches]


def group_by_label(rows: TrainingData, batch_size: int, generator: np.random.Generator) -> list[RowIndices]:
    """Each label of a batch occurs there at least twice, as the losses of batch triplets need it.

    A batch has at least two labels. An epoch leaves out rows whose label occurs only once, rows that remain at the
    end with the same label, and, if batch_size is below 6, one row of each label with an odd number of rows. A
    warning says how many, once for the same rows.

    Raises:
        ValueError: If the rows have no labels, or no label occurs twice.
    """
    if rows.labels is None or rows.labels.ndim != 1:
        raise ValueError("sampler='group_by_label' needs rows with one label each; pass another sampler")
    if batch_size < 4:
        raise ValueError("sampler='group_by_label' needs two rows of two labels; pass a batch_size of 4 or more")
    groups: list[list[int]] = []  # Pairs of rows with the same label, or triples if two of them fit into a batch.
    labels = rows.labels.numpy()
    order = generator.permutation(len(rows))
    for label in np.unique(labels):
        same = order[labels[order] == label].tolist()
        pairs = [same[i : i + 2] for i in range(0, len(same) - len(same) % 2, 2)]
        if len(same) % 2 and pairs and batch_size >= 6:
            pairs[-1].append(same[-1])
        groups += pairs
    if not groups:
        raise ValueError("no label occurs in two rows; add rows with equal labels, from which triplets are formed")
    waiting = deque(groups[number] for number in generator.permutation(len(groups)))
    batches: list[RowIndices] = []
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
        what = f"sampler='group_by_label' leaves {left} of {len(rows)} rows out of an epoch: {alone} of them because"
        _warn_once(rows, f"{what} their label occurs once, and others because no row with another label is left")
    return batches


# Rows about which a warning was given, so that later epochs do not repeat it.
_warned: WeakSet[TrainingData] = WeakSet()


def _warn_once(rows: TrainingData, message: str) -> None:
    if rows not in _warned:
        _warned.add(rows)
        warn(message)


SAMPLERS: dict[str, Callable[[TrainingData, int, np.random.Generator], list[RowIndices]]] = {
    sampler.__name__: sampler for sampler in (random, no_duplicates, group_by_label, length, in_order)
}
# Those that make as many batches in every epoch.
SAME_COUNT = ("random", "length", "in_order")
MIXES = ("round_robin", "proportional")


def name_of(sampler: object) -> str:
    """The name of a sampler: the string itself, or the name of a function."""
    return sampler if isinstance(sampler, str) else getattr(sampler, "__name__", type(sampler).__name__)


def turns(counts: Sequence[float], mix: str | Sequence[float], generator: np.random.Generator) -> Iterator[int]:
    """The order of the data sets: for each batch of an epoch, the index of its data set; endless with a stream.

    Args:
        counts: Number of batches of each data set; infinite for a stream.
        mix: ``"round_robin"``, ``"proportional"``, or the weight of each data set.
        generator: Source of the random order.

    Example:
        >>> list(turns([3, 2], "round_robin", np.random.default_rng(0)))
        [0, 1, 0, 1]
        >>> sorted(turns([3, 2], "proportional", np.random.default_rng(0)))
        [0, 0, 0, 1, 1]
    """
    is_endless = math.inf in counts
    if mix == "round_robin":
        order = range(len(counts))
        yield from cycle(order) if is_endless else [*order] * int(min(counts))
    elif mix == "proportional":
        yield from generator.permutation(np.repeat(np.arange(len(counts)), np.array(counts, int))).tolist()
    else:
        shares = np.cumsum(mix) / np.sum(mix)
        for _ in count() if is_endless else range(int(sum(counts))):
            yield int(np.searchsorted(shares, generator.random(), side="right"))


def _blocks(order: RowIndices, size: int) -> list[RowIndices]:
    return np.split(order, range(size, len(order), size))
