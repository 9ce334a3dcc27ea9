"""Texts to measure with: new ones in every round, since whoever has seen a text may remember it."""

from __future__ import annotations

import numpy as np

_WORDS = (
    "the a of and light stone river under green slowly house walks seven open sky because bread window nobody carries"
    " winter music early garden letters against morning quiet market children remember silver across mountains"
).split()


def made_up(count: int, seed: int, median: float = 13.0, spread: float = 0.45, most: int = 60) -> list[str]:
    """Sentences of common words; their lengths in words are log-normal."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(np.log(median), spread, count), 2, most).astype(int)
    return [" ".join(rng.choice(_WORDS, length)) for length in lengths]


def short(count: int, number: int, texts: list[str] | None) -> list[str]:
    """Short texts for round ``number``: the next of ``texts`` in their order, or made-up ones of about 17 tokens.

    Where the texts do not last, they come again with the round's number before them.
    """
    if texts is None:
        return made_up(count, seed=number)
    places = range(number * count, (number + 1) * count)
    laps = [place // len(texts) for place in places]
    return [f"{lap} " * (lap > 0) + texts[place % len(texts)] for place, lap in zip(places, laps, strict=True)]


def mixed(count: int, number: int, texts: list[str] | None) -> list[str]:
    """Texts of very different lengths for round ``number``: one to twenty short ones joined, three on average."""
    rng = np.random.default_rng(number)
    sizes = np.clip(rng.lognormal(np.log(2.1), 0.95, count), 1, 20).astype(int)
    pool = short(int(sizes.sum()), number, texts)
    if texts is not None:
        rng.shuffle(pool)
    ends = np.cumsum(sizes)
    return [" ".join(pool[end - size : end]) for size, end in zip(sizes, ends, strict=True)]
