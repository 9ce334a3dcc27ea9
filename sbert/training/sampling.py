"""Samplers: which rows form the batches of an epoch, as functions of the rows, the batch size and a generator."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable

import numpy as np

from sbert.inputs.arguments import warn
from sbert.training.table import RowIndices
from sbert.training.training_data import TrainingData

# Rows whose texts are read together, and told apart.
_TOGETHER = 200_000


def random(rows: TrainingData, batch_size: int, generator: np.random.Generator) -> list[RowIndices]:
    """Rows in random order."""
    return _blocks(generator.permutation(len(rows)), batch_size)


def in_order(rows: TrainingData, batch_size: int, generator: np.random.Generator) -> list[RowIndices]:
    """Rows in the order of the data."""
    return _blocks(np.arange(len(rows)), batch_size)


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
        warn(f"{reason}, many of them small; remove some of its rows")
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
    warning says how many.

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
        warn(f"{what} their label occurs once, and others because no row with another label is left")
    return batches


SAMPLERS: dict[str, Callable[[TrainingData, int, np.random.Generator], list[RowIndices]]] = {
    sampler.__name__: sampler for sampler in (random, no_duplicates, group_by_label, in_order)
}
# Those that make as many batches in every epoch.
SAME_COUNT = ("random", "in_order")
MIXES = ("round_robin", "proportional")


def name_of(sampler: object) -> str:
    """The name of a sampler: the string itself, or the name of a function."""
    return sampler if isinstance(sampler, str) else getattr(sampler, "__name__", type(sampler).__name__)


def _blocks(order: RowIndices, size: int) -> list[RowIndices]:
    return np.split(order, range(size, len(order), size))
