"""The settings of ``sbert train``: one table, from which its flags, the keys of its files and its help are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from sbert.cli.options import names


def _pair(text: str) -> list[float]:
    try:
        first, second = map(float, text.split(","))
    except ValueError:
        raise ValueError(f"{text!r} is not a range; pass two numbers such as 0,5") from None
    return [first, second]


def _switch(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text == "true"


def _steps(text: str) -> int | float:
    return int(text) if text.isdecimal() else float(text)


class Kind(NamedTuple):
    """The type of a value: how a flag's text is read, what a file's value must be, and what an error calls it."""

    read: Callable[[str], Any]
    accepts: tuple[type, ...]
    article: str
    item: tuple[type, ...] = ()
    length: int = 0  # Of a list; 0 for any.


TEXT = Kind(str, (str,), "a text")
WHOLE = Kind(int, (int,), "a whole number")
NUMBER = Kind(float, (int, float), "a number")
STEPS = Kind(_steps, (int, float), "a share such as 0.1, or a number of steps")
SWITCH = Kind(_switch, (bool,), "true or false")
WORDS = Kind(names, (list,), "a list of texts", (str,))
PAIR = Kind(_pair, (list,), "a list of two numbers", (int, float), length=2)
# Flags of these may be repeated.
CALLS = Kind(str, (list,), "a list of texts", (str,))
LENGTHS = Kind(int, (int, dict), "a whole number, or a table of them", (int,))
BY_NAME = Kind(str, (str, dict), "a text, or a table of texts", (str,))
NUMBERS = Kind(float, (dict,), "a table of numbers", (int, float))


class Key(NamedTuple):
    """A setting: its name in files, and with hyphens as a flag.

    ``part`` is ``"data"`` or ``"evaluate"`` where each data set or evaluator may have a value of its own.
    """

    name: str
    kind: Kind
    metavar: str
    about: str
    part: str = ""

    @property
    def inner(self) -> str:
        """The name in the table of one data set or evaluator: ``file`` for the flag that begins it."""
        return "file" if self.name == self.part else self.name.removeprefix(f"{self.part}_")


GROUPS: dict[str, list[Key]] = {
    "model": [
        Key("model", TEXT, "MODEL", "folder, or name on the hub; also a plain transformer"),
        Key("output", TEXT, "DIR", "for checkpoints, best, final and history.jsonl"),
        Key("cross_encoder", SWITCH, "", "train a model that reads two texts as one input"),
        Key("pooling", TEXT, "NAME", "mean, max, cls; for a plain transformer"),
        Key("max_seq_length", WHOLE, "N", "maximum length in tokens"),
        Key(
            "lora", TEXT, "CALL", "train an adapter: lora, lora(r=16), lora(target_modules=[query, value]); needs peft"
        ),
        Key("guide", TEXT, "MODEL", "a model that leaves false negatives out; for ranking"),
        Key("device", TEXT, "NAME", "cpu, cuda, cuda:1, xpu, mps"),
    ],
    "data": [
        Key(
            *("data", TEXT, "FILE"),
            "TSV, CSV, JSONL, JSON, Parquet, or a folder of Parquet files, which is streamed; - for stdin;"
            " NAME=FILE names the data set",
            "data",
        ),
        Key("columns", WORDS, "A,B", "columns, in the order of the loss (default: those of the loss)", "data"),
        Key("label", TEXT, "NAME", "column of the labels", "data"),
        Key("loss", TEXT, "LOSS", "one of the losses below", "data"),
        Key("classes", WORDS, "A,B,C", "labels 0, 1, 2 (default: those of the data)", "data"),
        Key("scale", PAIR, "0,5", "lowest and highest label, mapped to 0 and 1", "data"),
        Key("drop", WORDS, "A,B", "labels whose rows are skipped", "data"),
        Key("format", TEXT, "NAME", "of the data; default: by the file name extension", "data"),
        Key("weight", NUMBER, "X", "share of the batches that are of this data set", "data"),
        Key("batch_size", WHOLE, "N", "rows per batch (16)", "data"),
        Key("sampler", TEXT, "NAME", "random, no_duplicates, group_by_label, length, in_order (by the loss)", "data"),
        Key("max_length", LENGTHS, "COLUMN=N", "tokens of a column, repeatable; N alone is for all columns", "data"),
        Key(
            *("prompt", BY_NAME, "COLUMN=PROMPT"),
            "prompt of a column, repeatable: the name of one of the model's prompts, or a text; nothing after = for"
            " none; a PROMPT alone is for all columns",
            "data",
        ),
    ],
    "training": [
        Key("epochs", NUMBER, "X", "passes through the data (1)"),
        Key("steps", WHOLE, "N", "number of steps, instead of epochs"),
        Key("mix", TEXT, "NAME", "round_robin or proportional: batches of several data sets (round_robin)"),
        Key("shuffle_buffer", WHOLE, "N", "rows of a stream from which the next one is drawn (10000)"),
        Key("drop_last", SWITCH, "", "leave out batches with fewer rows"),
        Key("accumulation", WHOLE, "N", "batches per optimizer step (1)"),
        Key("chunk_tokens", WHOLE, "N", "tokens per chunk; saves memory with large batches"),
        Key("deduplicate", SWITCH, "", "encode equal texts of a batch once (true)"),
        Key("gradient_checkpointing", SWITCH, "", "save memory for a third more time"),
        Key("compile", SWITCH, "", "compile the layers"),
        Key("dtype", TEXT, "NAME", "float32 or bfloat16 (float32)"),
        Key("seed", WHOLE, "N", "random seed of row order and dropout (0)"),
        Key("sharded", SWITCH, "", "shard weights over the processes of torchrun"),
        Key("timeout", NUMBER, "X", "seconds that a process waits for another (600.0)"),
    ],
    "optimizer": [
        Key("optimizer", TEXT, "NAME", "adamw, adamw_8bit, adafactor or muon (adamw)"),
        Key("learning_rate", NUMBER, "X", "maximum learning rate (2e-05)"),
        Key("learning_rates", NUMBERS, "PATTERN=X", "of weights whose names match; repeatable"),
        Key("freeze", WORDS, "A,B", "patterns of names of weights that are not trained"),
        Key("schedule", TEXT, "NAME", "linear, cosine or constant (linear)"),
        Key("warmup", STEPS, "X", "share of the steps for the warm-up, or a whole number of steps (0.1)"),
        Key("weight_decay", NUMBER, "X", "weight decay (0.01)"),
        Key("betas", PAIR, "X,Y", "decay rates of AdamW"),
        Key("eps", NUMBER, "X", "term in the denominator of AdamW"),
        Key("max_gradient_norm", NUMBER, "X", "threshold of gradient clipping (1.0)"),
    ],
    "evaluation": [
        Key("evaluate", TEXT, "FILE", "data of an evaluator; NAME=FILE names it", "evaluate"),
        Key("evaluate_with", TEXT, "CALL", "one of the evaluators below (similarity)", "evaluate"),
        Key("evaluate_columns", WORDS, "A,B,C", "columns of that file (default: those below)", "evaluate"),
        Key("evaluate_prompt", TEXT, "PROMPT", "prompt of its texts, instead of the default", "evaluate"),
        Key("evaluate_every", WHOLE, "N", "steps (default: one epoch)"),
        Key("evaluate_first", SWITCH, "", "evaluate before the first step, too"),
        Key("metric", TEXT, "NAME", "score that decides which model is the best (default: the first)"),
        Key("minimize", SWITCH, "", "a lower score is better (default: if its name ends with loss)"),
    ],
    "checkpoints and reports": [
        Key("checkpoint_every", WHOLE, "N", "steps (default: one epoch)"),
        Key("keep", WHOLE, "N", "number of checkpoints to keep (2)"),
        Key("log_every", WHOLE, "N", "steps between history entries (10)"),
        Key("callbacks", CALLS, "CALL", "one of the callbacks below; repeatable"),
        Key("plot", TEXT, "FILE.png", "draw the curves; needs matplotlib"),
        Key("quiet", SWITCH, "", "no progress bar; print errors only"),
    ],
}
KEYS: dict[str, Key] = {key.name: key for keys in GROUPS.values() for key in keys}
# The names of the fields of TrainingConfig that are passed on as they are.
SETTINGS: list[str] = [
    key.name
    for group in ("training", "optimizer", "evaluation", "checkpoints and reports")
    for key in GROUPS[group]
    if key.part == "" and key.name not in ("callbacks", "plot", "quiet")
]


def of_part(part: str) -> dict[str, Key]:
    """The keys in the table of a data set, ``"data"``, or of an evaluator, ``"evaluate"``, by their names there.

    Example:
        >>> list(of_part("evaluate"))
        ['file', 'with', 'columns', 'prompt']
    """
    return {key.inner: key for key in KEYS.values() if key.part == part}
