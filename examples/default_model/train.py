"""Train the default model: a small BERT that imitates a teacher's vectors of plain text.

python -m examples.default_model.train --data FOLDER --output FOLDER [--teacher MODEL] [--smoke] [--device cuda]
    [--set NAME=VALUE ...]

Reads the sentences of FOLDER (nli, captions, paraphrase, qqp, text_imdb, text_reuters21578), except those of the
evaluation data sets. Writes OUTPUT/model, which sbert/default_model is a copy of, and OUTPUT/history.jsonl and
OUTPUT/training.png. The student imitates the teacher's vectors of all sentences, and in a second part those of the
sentences that describe pictures. An interrupted run continues where it stopped. --smoke runs everything on a small
sample, in minutes.
"""

import argparse
import json
import random
import re
import shutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from safetensors.torch import save as as_bytes
from torch import Tensor, nn
from transformers import BertConfig, BertModel, BertTokenizerFast

from examples.default_model.card import card
from examples.paper.pretrain import HELD_OUT, cells, key, make_tokenizer
from examples.shared import load
from sbert import Normalize, Pooling, SentenceEncoder, Trainer, TrainingConfig, Transformer
from sbert.data import read_sts
from sbert.evaluation import SimilarityEvaluator
from sbert.visualization import training_curves

SENTENCES = [
    "captions/*_5cap.tsv.gz:caption1,caption2,caption3,caption4,caption5",
    "captions/asset*.tsv.gz:original,simp0,simp1,simp2,simp3,simp4,simp5,simp6,simp7,simp8,simp9",
    "nli/snli_train_subset.tsv.gz:premise,hypothesis",
    "nli/mnli_train_ptbtok.tsv.gz:premise,hypothesis",
    "nli/wanli_15k.tsv.gz:premise,hypothesis",
    "nli/snli_counterfactual_cad.tsv.gz:premise,hypothesis",
    "paraphrase/pan_train.tsv.gz:sentence1,sentence2",
    "qqp/*.tsv:question1,question2",
    "text_reuters21578/docs.tsv.gz:title",
]
DOCUMENTS = ["text_reuters21578/docs.tsv.gz:body", "text_imdb/*.tsv.gz:text"]
# Captions and sentences derived from captions: plain, and often similar to each other.
DESCRIPTIONS = [source for source in SENTENCES if source.startswith(("captions/*", "nli/snli"))]
WORDS_OF = 3, 60  # Minimum and maximum number of words per sentence.
PART = 50_000  # Sentences per file of vectors.
FIXED = (
    "words",
    "most",
    "seed",
)  # Must not change between runs, like the teacher: cached files depend on them.
PARTS = ("all", "descriptions")  # The two parts of the training.
EVERY = 500  # Steps between two evaluations, and two checkpoints.
DIMS = (256, 128, 64)
END = re.compile(r"(?<=[.!?])[\"')]*\s+(?=[\"'(]*[A-Z0-9])")


Row = tuple[str, np.ndarray]  # A sentence and its teacher vector.


class Settings(NamedTuple):
    """The settings of the training."""

    words: int = 20_000  # Size of the WordPiece vocabulary.
    layers: int = 3
    width: int = 256  # Dimension of the layers and the vectors.
    inner: int = 640  # Dimension of the feed-forward layers.
    longest: int = 256  # Number of positions.
    reads: int = 128  # max_seq_length of the saved model: texts longer than the training data get worse vectors.
    most: int | None = None  # Number of sentences; None means all.
    epochs: float = 3  # Epochs over all sentences.
    batch: int = 256
    rate: float = 1.5e-3
    last_epochs: float = 2  # Epochs over descriptions, and a quarter as many others.
    last_rate: float = 5e-4
    weight: float = 30.0  # Weight of the similarities between sentences in the loss.
    seed: int = 0


SMOKE = Settings(words=4000, layers=2, width=64, inner=256, most=20_000, epochs=2, batch=64, rate=3e-3, last_rate=1e-3)


def check_same(output: Path, settings: Settings, teacher: str) -> None:
    """Raise SystemExit if the sentences, vocabulary and vectors in a folder belong to other settings."""
    file = output / "settings.json"
    fixed = {"teacher": teacher, **{name: getattr(settings, name) for name in FIXED}}
    if not file.exists():
        file.write_text(json.dumps(fixed), encoding="utf-8")
    if (known := json.loads(file.read_text(encoding="utf-8"))) != fixed:
        raise SystemExit(f"{output} was created with {known}; pass the same settings, or another folder")


def clean(text: str) -> str:
    """Normalize white space, also before punctuation."""
    return re.sub(r" (?=[.,;:!?)])", "", " ".join(text.split()))


def read(data: Path) -> Iterator[str]:
    """Yield each sentence once, without those of the evaluation data sets."""
    seen = measured_on(data)
    least, most = WORDS_OF
    whole = (text for text in cells(data, SENTENCES))
    split = (sentence for text in cells(data, DOCUMENTS) for sentence in END.split(" ".join(text.split())))
    for text in (text for some in (whole, split) for text in some):
        text = clean(text)
        mark = hash(key(text))
        if least <= text.count(" ") + 1 <= most and mark not in seen:
            seen.add(mark)
            yield text


def measured_on(data: Path) -> set[int]:
    """Hashes of the sentences of all evaluation data sets."""
    missing = [source for source in HELD_OUT if not any(data.glob(source.partition(":")[0]))]
    if missing:
        raise SystemExit(f"{data} lacks {', '.join(missing)}; without them, it could train on evaluation data")
    return {hash(key(text)) for text in cells(data, HELD_OUT)}


def sentences(data: Path, most: int | None, seed: int, file: Path) -> list[str]:
    """The sentences in random order, cached in a file."""
    if not file.exists():
        found = list(read(data))
        if not found:
            raise SystemExit(f"{data} contains no sentences; pass the folder that contains captions, nli or text_imdb")
        random.Random(seed).shuffle(found)
        half = file.with_suffix(".half")
        half.write_text("\n".join(found[:most]), encoding="utf-8")
        half.rename(file)
    return file.read_text(encoding="utf-8").split("\n")


def taught(teacher: SentenceEncoder, texts: list[str], folder: Path) -> np.ndarray:
    """The teacher's vectors, (texts, dim) float16; each part is cached in a file."""
    folder.mkdir(exist_ok=True)
    for start in range(0, len(texts), PART):
        path = folder / f"{start:09d}.npy"
        if not path.exists():
            vectors = teacher.encode(texts[start : start + PART], normalize_embeddings=True, on_truncate="ignore")
            half = path.with_suffix(".half")
            with half.open("wb") as file:
                np.save(file, vectors.astype(np.float16))
            half.rename(path)
    return np.concatenate([np.load(path) for path in sorted(folder.glob("*.npy"))])


def directions(vectors: np.ndarray, width: int, file: Path) -> np.ndarray:
    """The principal directions of the vectors, (dim, width), the largest first; cached in a file.

    After the projection, the first dimensions carry the most information, so that vectors can be truncated.
    """
    if not file.exists():  # Cached, because another machine may flip the sign of a direction.
        sample = vectors[:200_000].astype(np.float32)
        np.save(file, np.linalg.eigh(sample.T @ sample)[1][:, ::-1])
    return np.load(file)[:, :width].copy()


class Imitation(nn.Module):
    """The distance of the student's vectors and similarities from the teacher's.

        loss = mean_i (1 - cos(s_i, t_i)) + weight * mean_ij (cos(s_i, s_j) - cos(t_i, t_j))^2

    Args:
        weight: Weight of the second term.

    Shape:
        sentence, labels: (rows, dim), the student's and the teacher's vectors. Output: scalar.
    """

    labels_are_vectors = True

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, sentence: Tensor, labels: Tensor) -> Tensor:
        student, teacher = F.normalize(sentence, dim=1), F.normalize(labels, dim=1)
        apart = student @ student.T - teacher @ teacher.T  # (rows, rows)
        return (1 - (student * teacher).sum(1)).mean() + self.weight * apart.square().mean()


def make_student(tokenizer: BertTokenizerFast, settings: Settings, pieces: np.ndarray) -> SentenceEncoder:
    """A BERT with random weights; the word embeddings are the teacher's vectors of single words."""
    torch.manual_seed(settings.seed)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=settings.width,
        num_hidden_layers=settings.layers,
        num_attention_heads=max(1, settings.width // 64),
        intermediate_size=settings.inner,
        max_position_embeddings=settings.longest,
        hidden_dropout_prob=0.0,  # Each sentence is seen only a few times.
        attention_probs_dropout_prob=0.0,
    )
    bert = BertModel(config, add_pooling_layer=False)
    table = bert.get_input_embeddings().weight
    start = torch.from_numpy(pieces).to(table)
    with torch.no_grad():
        table.copy_(start * (table.std() / start.std()))
    return SentenceEncoder(Transformer(bert, tokenizer), Pooling("mean"), Normalize())


def once_more(rows: list[Row], data: Path) -> list[Row]:
    """The rows that describe pictures, and a quarter as many others."""
    described = set(map(clean, cells(data, DESCRIPTIONS)))
    last = [row for row in rows if row[0] in described]
    return last + [row for row in rows if row[0] not in described][: len(last) // 4]


def similarity_of(data: Path, part: str) -> SimilarityEvaluator:
    """The evaluator of a part of the STS benchmark, dev or test."""
    rows = read_sts(data / "stsb" / f"{part}.tsv")
    return SimilarityEvaluator(*([row[name] for row in rows] for name in ("first", "second", "label")))


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


def write(student: SentenceEncoder, folder: Path, output: Path, reads: int) -> SentenceEncoder:
    """Save the model with weights in float16, and the log and the curve of the training; return the model as loaded."""
    with torch.no_grad():
        for weight in student.parameters():
            weight.copy_(weight.half())
    shutil.rmtree(folder, ignore_errors=True)  # From an earlier run.
    student.max_seq_length = reads
    student.to("cpu").save(folder)
    file = folder / "model.safetensors"
    halves = {name: weight.half() for name, weight in load_file(file).items()}
    file.write_bytes(as_bytes(halves, metadata={"format": "pt"}))
    entries = history(output)
    (output / "history.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    training_curves(entries, output / "training.png")
    return SentenceEncoder(folder)


def history(output: Path) -> list[dict[str, Any]]:
    """The history of both parts of the training, with continuous step numbers."""
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
    output: Path = options.output
    output.mkdir(parents=True, exist_ok=True)
    check_same(output, settings, options.teacher)
    print(settings, flush=True)

    texts = sentences(options.data, settings.most, settings.seed, output / "sentences.txt")
    tokenizer = make_tokenizer(texts, settings.words, output / "vocabulary")
    tokenizer.model_max_length = settings.longest
    teacher = load(options.teacher).to(options.device, torch.bfloat16)
    vectors = taught(teacher, texts, output / "vectors")
    turn = directions(vectors, settings.width, output / "directions.npy")
    words = [tokenizer.convert_ids_to_tokens(i).removeprefix("##") for i in range(len(tokenizer))]
    pieces = teacher.encode(words, normalize_embeddings=True, show_progress_bar=False) @ turn
    rows = list(zip(texts, vectors.astype(np.float32) @ turn, strict=True))
    student = make_student(tokenizer, settings, pieces).to(options.device)
    last = once_more(rows, options.data)
    print(f"{len(texts):,} sentences, {len(last):,} once more; a vocabulary of {len(tokenizer):,}", flush=True)

    dev = similarity_of(options.data, "dev")
    before = dev(student)["spearman"]
    runs = ((rows, settings.epochs, settings.rate), (last, settings.last_epochs, settings.last_rate))
    for part, (some, epochs, rate) in zip(PARTS, runs, strict=True):
        config = TrainingConfig(
            output / part,
            epochs=epochs,
            learning_rate=rate,
            batch_size=settings.batch,
            dtype="bfloat16",
            seed=settings.seed,
            evaluate_every=EVERY,
            checkpoint_every=EVERY,
            keep=1,
        )
        Trainer(student, some, Imitation(settings.weight), config, evaluator=dev).fit(resume=True)
    command = ["python -m examples.default_model.train --data FOLDER --output FOLDER", *["--smoke"] * options.smoke]
    command += ["--set", *options.set] if options.set else []
    folder = output / "model"
    after = dev(write(student, folder, output, settings.reads))["spearman"]
    print(f"STSb dev: {100 * before:.2f} before, {100 * after:.2f} after")
    text = card(
        folder,
        options.data,
        options.teacher,
        dims_of(settings),
        settings._asdict(),
        command=" ".join(command),
        words_of=WORDS_OF,
        sentences=len(texts),
        last=len(last),
        before=100 * before,
        after=100 * after,
    )
    (folder / "README.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
