"""Short texts for the other programs; measures nothing itself."""

from __future__ import annotations

WORDS = "the a cat dog man woman plays sleeps eats reads house garden street car book old new red two on in".split()


def texts(count: int) -> list[str]:
    """Different short texts of 15 words, 17 tokens."""
    return [" ".join(WORDS[(number * 7 + place * place) % len(WORDS)] for place in range(14)) + f" {number}"
            for number in range(count)]  # fmt: skip
