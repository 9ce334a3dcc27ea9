"""Tiny cross-encoders with random heads, and pairs for them."""

from __future__ import annotations

from pathlib import Path

from tokenizers import processors

from tests import small
from tests.backends import test_families

TYPED = ["input_ids", "token_type_ids", "attention_mask"]
PAIRS = [
    ("a small boat", "lake"),
    ("The red fox runs over the hills.", "the fox runs"),
    ("lake", "a small boat"),
    ("", ""),
    ("café 문장 !?", ""),
    ("", "zero one two"),
    ("a small boat", "lake [SEP] nobody rows it home </s> home"),
    ("[CLS] one", "two [PAD] three"),
    ("one two three four five six seven eight nine ten", "A SMALL Boat lies — on the quiet lake; nobody rows it"),
    ("a small boat", "lake"),
]
LONG = [
    ("one two three four five six seven eight nine ten " * length, "fox lake boat hill " * other)
    for length, other in ((1, 30), (20, 1), (20, 40), (9, 9), (4, 9), (1, 1))
]
FAMILIES = ("bert", "roberta", "distilbert", "electra")


def folder(path: Path, family: str = "bert", classes: int = 1, seed: int = 0) -> Path:
    """A model of two layers with a head."""
    import transformers

    config, _, settings, make_tokenizer = test_families.FAMILIES[family]
    words = make_tokenizer()
    if family == "roberta":
        words.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
        settings = {**settings, "max_position_embeddings": 66}  # The first two are not used.
    made = getattr(transformers, config)(vocab_size=words.get_vocab_size(), num_labels=classes, **settings)
    model = getattr(transformers, config.replace("Config", "ForSequenceClassification"))(made)
    small.randomized(model, seed).save_pretrained(path)
    typed = {"model_input_names": TYPED} if family in ("bert", "electra") else {}
    small.wrapped(words, 64, **typed).save_pretrained(path)
    return path


def rows(classes: int = 2) -> list[tuple[str, str, int | float]]:
    """40 pairs, no text twice, whose label is how often the first says "home": floats for two classes."""
    words = "boat lake fox hill winter green red seven".split()
    made: list[tuple[str, str, int | float]] = []
    for i in range(40):
        label = i % classes
        first = f"the {words[i % 8]} {words[i // 8]} " + "home " * label
        made.append((first, f"{words[i // 8]} a small {words[i % 8]}", float(label) if classes == 2 else label))
    return made
