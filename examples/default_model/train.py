"""Train the default model: a small BERT that imitates a teacher's vectors of sentences, and then of passages.

python -m examples.default_model.train --data FOLDER --output FOLDER [--teacher MODEL] [--smoke] [--device cuda]
    [--set NAME=VALUE ...]

Reads the sentences and passages of FOLDER (nli, captions, paraphrase, qqp, text_imdb, text_reuters21578, passages),
except those of the evaluation data sets. Writes OUTPUT/model, which sbert/default_model is a copy of, and
OUTPUT/history.jsonl and OUTPUT/training.png. The training has four parts:

1. all: the teacher's vectors of all sentences;
2. descriptions: once more those of the sentences that describe pictures; OUTPUT/sentences is the model so far;
3. passages: with a larger vocabulary, those of passages and of their titles and questions, beside some sentences;
4. ranking: the order in which the teacher ranks the texts of a batch; beside it, titles and questions learn to find
   their passages.

The weights are the mean of those after the second, third and fourth part. Letters of other scripts are then left out of
the vocabulary.

An interrupted run continues where it stopped, and keeps the teacher's vectors. --smoke runs everything on a small
sample, in minutes.
"""

import argparse
import json
import shutil
from copy import deepcopy
from functools import partial
from hashlib import sha256
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file
from safetensors.torch import save as as_bytes

from examples.default_model.card import card
from examples.default_model.imitation import (
    Imitation,
    Together,
    make_student,
    neighbours,
    with_vocabulary,
    without_other_scripts,
)
from examples.default_model.texts import COLLECTIONS, DESCRIPTIONS, cached, clean, read_pairs, read_sentences
from examples.paper.pretrain import cells, make_tokenizer
from examples.shared import load
from sbert import SentenceEncoder, Trainer, TrainingConfig
from sbert.data import read_retrieval, read_sts
from sbert.evaluation import RetrievalEvaluator, SimilarityEvaluator
from sbert.losses import MultipleNegativesRankingLoss
from sbert.storage.atomic import write_text
from sbert.visualization import training_curves

PART = 10_000  # Texts per file of vectors.
PARTS = ("all", "descriptions", "passages", "ranking")  # The parts of the training.
EVERY = 1000  # Steps between two evaluations, and two checkpoints.
DIMS = (256, 128, 64)


Row = tuple[str, np.ndarray]  # A text and its teacher vector.


class Settings(NamedTuple):
    """The settings of the training."""

    words: int = 20_000  # Size of the WordPiece vocabulary of the sentences.
    all_words: int = 30_000  # Size of that of sentences and passages.
    layers: int = 3
    width: int = 256  # Dimension of the layers and the vectors.
    inner: int = 640  # Dimension of the feed-forward layers.
    longest: int = 256  # Number of positions, and max_seq_length.
    most: int | None = None  # Number of sentences; None means all.
    epochs: float = 3  # Epochs over all sentences.
    batch: int = 256
    rate: float = 1.5e-3
    last_epochs: float = 2  # Epochs over descriptions, and a quarter as many others.
    last_rate: float = 5e-4
    pairs: int | None = 110_000  # Number of passages.
    beside: int = 250_000  # Number of sentences that are learned beside them.
    pairs_epochs: float = 2.7  # Epochs over these.
    pairs_batch: int = 128
    pairs_rate: float = 1e-3
    ranking_steps: int = 2000  # Every second is of titles and questions with their passages.
    ranking_rate: float = 4e-4
    weight: float = 30.0  # Weight of the similarities between texts in the loss.
    ranking: float = 1.0  # Weight of the ranking in the loss of the last part.
    seed: int = 0


SMOKE = Settings(
    words=4000,
    all_words=5000,
    layers=2,
    width=64,
    inner=256,
    most=20_000,
    epochs=2,
    batch=64,
    rate=3e-3,
    last_rate=1e-3,
    pairs=500,
    beside=1000,
    pairs_epochs=1,
    ranking_steps=20,
)


def check_same(output: Path, settings: Settings, teacher: str) -> None:
    """Raise SystemExit if what a folder contains was made with other settings."""
    file = output / "settings.json"
    fixed = {"teacher": teacher, **settings._asdict()}
    if not file.exists():
        write_text(file, json.dumps(fixed))
    if (known := json.loads(file.read_text(encoding="utf-8"))) != fixed:
        raise SystemExit(f"{output} was created with {known}; pass the same settings, or another folder")


def taught(teacher: SentenceEncoder, texts: list[str], folder: Path) -> np.ndarray:
    """The teacher's vectors, (texts, dim) float16; those of each part of the texts are cached in a file."""
    folder.mkdir(exist_ok=True)
    found = []
    for start in range(0, len(texts), PART):
        part = texts[start : start + PART]
        path = folder / f"{sha256(json.dumps(part).encode()).hexdigest()}.npy"
        if not path.exists():
            vectors = teacher.encode(part, normalize_embeddings=True, on_truncate="ignore")
            half = path.with_suffix(".half")
            with half.open("wb") as file:
                np.save(file, vectors.astype(np.float16))
            half.rename(path)
        found.append(np.load(path))
    return np.concatenate(found)


def directions(vectors: np.ndarray, width: int, file: Path) -> np.ndarray:
    """The principal directions of the vectors, (dim, width), the largest first; cached in a file.

    After the projection, the first dimensions carry the most information, so that vectors can be truncated.
    """
    if not file.exists():  # Cached, because another machine may flip the sign of a direction.
        sample = vectors[:200_000].astype(np.float32)
        half = file.with_suffix(".half.npy")
        np.save(half, np.linalg.eigh(sample.T @ sample)[1][:, ::-1])
        half.rename(file)
    return np.load(file)[:, :width].copy()


def once_more(rows: list[Row], data: Path) -> list[Row]:
    """The rows that describe pictures, and a quarter as many others."""
    described = set(map(clean, cells(data, DESCRIPTIONS)))
    last = [row for row in rows if row[0] in described]
    return last + [row for row in rows if row[0] not in described][: len(last) // 4]


def figures(data: Path, student: SentenceEncoder) -> dict[str, float]:
    """Spearman's correlation on the dev part of the STS benchmark, and nDCG@10 on the retrieval collections."""
    rows = read_sts(data / "stsb" / "dev.tsv")
    similarity = SimilarityEvaluator(*([row[name] for row in rows] for name in ("first", "second", "label")))
    collections = {name: RetrievalEvaluator(*read_retrieval(data / place)) for name, place in COLLECTIONS.items()}
    found = {name: evaluate(student)["ndcg@10"] for name, evaluate in collections.items()}
    return {"STSb": similarity(student)["spearman"], **found}


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--teacher", default="all-MiniLM-L6-v2", help="a folder or a name on the hub")
    parser.add_argument("--smoke", action="store_true", help="train a small model on few sentences")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="other settings")
    return parser.parse_args()


def dims_of(settings: Settings) -> list[int]:
    """The output dimensions to evaluate."""
    return [dim for dim in DIMS if dim <= settings.width]


def learn(student: SentenceEncoder, rows: Any, loss: Any, data: Path, folder: Path, **config: Any) -> None:
    """One part of the training; continues what an interrupted run left in the folder."""
    made = TrainingConfig(
        folder,
        dtype="bfloat16",
        evaluate_every=EVERY,
        checkpoint_every=EVERY,
        keep=1,
        evaluate_first=True,
        metric="STSb",
        **config,
    )
    Trainer(student, rows, loss, made, evaluator=partial(figures, data)).fit(resume=True)


def learn_sentences(
    teacher: SentenceEncoder, texts: list[str], projection: np.ndarray, data: Path, output: Path, settings: Settings
) -> SentenceEncoder:
    """The first two parts; the model after them is kept in OUTPUT/sentences."""
    folder = output / "sentences"
    if not folder.exists():
        tokenizer = make_tokenizer(texts, settings.words, output / "vocabulary")
        tokenizer.model_max_length = settings.longest
        words = [tokenizer.convert_ids_to_tokens(i).removeprefix("##") for i in range(len(tokenizer))]
        pieces = teacher.encode(words, normalize_embeddings=True, show_progress_bar=False) @ projection
        shape = settings.layers, settings.width, settings.inner, settings.longest
        student = make_student(tokenizer, *shape, settings.seed, pieces).to(teacher.device)
        vectors = taught(teacher, texts, output / "vectors").astype(np.float32) @ projection
        rows = list(zip(texts, vectors, strict=True))
        last = once_more(rows, data)
        runs = ((rows, settings.epochs, settings.rate), (last, settings.last_epochs, settings.last_rate))
        for part, (some, epochs, rate) in zip(PARTS, runs, strict=False):
            how = {"epochs": epochs, "learning_rate": rate, "batch_size": settings.batch, "seed": settings.seed}
            learn(student, some, Imitation(settings.weight), data, output / part, **how)
        student.save(folder)
    return SentenceEncoder(folder, device=teacher.device)


def learn_passages(
    student: SentenceEncoder,
    teacher: SentenceEncoder,
    texts: list[str],
    projection: np.ndarray,
    data: Path,
    output: Path,
    settings: Settings,
) -> tuple[SentenceEncoder, int]:
    """The last two parts; returns the model and the number of passages."""
    every = cached(read_pairs, data, None, settings.seed, output / "pairs.jsonl")
    tokenizer = make_tokenizer(chain(texts, *zip(*every, strict=True)), settings.all_words, output / "all_vocabulary")
    tokenizer.model_max_length = settings.longest
    student = with_vocabulary(student, tokenizer).to(teacher.device)
    second = deepcopy(student)
    queries, passages = map(list, zip(*every[: settings.pairs], strict=True))
    asked, found, plain = (
        taught(teacher, some, output / "vectors").astype(np.float32) @ projection
        for some in (queries, passages, texts[: settings.beside])
    )
    rows = list(zip(texts[: len(plain)], plain, strict=True))
    for two in zip(zip(queries, asked, strict=True), zip(passages, found, strict=True), strict=True):
        rows += two
    sampler = Together(len(plain), neighbours(found, settings.seed))
    learn(
        student,
        rows,
        Imitation(settings.weight),
        data,
        output / PARTS[2],
        epochs=settings.pairs_epochs,
        learning_rate=settings.pairs_rate,
        batch_size=settings.pairs_batch,
        sampler=sampler,
        seed=settings.seed,
    )
    titled = [(query, text) for query, text in zip(queries, passages, strict=True) if not text.startswith(query)]
    third, fourth = (SentenceEncoder(output / PARTS[2] / "best", device=teacher.device) for _ in range(2))
    learn(
        fourth,
        {"texts": rows, "titled": titled},
        {
            "texts": Imitation(settings.weight, settings.ranking),
            "titled": MultipleNegativesRankingLoss(symmetric=True),
        },
        data,
        output / PARTS[3],
        steps=settings.ranking_steps,
        learning_rate=settings.ranking_rate,
        batch_size={"texts": settings.pairs_batch, "titled": settings.pairs_batch // 2},
        sampler={"texts": sampler, "titled": "no_duplicates"},
        seed=settings.seed,
    )
    with torch.no_grad():
        for weight, *others in zip(*(model.parameters() for model in (second, third, fourth)), strict=True):
            weight.copy_(torch.stack([weight, *others]).mean(0))
    return without_other_scripts(second), len(passages)


def write(student: SentenceEncoder, folder: Path, output: Path, longest: int) -> SentenceEncoder:
    """Save the model with weights in float16, and the log and the curve of the training; return the model as loaded."""
    with torch.no_grad():
        for weight in student.parameters():
            weight.copy_(weight.half())
    shutil.rmtree(folder, ignore_errors=True)  # From an earlier run.
    student.max_seq_length = longest
    student.to("cpu").save(folder)
    file = folder / "model.safetensors"
    halves = {name: weight.half() for name, weight in load_file(file).items()}
    file.write_bytes(as_bytes(halves, metadata={"format": "pt"}))
    entries = history(output)
    (output / "history.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    training_curves(entries, output / "training.png")
    return SentenceEncoder(folder)


def history(output: Path) -> list[dict[str, Any]]:
    """The history of all parts of the training, with continuous step numbers."""
    entries: list[dict[str, Any]] = []
    for part in PARTS:
        before = entries[-1]["step"] if entries else 0
        lines = (output / part / "history.jsonl").read_text(encoding="utf-8").splitlines()
        entries += [{**entry, "step": entry["step"] + before} for entry in map(json.loads, lines)]
    return entries


def main() -> None:
    """Read, train, measure and write."""
    options = arguments()
    import_module("matplotlib")  # Needed at the end; fail early if it is missing.
    settings = SMOKE if options.smoke else Settings()
    changed = dict(part.split("=", 1) for part in options.set)
    settings = settings._replace(**{name: json.loads(value) for name, value in changed.items()})
    output, data = options.output, options.data
    output.mkdir(parents=True, exist_ok=True)
    check_same(output, settings, options.teacher)
    print(settings, flush=True)

    texts = cached(read_sentences, data, settings.most, settings.seed, output / "sentences.jsonl")
    teacher = load(options.teacher, dtype="bfloat16").to(options.device)
    sample = taught(teacher, texts[: settings.beside], output / "vectors")
    projection = directions(sample, settings.width, output / "directions.npy")
    first = learn_sentences(teacher, texts, projection, data, output, settings)
    before = figures(data, first)["STSb"]
    student, passages = learn_passages(first, teacher, texts, projection, data, output, settings)

    command = ["python -m examples.default_model.train --data FOLDER --output FOLDER", *["--smoke"] * options.smoke]
    command += ["--teacher", options.teacher] if options.teacher != "all-MiniLM-L6-v2" else []
    command += ["--set", *options.set] if options.set else []
    folder = output / "model"
    after = figures(data, write(student, folder, output, settings.longest))["STSb"]
    print(f"STSb dev: {100 * before:.2f} after the sentences, {100 * after:.2f} after the passages")
    text = card(
        folder,
        data,
        options.teacher,
        dims_of(settings),
        settings._asdict(),
        command=" ".join(command),
        sentences=len(texts),
        passages=passages,
        before=100 * before,
        after=100 * after,
    )
    (folder / "README.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
