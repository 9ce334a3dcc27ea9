"""Encode five sentences, compare them, and find the most similar pair.

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


model = SentenceEncoder(*sys.argv[1:])  # Default: the model that comes with the library.
print(model, "\n")

vectors = model.encode(SENTENCES)
print(f"{len(vectors)} vectors of dimension {vectors.shape[1]}\n")

scores = model.similarity(vectors, vectors)
for number, (sentence, row) in enumerate(zip(SENTENCES, scores, strict=True), start=1):
    print(f"{number}  " + " ".join(f"{score:5.2f}" for score in row) + f"   {sentence}")

pairs = np.triu(scores, k=1)
first, second = np.unravel_index(pairs.argmax(), pairs.shape)
print(f"\nMost similar ({scores[first, second]:.2f}):\n  {SENTENCES[first]}\n  {SENTENCES[second]}")
