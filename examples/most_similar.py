"""The Sentence-BERT paper's example: the most similar pair among 10,000 sentences, which a cross-encoder finds in 65
hours and sentence embeddings in 5 seconds. This measures both here, and prints a table in Markdown.

python examples/most_similar.py [--sentences N] [--data FOLDER] [--model MODEL] [--dtype float32|bfloat16] [--pairs N]

FOLDER/stsb contains train.tsv, dev.tsv and test.tsv; the first N distinct sentences are used. The cross-encoder is the
same backbone with a new head: its scores have no meaning, but its speed is the same. It scores --pairs random pairs,
not all n (n - 1) / 2, and its time for all is extrapolated. Times do not include loading and warming up the models.
"""

import math
import random
import re
import time

import torch
from shared import ACTIONS, DETAILS, PEOPLE, PLACES, load, parser, sentence

from sbert import CrossEncoder
from sbert.data import read_sts
from sbert.search import most_similar_pair
from sbert.storage.hub import resolve


def made_up(count):
    """Distinct synthetic sentences, in random order."""
    every = [
        f"{sentence(who, does, where)[:-1]} {why}."
        for people in PEOPLE
        for who in people[:2]
        for actions in ACTIONS
        for does in actions[:2]
        for places in PLACES
        for where in places[:2]
        for why in DETAILS
    ]
    return random.Random(0).sample(every, min(count, len(every)))


def read(folder, count):
    """The first distinct sentences of the STS benchmark, ignoring case, spaces and punctuation."""
    found = {}
    for part in ("train", "dev", "test"):
        for row in read_sts(folder / "stsb" / f"{part}.tsv", scale=None):
            for text in (row["first"], row["second"]):
                found.setdefault(tuple(re.findall(r"\w+", text.lower())), text)
    return list(found.values())[:count]


def timed(action, *arguments, **flags):
    """The result of an action, and its duration in seconds."""
    start = time.perf_counter()
    result = action(*arguments, **flags)
    return result, time.perf_counter() - start


def pair(number):
    """The indices of the two sentences of a pair, by its number: (0, 1), (0, 2), (1, 2), (0, 3) and so on."""
    second = (1 + math.isqrt(1 + 8 * number)) // 2
    return number - second * (second - 1) // 2, second


def amount(seconds):
    """Format seconds in a readable unit."""
    for unit, size in (("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


flags = parser(__doc__, "a folder with stsb")
flags.add_argument("--sentences", type=int, default=10_000, metavar="N")
flags.add_argument("--pairs", type=int, default=1_000, metavar="N", help="pairs that the cross-encoder scores")
flags.add_argument("--dtype", default="float32", help="dtype of both models: float32 or bfloat16")
options = flags.parse_args()

sentences = read(options.data, options.sentences) if options.data else made_up(options.sentences)
count = len(sentences)
if count < 2 or options.pairs < 1:
    flags.error(f"{count} sentences, {options.pairs} pairs: pass at least 2 sentences and 1 pair")
total = count * (count - 1) // 2
sample = [
    tuple(sentences[place] for place in pair(number))
    for number in random.Random(1).sample(range(total), min(options.pairs, total))
]

model = load(options.model, options.dtype)
folder = resolve(model.name_or_path, organisation="sentence-transformers")
torch.manual_seed(0)  # The new head is initialized at random.
scorer = CrossEncoder(folder, classes=1, dtype=options.dtype)

model.encode(sentences[-32:])
vectors, encoding = timed(model.encode, sentences, show_progress_bar=False)
most_similar_pair(vectors[:64])
best, comparing = timed(most_similar_pair, vectors)
scorer.predict(sample[:32])
_, scoring = timed(scorer.predict, sample, show_progress_bar=False)
every = scoring * total / len(sample)

parameters = [sum(parameter.numel() for parameter in network.parameters()) for network in (model, scorer)]
device = torch.cuda.get_device_name(model.device) if model.device.type == "cuda" else "CPU"
name = options.model.rstrip("/").rpartition("/")[2]
print(f"{best.score:.3f}\n  {sentences[best.first]}\n  {sentences[best.second]}\n")
head = f"the most similar pair of {count:,} sentences | {name}, {options.dtype}, {device}"
print(f"| {head} | the paper, BERT-base, V100 |")
print("|---|---|---|")
print(f"| cross-encoder, all {total:,} pairs (extrapolated) | {amount(every)} | 65 hours |")
print(f"| sentence embeddings: encode | {amount(encoding)} | 5 s |")
print(f"| compare all pairs | {amount(comparing)} | 0.01 s |")
print(f"| from strings to answer | {amount(encoding + comparing)} | 5 s |")
print(f"| how many times as fast | {every / (encoding + comparing):,.0f} | 46,800 |\n")
print(f"extrapolated from {len(sample):,} random pairs in {scoring:.2f} s; torch {torch.__version__}")
print(f"parameters: {parameters[0]:,} of the sentence encoder, {parameters[1]:,} of the cross-encoder")
