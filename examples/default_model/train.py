"""Train the default model: layers of a teacher that learn the vectors of two teachers side by side.

python -m examples.default_model.train --data FOLDER --output FOLDER [--teachers MODEL MODEL ...]
    [--start MODEL ...] [--average] [--without FOLDER ...] [--wordnet FOLDER] [--smoke] [--device cuda]
    [--set NAME=VALUE ...]

Reads the free texts of FOLDER (nli, passages) and the functions of installed packages, except those that are held out
and those of the evaluation data sets. Writes OUTPUT/model, which sbert/default_model is a copy of, and
OUTPUT/history.jsonl and OUTPUT/training.png.

1. The vectors of each teacher, less most of their mean, and vectors of the texts' words stand side by side: their
   similarity is the weighted mean of those of the teachers and of the words.
2. The student starts as some layers of the first teacher, with the neurons and the tokens that the texts use most, or
   as the mean of earlier models, and with a linear layer that is fitted to those vectors.
3. It learns the vectors, the similarities and the ranking of the texts of each batch; with prior, the embeddings do not
   change, and those of rare tokens come from the first teacher's. At the end, the linear layer alone is trained more.

An interrupted run continues where it stopped, and keeps the teachers' vectors. --smoke runs everything on a small
sample, in minutes.
"""

import argparse
import json
import random
import shutil
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from hashlib import sha256
from importlib import import_module
from itertools import compress, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file
from safetensors.torch import save as as_bytes
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from examples.default_model.card import card
from examples.default_model.imitation import Imitation, Together, averaged, fit, neighbours, pruned, refined, smoothed
from examples.default_model.texts import (
    CODE,
    COLLECTIONS,
    LIBRARY,
    Pair,
    cached,
    excerpt,
    read_definitions,
    read_functions,
    read_pairs,
    read_sentences,
    sentences_of_evaluation,
    typed,
    with_rare_words,
    words_of,
)
from examples.paper.pretrain import key
from examples.shared import load
from sbert import SentenceEncoder, Trainer, TrainingConfig
from sbert.data import read_retrieval, read_sts
from sbert.evaluation import RetrievalEvaluator, SimilarityEvaluator
from sbert.search.index.bm25 import terms_of
from sbert.storage.atomic import write_text
from sbert.visualization import training_curves

TEACHERS = ["all-MiniLM-L6-v2", "intfloat/multilingual-e5-small"]
PART = 10_000  # Texts per file of vectors.
FITTED = 30_000  # Texts that the student's linear layer is fitted to, before the training.
REFINED = 70_000  # Texts that it alone is trained on, after the training.
COUNTED = 200_000  # Texts that tokens are counted in, to know the rare ones.
PROJECTED = 512  # Dimension of the vectors of words.
EVERY = 1500  # Steps between two evaluations, and two checkpoints.
DIMS = (256, 128, 64)


class Settings(NamedTuple):
    """The settings of the training."""

    layers: tuple[int, ...] = (0, 5)  # Layers of the first teacher.
    inner: int = 1024  # Neurons of each feed-forward layer.
    pieces: int = 22_000  # Tokens of the vocabulary.
    width: int = 256  # Dimension of the vectors.
    longest: int = 512  # max_seq_length.
    trained: int = 320  # max_seq_length in the training.
    sentences: int = 280_000
    pairs: int = 40_000  # Passages, each with its title and a query as people type it.
    joined: int = 1500  # More of them, behind another one.
    excerpts: int = 40_000  # More of them, of each so many words alone.
    words: tuple[int, ...] = (60, 90, 120, 180)
    functions: int = 15_000
    rare: int = 0  # Parts of passages with words that the other texts seldom have.
    definitions: int = 0  # Of WordNet.
    prior: int = 0  # A token that so many texts have keeps half of its own embedding; 0: all of it, and it learns.
    rest: float = 0.15  # Length of the mean of a teacher's vectors that is left.
    lexical: float = 0.1  # Share of the words in the similarities; the teachers have the rest.
    epochs: float = 1.6
    batch: int = 128
    rate: float = 5e-4
    distance: float = 0.3  # Weight of the distance from the teachers' vectors in the loss.
    weight: float = 30.0  # Weight of the similarities between texts.
    ranking: float = 1.0  # Weight of the ranking.
    added: float = 1.0  # Share of the mean of the vectors that is added to each, at the end.
    seed: int = 0  # Of the choice of the texts, and of their order.


SMOKE = Settings(sentences=2000, pairs=500, joined=20, excerpts=500, functions=100, epochs=1, batch=64)


class Texts(NamedTuple):
    """The texts of the training."""

    sentences: list[str]
    pairs: list[Pair]
    queries: list[str]  # A query for each pair, as people type it.

    def in_order(self) -> tuple[list[str], list[str]]:
        """Sentences, titles and queries; and passages."""
        titles, passages = map(list, zip(*self.pairs, strict=True))
        return [*self.sentences, *titles, *self.queries], passages


def read_texts(data: Path, output: Path, settings: Settings, wordnet: Path, without: Sequence[Path]) -> Texts:
    """The texts, cached in files; without the passages of runs that are in other folders."""
    if missing := [str(folder) for folder in without if not (folder / "pairs.jsonl").exists()]:
        raise SystemExit(f"{', '.join(missing)} has no pairs.jsonl; pass folders that this program wrote to")
    seed = settings.seed
    choose = random.Random(seed)
    sentences = cached(partial(read_sentences, data, seed), settings.sentences, seed, output / "sentences.jsonl")
    number = settings.pairs + settings.joined + settings.excerpts
    lines = (line for folder in without for line in (folder / "pairs.jsonl").read_text(encoding="utf-8").splitlines())
    used = {key(json.loads(line)[1]) for line in lines}
    unseen = (pair for pair in read_pairs(data, seed) if key(pair[1]) not in used)
    found = [(*pair,) for pair in cached(lambda: unseen, number, seed, output / "pairs.jsonl")]
    packages = f"{LIBRARY} {CODE}"
    code = cached(partial(read_functions, packages), settings.functions, seed, output / "functions.jsonl")
    whole, behind = found[: settings.pairs], found[settings.pairs :][: settings.joined]
    begin = [excerpt(pair, settings.words, choose) for pair in found[len(whole) + len(behind) :]]
    queries = [typed(pair, choose) for pair in whole]
    late = [(title, f"{choose.choice(found)[1]} {passage}") for title, passage in behind]
    queries += [typed(pair, choose) for pair in behind] + [typed((asks, asks), choose) for asks, _ in code]
    queries += [typed(pair, choose) for pair in begin]
    pairs = [*whole, *late, *map(tuple, code), *begin]
    known = [*sentences, *(text for pair in found for text in pair)]
    if settings.rare:
        read = partial(with_rare_words, data, known, found, seed)
        most = settings.rare
        rare = [(*pair,) for pair in cached(lambda: islice(read(), most), most, seed, output / "rare.jsonl")]
        pairs += rare
        queries += [typed(pair, choose) for pair in rare]
    if settings.definitions:
        words = Counter(word for text in [*known, *(text for _, text in pairs)] for word in words_of(text))
        read = partial(read_definitions, wordnet, data, {word for word, number in words.items() if number > 2}, seed)
        triples = cached(read, settings.definitions, seed, output / "definitions.jsonl")
        pairs += [(name, passage) for name, passage, _ in triples]
        queries += [query for *_, query in triples]
    seen = sentences_of_evaluation(data)
    kept = [seen.isdisjoint(map(key, (*pair, query))) for pair, query in zip(pairs, queries, strict=True)]
    return Texts(sentences, [*compress(pairs, kept)], [*compress(queries, kept)])


def taught(name: str, texts: Texts, device: str, folder: Path) -> np.ndarray:
    """A teacher's vectors of all texts, (texts, dim) float16; those of each part are cached in a file."""
    folder.mkdir(exist_ok=True)
    teacher: SentenceEncoder | None = None
    found = []
    short, long = texts.in_order()
    for method, some in (("encode_query", short), ("encode_document", long)):
        for part in (some[start : start + PART] for start in range(0, len(some), PART)):
            mark = sha256(json.dumps([Path(name).name, method, part]).encode()).hexdigest()
            path = folder / f"{mark}.npy"
            if not path.exists():
                if teacher is None:
                    teacher = load(name, dtype="bfloat16").to(device)
                    teacher.max_seq_length = 512
                vectors = getattr(teacher, method)(part, normalize_embeddings=True, on_truncate="ignore")
                half = path.with_suffix(".half")
                with half.open("wb") as file:
                    np.save(file, vectors.astype(np.float16))
                half.rename(path)
            found.append(np.load(path))
    return np.concatenate(found)


def of_words(texts: list[str]) -> np.ndarray:
    """Vectors of the texts' stems, (texts, 512) float32, of length 1: random projections of tf-idf vectors.

    Their similarity is that of the words, except for a random error of 0.04.
    """
    stems = partial(terms_of, language="english")
    weights = TfidfVectorizer(tokenizer=stems, token_pattern=None, sublinear_tf=True, min_df=2).fit_transform(texts)
    directions = np.random.default_rng(0).normal(size=(weights.shape[1], PROJECTED))
    return normalize(weights @ directions).astype(np.float32)


def side_by_side(several: list[np.ndarray], words: np.ndarray, rest: float, lexical: float, file: Path) -> np.ndarray:
    """The teachers' vectors and those of words side by side, along their principal directions.

    Of each teacher's vectors, so much of their mean is taken away that its length becomes ``rest``: all texts of some
    teachers are similar, and their differences would count little; without their whole mean, similarities of sentences
    agree less with people's. After the rotation, the first dimensions carry the most information, so that vectors can
    be truncated.

    Args:
        several: The vectors of each teacher, (texts, dim).
        words: Vectors of the words, (texts, dim).
        rest: Length of the mean that is left.
        lexical: Share of the words in the similarity; the teachers have equal parts of the rest.
        file: Where the directions are cached.

    Returns:
        (texts, sum of dims) float16, of length 1.
    """
    parts = []
    for vectors in several:
        mean = vectors.mean(0, dtype=np.float32)
        some = vectors.astype(np.float32) - max(0, 1 - rest / np.linalg.norm(mean)) * mean
        parts.append(some / np.linalg.norm(some, axis=1, keepdims=True).clip(1e-6))
    shares = [*[np.sqrt((1 - lexical) / len(parts))] * len(parts), np.sqrt(lexical)]
    joined = np.hstack([np.float32(share) * part for share, part in zip(shares, [*parts, words], strict=True)])
    if not file.exists():  # Cached, because another machine may flip the sign of a direction.
        half = file.with_suffix(".half.npy")
        np.save(half, np.linalg.eigh(joined.T @ joined)[1][:, ::-1])
        half.rename(file)
    return (joined @ np.load(file)).astype(np.float16)


def figures(data: Path, student: SentenceEncoder) -> dict[str, float]:
    """Spearman's correlation on the dev part of the STS benchmark, and nDCG@10 on the retrieval collections."""
    rows = read_sts(data / "stsb" / "dev.tsv")
    similarity = SimilarityEvaluator(*([row[name] for row in rows] for name in ("first", "second", "label")))
    collections = {name: RetrievalEvaluator(*read_retrieval(data / place)) for name, place in COLLECTIONS.items()}
    found = {name: evaluate(student)["ndcg@10"] for name, evaluate in collections.items()}
    return {"STSb": similarity(student)["spearman"], **found, "mean": float(np.mean(list(found.values())))}


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER")
    wordnet = Path("/usr/share/wordnet")
    parser.add_argument("--wordnet", type=Path, default=wordnet, metavar="FOLDER", help=f"WordNet 3.0; {wordnet}")
    parser.add_argument("--teachers", nargs="+", default=TEACHERS, help="folders or names; the first is a BERT")
    words = "continue with a model that this program made, or with the mean of the weights of several"
    parser.add_argument("--start", nargs="+", default=[], metavar="MODEL", help=words)
    parser.add_argument("--average", action="store_true", help="end with the mean of the weights at start and end")
    parser.add_argument("--without", nargs="+", type=Path, default=[], metavar="FOLDER", help="runs with other texts")
    parser.add_argument("--smoke", action="store_true", help="train a small model on few sentences")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="other settings")
    return parser.parse_args()


def check_same(output: Path, settings: Settings, options: argparse.Namespace) -> None:
    """Raise SystemExit if what a folder contains was made with other settings."""
    file = output / "settings.json"
    passed = {"teachers": [Path(name).name for name in options.teachers], "start": options.start}
    passed["without"] = [str(folder) for folder in options.without]
    fixed = json.loads(json.dumps(passed | settings._asdict()))
    if not file.exists():
        write_text(file, json.dumps(fixed))
    if (known := json.loads(file.read_text(encoding="utf-8"))) != fixed:
        raise SystemExit(f"{output} was created with {known}; pass the same settings, or another folder")


def learn(
    student: SentenceEncoder,
    rows: list[Any],
    loss: Imitation,
    sampler: Together,
    data: Path,
    folder: Path,
    settings: Settings,
) -> None:
    """Train the student; continues what an interrupted run left in the folder."""
    config = TrainingConfig(
        folder,
        dtype="bfloat16",
        epochs=settings.epochs,
        batch_size=settings.batch,
        learning_rate=settings.rate,
        sampler=sampler,
        seed=settings.seed,
        evaluate_every=EVERY,
        checkpoint_every=EVERY,
        keep=1,
        metric="STSb",
    )
    Trainer(student, rows, loss, config, evaluator=partial(figures, data)).fit(resume=True)


def write(student: SentenceEncoder, folder: Path, output: Path, longest: int) -> SentenceEncoder:
    """Save the model with weights in float16, the log and the curve; return the model as loaded."""
    with torch.no_grad():
        for weight in student.parameters():
            weight.copy_(weight.half())
    shutil.rmtree(folder, ignore_errors=True)  # From an earlier run.
    student.max_seq_length = longest
    student.to("cpu").save(folder)
    for file in folder.rglob("*.safetensors"):
        halves = {name: weight.half() for name, weight in load_file(file).items()}
        file.write_bytes(as_bytes(halves, metadata={"format": "pt"}))
    lines = (output / "imitation" / "history.jsonl").read_text(encoding="utf-8")
    (output / "history.jsonl").write_text(lines, encoding="utf-8")
    training_curves([json.loads(line) for line in lines.splitlines()], output / "training.png")
    return SentenceEncoder(folder)


def main() -> None:
    """Read, train, measure and write."""
    options = arguments()
    import_module("matplotlib")  # Needed at the end; fail early if it is missing.
    settings = SMOKE if options.smoke else Settings()
    changed = dict(part.split("=", 1) for part in options.set)
    settings = settings._replace(**{name: json.loads(value) for name, value in changed.items()})
    output, data = options.output, options.data
    output.mkdir(parents=True, exist_ok=True)
    check_same(output, settings, options)
    print(settings, flush=True)
    # On a CPU with AMX, the products one by one are faster than its fused attention: 0.69 s a step beside 0.92 on an
    # Intel Xeon of the fifth generation.
    torch.backends.cuda.enable_flash_sdp(False)

    texts = read_texts(data, output, settings, options.wordnet, options.without)
    several = [taught(name, texts, options.device, output / "vectors") for name in options.teachers]
    short, passages = texts.in_order()
    every = [*short, *passages]
    vectors = side_by_side(several, of_words(every), settings.rest, settings.lexical, output / "directions.npy")
    order = np.random.default_rng(settings.seed).permutation(len(every))
    counted, fit_texts, refine_texts = ([every[i] for i in order[:number]] for number in (COUNTED, FITTED, REFINED))
    if options.start:
        student, *others = (load(name).to("cpu") for name in options.start)
        if any(model.tokenizer.get_vocab() != student.tokenizer.get_vocab() for model in others):
            raise SystemExit("models with other vocabularies have no mean; pass --start with models of one family")
        student = averaged([*others, student], fit_texts) if others else student
    else:
        teacher = load(options.teachers[0]).to(options.device)
        student = pruned(teacher, every, settings.layers, settings.inner, settings.pieces, settings.longest)
    if settings.prior:
        folder = output / "smoothed"
        if not folder.exists():  # Saved, because another machine may round the map otherwise, and the run continues.
            smoothed(student.to("cpu"), load(options.teachers[0]).to("cpu"), counted, settings.prior).save(folder)
        student = load(str(folder))
        student[0].auto_model.get_input_embeddings().requires_grad_(False)
    student = fit(student.to(options.device), fit_texts, vectors[order[:FITTED], : settings.width])
    student.max_seq_length = settings.trained
    first = deepcopy(student).to("cpu")
    single, together = slice(len(texts.sentences)), slice(len(short), None)
    groups = [neighbours(vectors[part].astype(np.float32), settings.seed) for part in (single, together)]
    rows = list(zip(every, vectors, strict=True))
    loss = Imitation(settings.distance, settings.weight, settings.ranking)
    learn(student, rows, loss, Together(*groups), data, output / "imitation", settings)
    if options.average:
        student = averaged([first, student.to("cpu")], fit_texts)
    torch.manual_seed(settings.seed)
    student = refined(student.to("cpu"), refine_texts, vectors[order[:REFINED]], loss, settings.added)

    command = ["python -m examples.default_model.train --data FOLDER --output FOLDER", *["--smoke"] * options.smoke]
    command += ["--teachers", *["MODEL"] * len(options.teachers)] if options.teachers != TEACHERS else []
    command += ["--start", *["MODEL"] * len(options.start)] if options.start else []
    command += ["--average"] * options.average
    command += ["--without", *["FOLDER"] * len(options.without)] if options.without else []
    command += ["--set", *options.set] if options.set else []
    folder = output / "model"
    after = figures(data, write(student, folder, output, settings.longest))
    print({name: round(100 * value, 2) for name, value in after.items()})
    sizes = {"sentences": len(texts.sentences), "passages": len(texts.pairs)}
    dims = [dim for dim in DIMS if dim <= settings.width]
    text = card(folder, data, options.teachers, dims, settings._asdict(), command=" ".join(command), **sizes)
    (folder / "README.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
