"""Nothing of others is deleted, no two models are mixed, and damage to what was saved is noticed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from sbert import (
    LSTM,
    CrossEncoder,
    Dense,
    LayerNorm,
    Normalize,
    Pooling,
    SentenceEncoder,
    Transformer,
    WordEmbeddings,
    register_module,
)
from sbert.backends import huggingface
from sbert.cli import vector_cache
from sbert.pipeline.quantization import calibrate
from sbert.saving import verification
from sbert.search import Index, semantic_search
from sbert.search.index import files as index_files
from sbert.search.index import index as index_module
from sbert.training.run import checkpoint
from tests import small

TEXTS = ["a small boat", "lake"]


def tree(folder: Path) -> dict[str, Any]:
    """All that stands below a folder: contents of files, targets of links, names of folders."""
    return {
        str(path.relative_to(folder)): os.readlink(path)
        if path.is_symlink()
        else (path.read_bytes() if path.is_file() else None)
        for path in folder.rglob("*")
    }


def word_model(number: int) -> SentenceEncoder:
    """One of several that differ in everything that a folder holds."""
    words = WordEmbeddings(["a", "small", "boat", "lake"], torch.eye(4) * (number + 1), lower_case=bool(number % 2))
    pooling = Pooling(["mean", "max"] if number % 2 else ["max", "mean"])
    torch.manual_seed(number)
    prompts = {"query": f"prompt {number}"}
    return SentenceEncoder(words, pooling, Dense(8, 4), Normalize(), device="cpu", prompts=prompts)


def bert_model(number: int, folder: Path) -> SentenceEncoder:
    transformer = Transformer(small.bert(folder, number), max_seq_length=20 + number, lower_case=bool(number))
    prompts = {"query": f"prompt {number}"}
    return SentenceEncoder(transformer, Pooling("max" if number else "mean"), device="cpu", prompts=prompts)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.bert(tmp_path_factory.mktemp("bert") / "plain")


@pytest.fixture(scope="module")
def layouts(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders that saves have made, and one of transformers alone."""
    place = tmp_path_factory.mktemp("layouts")
    dim = [LayerNorm(16), Dense(16, 4), Normalize()]
    with pytest.warns(UserWarning, match="not every program reads"):
        SentenceEncoder(Transformer(bert), Pooling(), *dim, device="cpu").save(place / "bert")
    word_model(0).save(place / "words")
    lstm = [WordEmbeddings(["lake"], torch.eye(1)), LSTM(1, 2), Pooling()]
    SentenceEncoder(*lstm, device="cpu").save(place / "lstm")
    CrossEncoder(bert, device="cpu").save(place / "pairs")
    shutil.copytree(bert, place / "plain")
    huggingface_model = small.bert_model()
    huggingface_model.save_pretrained(place / "shards", max_shard_size="5KB")
    small.wrapped(small.wordpiece(), 64, chat_template="{{ messages }}").save_pretrained(place / "shards")
    assert len(list((place / "shards").glob("model-*.safetensors"))) > 1
    assert (place / "shards" / "chat_template.jinja").exists()
    return {path.name: path for path in place.iterdir()}


# ------------------------------------------------------------------------------------ 1: what a save replaces


def test_01_the_users_own_folder_is_not_taken_for_a_model(tmp_path: Path) -> None:
    own = tmp_path / "own"
    (own / "2024_results").mkdir(parents=True)
    for name in ("config.json", "notes.txt", "data.json", "2024_results/run.csv"):
        (own / name).write_text("{}")
    before = tree(own)
    with pytest.raises(
        ValueError, match=r"contains '2024_results', which is not part of a model.*save to another folder"
    ):
        word_model(0).save(own)
    for name in ("2024_results/run.csv", "notes.txt", "data.json"):
        (own / name).unlink()
    (own / "2024_results").rmdir()
    with pytest.raises(
        ValueError, match=r"contains 'config.json', which is not part of a model"
    ):  # It describes no model.
        word_model(0).save(own)
    assert tree(own) == {"config.json": before["config.json"]}


NAMES = (
    *("notes.txt", "data.json", "run.csv", "mine.model", "mine.bin", "weights.safetensors", "README.txt", "CARD.md"),
    *("model.safetensors.bak", "model.onnx", ".gitattributes", ".env", "config.json.orig", "tokenizer (1).json"),
    *("model-00001-of-00002.safetensors", "train.py", "history.jsonl", "results.md", "Config.json", "state.json"),
)
FOLDERS = ("2024_results", "onnx", "openvino", "data", ".git", "1_Mine", "training", "9_Dense", "additional", "a/b/c")


def strange(folder: Path, rng: random.Random) -> None:
    """Put something into a model's folder that no save writes."""
    inner = [path for path in folder.iterdir() if path.is_dir()]
    place = rng.choice([folder, folder, *inner])
    kind = rng.randrange(5)
    if kind == 0:  # A folder with files of the names that a model has, too.
        place = place / rng.choice(FOLDERS)
        place.mkdir(parents=True)
        (place / rng.choice(["config.json", "model.safetensors", "run.csv"])).write_text("mine")
    elif kind == 1:  # A folder under the name of a file.
        (place / rng.choice(["vocab.txt", "merges.txt", "spiece.model"]) / "mine").mkdir(parents=True)
    elif kind == 2:
        (place / rng.choice(["spm.model", "notes"])).symlink_to(folder.parent)
    elif kind == 3:  # What a model has at the top, but not in its modules' folders; and folders without files.
        (place / rng.choice(FOLDERS)).mkdir(parents=True)
    else:
        (place / rng.choice(NAMES)).write_text("mine")


def test_01_of_300_folders_nothing_foreign_is_deleted(layouts: dict[str, Path], bert: Path, tmp_path: Path) -> None:
    rng = random.Random(0)
    savers: list[Callable[[Path], None]] = [word_model(0).save, CrossEncoder(bert, device="cpu").save]
    names = sorted(layouts)
    for number in range(300):
        folder = tmp_path / str(number)
        shutil.copytree(layouts[names[number % len(names)]], folder)
        for _ in range(rng.randint(1, 3)):
            try:
                strange(folder, rng)
            except FileExistsError:
                continue
        before = tree(folder)
        with pytest.raises(ValueError, match=r"which is (not part of a model|a link), and saving would delete it"):
            rng.choice(savers)(folder)
        assert tree(folder) == before, number
        shutil.rmtree(folder)


def test_01_what_a_save_has_written_is_replaced(layouts: dict[str, Path], bert: Path, tmp_path: Path) -> None:
    """And what transformers has: otherwise no model could be saved to the same folder twice."""
    for name, source in layouts.items():
        for save in (word_model(1).save, CrossEncoder(bert, device="cpu").save):
            shutil.copytree(source, tmp_path / name)
            save(tmp_path / name)
            assert "model_type" not in tree(tmp_path / name)
            shutil.rmtree(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@register_module
class Meddler(nn.Module):
    """Puts a file into a folder when it is saved."""

    def __init__(self, place: Path) -> None:
        super().__init__()
        self.place = place

    @property
    def config(self) -> dict[str, Any]:
        self.place.write_text("months of it")
        return {"place": str(self.place)}

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        return vectors


@pytest.mark.parametrize("name", ["notes.txt", "1_Pooling/notes.txt"])
def test_01_what_comes_while_a_save_runs_is_kept(tmp_path: Path, name: str) -> None:
    """The folder was a model's when the save began."""
    target = tmp_path / "model"
    word_model(0).save(target)
    model = SentenceEncoder(*word_model(1), Meddler(target / name), device="cpu")
    with pytest.warns(UserWarning, match=r"(known to sbert alone|move them where they belong)") as said:
        model.save(target)
    [kept] = tmp_path.glob("model.replaced-*")
    assert any(str(kept) in str(each.message) for each in said)
    assert (kept / name).read_text() == "months of it"
    np.testing.assert_array_equal(
        SentenceEncoder(kept, device="cpu").encode(TEXTS), word_model(0).encode(TEXTS)
    )  # It is whole.
    again = SentenceEncoder(target, device="cpu")
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))
    assert {path.name for path in tmp_path.iterdir()} == {"model", kept.name}


def test_01_what_came_before_a_save_was_killed_is_kept(tmp_path: Path) -> None:
    """Between the exchange of the two folders and the removal of the old one."""
    target = tmp_path / "model"
    word_model(0).save(target)
    code = (
        "import os, sys; from pathlib import Path\n"
        "from sbert import SentenceEncoder; from sbert.storage import atomic\n"
        "model = SentenceEncoder(sys.argv[1], device='cpu')\n"
        "def dies(old, *_): (old / 'notes.txt').write_text('months of it'); os.kill(os.getpid(), 9)\n"
        "atomic._discard = dies; model.save(sys.argv[1])"
    )
    assert subprocess.run([sys.executable, "-c", code, str(target)]).returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 2
    with pytest.warns(UserWarning, match="move them where they belong"):
        word_model(1).save(target)
    [kept] = tmp_path.glob("model.replaced-*")
    assert (kept / "notes.txt").read_text() == "months of it"
    assert len(list(tmp_path.iterdir())) == 2


def test_01_old_checkpoints_with_files_of_others_stay(tmp_path: Path) -> None:
    def write(step: int) -> Path:
        return checkpoint.write(tmp_path, step, word_model(0), {"x": torch.zeros(1)}, {"step": step}, keep=1)

    first = write(1)
    (first / "training" / "notes.txt").write_text("mine")
    for half in (".step-mine", ".step-3.notes"):
        (tmp_path / half).mkdir()
    with pytest.warns(UserWarning, match=r"step-00000001 is not removed: it holds 'training/notes.txt'"):
        write(2)
    (first / "training" / "notes.txt").unlink()
    write(3)
    assert {path.name for path in tmp_path.iterdir()} == {".step-mine", ".step-3.notes", "step-00000003"}
    assert write(3) == tmp_path / "step-00000003"  # One that is there is replaced.
    with pytest.raises(ValueError, match="contains 'training', which is not part of a model"):
        word_model(0).save(tmp_path / "step-00000003")


def test_01_folders_of_indexes_and_vectors_are_looked_through(tmp_path: Path) -> None:
    index = Index()
    index.add(np.eye(3))
    index.save(tmp_path / "index")
    (tmp_path / "index" / "graph.faiss").mkdir()
    (tmp_path / "index" / "graph.faiss" / "mine").touch()
    with pytest.raises(ValueError, match=r"contains 'graph\.faiss', which is not part of an index"):
        index.save(tmp_path / "index")
    (tmp_path / "vectors" / "vectors.npy").mkdir(parents=True)
    with pytest.raises(FileExistsError, match=r"'vectors\.npy', which sbert did not write"):
        vector_cache._check(tmp_path / "vectors")


# ------------------------------------------------------------------------- 2: loading while others save

SAVER = """
import random, select, sys, torch
from sbert import CrossEncoder, SentenceEncoder
torch.set_num_threads(int(sys.argv[5]))  # By which the last digits of a reference's vectors differ.
kind = {"SentenceEncoder": SentenceEncoder, "CrossEncoder": CrossEncoder}[sys.argv[1]]
models = [kind(folder, device="cpu") for folder in sys.argv[2:4]]
models[0].save(sys.argv[4])
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    random.choice(models).save(sys.argv[4])  # In turns, a reader that takes as long as two saves would see but one.
"""


@contextmanager
def saving(kind: str, folders: list[Path], target: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that saves one of two models, without a pause."""
    command = [sys.executable, "-c", SAVER, kind, *map(str, folders), str(target), str(torch.get_num_threads())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.communicate("stop\n")
    assert process.returncode == 0


def seen(model: SentenceEncoder) -> list[Any]:
    """All that a folder decides."""
    vectors, reference = model.encode(TEXTS), model._reference
    assert reference is not None
    return [vectors.tobytes(), model.prompts, reference["vectors"].tobytes(), str(model), model.max_seq_length]


def mixed_loads(kind: str, folders: list[Path], load: Callable[[Path], Any], loads: int) -> tuple[int, list[int]]:
    """How many loads gave neither model, and how many each of them.

    At least this many loads, and more until the model has changed ten times: on a slow disk, saving takes the longer.
    """
    expected = [load(folder) for folder in folders]
    counts, mixed, changes, last = [0, 0], 0, 0, -1
    target = folders[0].parent / "target"
    with saving(kind, folders, target) as process:
        while (sum(counts) < loads or changes < 10) and mixed == 0 and process.poll() is None:
            found = load(target)
            if found not in expected:
                mixed += 1
                continue
            last, previous = expected.index(found), last
            counts[last] += 1
            changes += previous not in (-1, last)
    return mixed, counts


def mixed_encoders(models: list[SentenceEncoder], place: Path, loads: int) -> None:
    folders = [place / "a", place / "b"]
    for model, folder in zip(models, folders, strict=True):
        model.save(folder)
        assert SentenceEncoder(folder, device="cpu").verify(tolerance=0)
    mixed, counts = mixed_loads(
        "SentenceEncoder", folders, lambda path: seen(SentenceEncoder(path, device="cpu")), loads
    )
    assert mixed == 0
    assert min(counts) > 0


def test_02_500_loads_while_another_process_saves(tmp_path: Path) -> None:
    mixed_encoders([word_model(0), word_model(1)], tmp_path, 500)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:not every program reads this model")
def test_02_transformers_load_whole_while_another_process_saves(tmp_path: Path) -> None:
    mixed_encoders([bert_model(number, tmp_path / f"plain{number}") for number in range(2)], tmp_path, 25)


@pytest.mark.slow
def test_02_cross_encoders_load_whole_while_another_process_saves(tmp_path: Path) -> None:
    """Saving one takes less time than loading it: without waiting, no load would find one folder."""
    folders, pairs = [tmp_path / "a", tmp_path / "b"], [("a small boat", "lake")]
    for number, activation in enumerate((nn.Tanh(), nn.Identity())):
        torch.manual_seed(number)
        bert = small.bert(tmp_path / f"plain{number}", number)
        CrossEncoder(bert, device="cpu", activation=activation).save(folders[number])
    mixed, counts = mixed_loads(
        "CrossEncoder", folders, lambda path: CrossEncoder(path, device="cpu").predict(pairs).tobytes(), 12
    )
    assert mixed == 0
    assert min(counts) > 0


def exchanged(place: Path, name: str) -> None:
    """What ``save`` does when it ends, in the thread that reads."""
    os.rename(place / "model", place / "old")
    shutil.copytree(place / name, place / "model")


def test_02_a_reference_is_that_of_the_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last file that is read."""
    for number, name in enumerate(("model", "other")):
        word_model(number).save(tmp_path / name)
    real, calls = verification.read, []

    def read(path: Path) -> Any:
        calls.append(path)
        if len(calls) == 1:
            exchanged(tmp_path, "other")
        return real(path)

    monkeypatch.setattr(verification, "read", read)
    model = SentenceEncoder(tmp_path / "model", device="cpu")
    assert len(calls) == 2
    assert model.prompts == {"query": "prompt 1"}
    assert model.verify(tolerance=0)


def test_02_what_is_read_later_is_of_the_same_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tokenizer of transformers is made when it is asked for."""
    small.bert(tmp_path / "model")
    small.bert_model().save_pretrained(tmp_path / "other")
    small.wrapped(small.wordpiece(), 7).save_pretrained(tmp_path / "other")
    model = SentenceEncoder(tmp_path / "model", device="cpu")
    real = huggingface.load_tokenizer

    def load(folder: Path, options: dict[str, Any]) -> Any:
        exchanged(tmp_path, "other")
        return real(folder, options)

    monkeypatch.setattr(huggingface, "load_tokenizer", load)
    assert model.tokenizer.model_max_length == 64


def test_02_a_module_alone_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, name in enumerate(("model", "other")):
        small.bert(tmp_path / name, number)
    (tmp_path / "model" / "added_tokens.json").write_text("{}")  # For transformers to read.
    real, calls = huggingface.load_tokenizer, []

    def load(folder: Path, options: dict[str, Any]) -> Any:
        calls.append(folder)
        if len(calls) == 1:
            exchanged(tmp_path, "other")
        return real(folder, options)

    monkeypatch.setattr(huggingface, "load_tokenizer", load)
    weights = Transformer(tmp_path / "model").auto_model.embeddings.word_embeddings.weight
    expected = Transformer(tmp_path / "other").auto_model.embeddings.word_embeddings.weight
    assert torch.equal(weights, expected)


def test_02_a_folder_that_is_replaced_all_the_time_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("model", "other"):
        word_model(0).save(tmp_path / name)
    real = verification.read

    def read(path: Path) -> Any:
        shutil.rmtree(tmp_path / "old", ignore_errors=True)
        exchanged(tmp_path, "other")
        return real(path)

    monkeypatch.setattr(verification, "read", read)
    with pytest.raises(ValueError, match=r"model was replaced \d+ times while it was read; load it while"):
        SentenceEncoder(tmp_path / "model", device="cpu")


# -------------------------------------------------------------------------- 15: what is left, and what is damaged


def test_15_what_killed_writers_of_texts_have_left_is_removed(tmp_path: Path) -> None:
    from sbert.storage.atomic import write_text

    code = (
        "import os, sys; from pathlib import Path; from sbert.storage import atomic\n"
        "os.replace = lambda *_: os.kill(os.getpid(), 9)\n"
        "atomic.write_text(Path(sys.argv[1]), 'half')"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "x.csv")]).returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 1
    write_text(tmp_path / "x.csv", "whole")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"x.csv": "whole"}


def altered(path: Path, position: int, rng: random.Random) -> Iterator[None]:
    """One byte of a file is another one for a while."""
    content = path.read_bytes()
    byte = content[position] ^ rng.randrange(1, 256)
    path.write_bytes(content[:position] + bytes([byte]) + content[position + 1 :])
    yield
    path.write_bytes(content)


@pytest.mark.parametrize("backend", ["exact", "usearch", "faiss"])
def test_15_no_altered_file_of_an_index_is_loaded(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 alterations of each file; a graph's never reach the library that would trust it."""
    if backend != "exact":
        pytest.importorskip(backend)
    corpus = np.random.default_rng(0).standard_normal((40, 6)).astype(np.float32)
    options: dict[str, Any] = {"precision": "int8", "ranges": calibrate(corpus)} if backend == "exact" else {}
    index = Index(backend=backend, **options)
    index.add(corpus, [f"id {row}" for row in range(40)])
    index.save(tmp_path / "index")
    assert len(Index.load(tmp_path / "index")) == 40
    if backend != "exact":

        def graph(*_: Any) -> Any:
            raise AssertionError("the graph was read")

        monkeypatch.setattr(index_module, "Graph", graph)
    rng = random.Random(0)
    files = sorted((tmp_path / "index").iterdir())
    assert len(files) == (3 if backend == "exact" else 4)
    for path in files:
        size = path.stat().st_size
        for position in [*range(min(size, 12)), *(rng.randrange(size) for _ in range(60))]:
            for _ in altered(path, position, rng):
                if path.name == "index.json" and _same_json(path, index):
                    continue
                with pytest.raises(ValueError, match=rf"{path.name} (is not what|cannot be read|is not of format)"):
                    Index.load(tmp_path / "index")


def _same_json(path: Path, index: Index) -> bool:
    """Whether a description says the same: space between its parts may be another."""
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return bool(described.pop("crc32", None) == index_files._checksum(described))


def test_15_vectors_that_were_exchanged_for_others_are_noticed(tmp_path: Path) -> None:
    """Of the same size and form; and rows in another order."""
    corpus = np.random.default_rng(0).standard_normal((40, 6)).astype(np.float32)
    index = Index()
    index.add(corpus)
    index.save(tmp_path / "index")
    for other in (corpus + 1, corpus[::-1].copy(), np.asfortranarray(corpus)):
        np.save(tmp_path / "index" / "vectors.npy", other)
        with pytest.raises(ValueError, match=r"vectors\.npy is not what was saved: its checksum differs; save the"):
            Index.load(tmp_path / "index")
        assert len(Index.load(tmp_path / "index", verify=False)) == 40  # Who says so has them mapped, and not read.
    np.save(tmp_path / "index" / "vectors.npy", corpus)
    assert len(Index.load(tmp_path / "index")) == 40


def test_15_a_damaged_header_is_a_named_error(tmp_path: Path) -> None:
    """Python's parser, which NumPy has read it, has errors of its own."""
    path = tmp_path / "vectors.npy"
    np.save(path, np.eye(3, dtype=np.float32))
    rng, refused = random.Random(0), 0
    for position in range(80):
        for byte in (ord("("), ord("'"), rng.randrange(256)):
            content = bytearray(path.read_bytes())
            content[position] = byte
            (tmp_path / "damaged.npy").write_bytes(content)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    semantic_search(np.eye(3), tmp_path / "damaged.npy", top_k=1)
            except ValueError:
                refused += 1
    assert refused > 150


def test_15_altered_ranges_of_kept_codes_are_noticed(tmp_path: Path) -> None:
    """They stand beside the vectors of ``sbert search``, and say what the codes mean."""
    model = word_model(0)
    model.save(tmp_path / "model")
    arguments: Any = (model, tmp_path / "model", ["a", "boat", "lake"], "int8", tmp_path / "kept" / "place", False)
    expected = vector_cache.document_vectors(*arguments)
    path = tmp_path / "kept" / "place" / "vectors.json"
    described = json.loads(path.read_text())
    described["ranges"][0][0] -= 1
    path.write_text(json.dumps(described))
    found = vector_cache.document_vectors(*arguments)
    np.testing.assert_array_equal(found.ranges, expected.ranges)
