"""Texts for the measurement: new ones in every round, because a contender may cache texts."""

from __future__ import annotations

import numpy as np

_WORDS = (
    "the a of and light stone river under green slowly house walks seven open sky because bread window friend carries"
    " winter music early garden letters against morning quiet market children remember silver across mountains"
).split()


def synthetic(count: int, seed: int) -> list[str]:
    """Synthetic sentences of common words; their lengths in words have a log-normal distribution."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(np.log(13), 0.45, count), 2, 60).astype(int)
    return [" ".join(rng.choice(_WORDS, length)) for length in lengths]


def short(count: int, number: int, texts: list[str] | None) -> list[str]:
    """Short texts for round ``number``: the next of ``texts`` in order, or synthetic ones of about 17 tokens.

    If there are too few texts, they are repeated with a number before them.
    """
    if texts is None:
        return synthetic(count, seed=number)
    places = range(number * count, (number + 1) * count)
    laps = [place // len(texts) for place in places]
    return [f"{lap} " * (lap > 0) + texts[place % len(texts)] for place, lap in zip(places, laps, strict=True)]


def mixed(count: int, number: int, texts: list[str] | None) -> list[str]:
    """Texts of mixed lengths for round ``number``: one to twenty short texts joined, three on average."""
    rng = np.random.default_rng(number)
    sizes = np.clip(rng.lognormal(np.log(2.1), 0.95, count), 1, 20).astype(int)
    pool = short(int(sizes.sum()), number, texts)
    if texts is not None:
        rng.shuffle(pool)
    ends = np.cumsum(sizes)
    return [" ".join(pool[end - size : end]) for size, end in zip(sizes, ends, strict=True)]
