"""What is given is read as what it is, or refused: frames, files, unknown letters, misspelt arguments."""

from __future__ import annotations

import copy
import gzip
import inspect
import json
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas
import polars
import pyarrow
import pytest
import torch

from sbert import (
    LSTM,
    CrossEncoder,
    Dense,
    Pooling,
    SentenceEncoder,
    StaticEmbedding,
    Transformer,
    WordEmbeddings,
)
from sbert.backends.huggingface import load_adapter
from sbert.chunking.encode import encode_chunks, split
from sbert.cli.main import main
from sbert.data import read_classes, read_rows, read_sts, read_texts
from sbert.evaluation import RerankingEvaluator, SimilarityEvaluator
from sbert.losses import MultipleNegativesRankingLoss
from sbert.search import Index, cluster, mine_hard_negatives, topic_words
from sbert.training import Rows, Trainer, TrainingConfig
from sbert.visualization.formats import check_plot
from sbert.visualization.projection import project
from tests import small

TEXTS = ["a small boat", "the red fox runs", "one two three"]
COLUMNS = {"id": [1, 2, 3], "text": TEXTS}
PAIRS = {"anchor": TEXTS, "positive": TEXTS[::-1]}


def frames(columns: dict[str, list[Any]]) -> dict[str, Any]:
    """The same columns in all that has some."""
    table = pyarrow.table(columns)
    return {
        "pandas": pandas.DataFrame(columns),
        "polars": polars.DataFrame(columns),
        "lazy": polars.LazyFrame(columns),
        "table": table,
        "batch": table.to_batches()[0],
        "dataset": datasets.Dataset.from_dict(columns),
        "stream": datasets.Dataset.from_dict(columns).to_iterable_dataset(),
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    SentenceEncoder(Transformer(small.bert(root / "bert")), Pooling("mean"), device="cpu").save(root / "small")
    return root / "small"


@pytest.fixture(scope="module")
def model(folder: Path) -> SentenceEncoder:
    return SentenceEncoder(folder, device="cpu")


@pytest.fixture(scope="module")
def scorer(folder: Path) -> CrossEncoder:
    return CrossEncoder(folder, classes=1, device="cpu")


# --------------------------------------------------------------------------------------------- 4: data frames


@pytest.mark.parametrize("kind", [*frames(COLUMNS), "dict", "structured"])
def test_04_what_has_columns_is_no_list_of_texts(model: SentenceEncoder, kind: str) -> None:
    made = {**frames(COLUMNS), "dict": COLUMNS, "structured": np.array([(1, "a")], [("id", "i4"), ("text", "U9")])}
    for call in (model.encode, model.encode_query, model.tokenize, lambda given: split(model, given, 9)):
        with pytest.raises(TypeError, match=r" (columns|keys) id, text; pass .*(sentences|documents)\[.*'text'\]") as e:
            call(made[kind])
        if kind not in ("lazy", "stream"):  # Of which the first values would cost something.
            assert "['id']" not in str(e.value)


def test_04_a_file_is_not_begun_for_a_frame(model: SentenceEncoder, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"sentences is a DataFrame with the columns id, text"):
        model.encode(pandas.DataFrame(COLUMNS), out=tmp_path / "v.npy")
    assert not list(tmp_path.iterdir())


def test_04_columns_of_texts_are_read(model: SentenceEncoder, tmp_path: Path) -> None:
    expected = model.encode(TEXTS)
    chunked = pyarrow.chunked_array([TEXTS[:1], TEXTS[1:]])
    for given in (
        pyarrow.array(TEXTS),
        pyarrow.array(TEXTS).dictionary_encode(),
        chunked,
        polars.Series(TEXTS),
        pandas.Series(TEXTS, index=[5, 5, 1]),
        pandas.DataFrame(COLUMNS)["text"],
        pyarrow.table(COLUMNS)["text"],
        datasets.Dataset.from_dict(COLUMNS)["text"],
        np.array(TEXTS),
    ):
        assert np.array_equal(model.encode(given), expected)
    assert np.array_equal(model.encode(chunked, out=tmp_path / "v.npy"), expected)


@pytest.mark.parametrize("series", [pandas.Series, polars.Series, pyarrow.array])
def test_04_missing_texts_are_named_by_row(model: SentenceEncoder, series: Callable[[list[Any]], Any]) -> None:
    with pytest.raises(TypeError, match=r"sentences\[1\] is of type (NoneType|float)"):
        model.encode(series(["a", None, "b"]))


def test_04_rows_that_are_dicts_name_their_keys(model: SentenceEncoder) -> None:
    with pytest.raises(TypeError, match=r"sentences\[0\] is a dict with the keys id, text; pass the texts of one key"):
        model.encode([{"id": 1, "text": "a"}])


def test_04_frames_where_others_take_texts_or_pairs(model: SentenceEncoder, scorer: CrossEncoder) -> None:
    frame = pandas.DataFrame({"query": TEXTS[:2], "answer": TEXTS[1:]})
    two = r"query, answer; pass the texts of one of them: documents\['query'\] or documents\['answer'\]"
    with pytest.raises(TypeError, match=two):
        scorer.rank("a small boat", frame)
    for given in frames({"query": TEXTS, "answer": TEXTS}).values():
        with pytest.raises(TypeError, match=r"such as zip\(pairs\['query'\], pairs\['answer'\]\)"):
            scorer.predict(given)
    named = pandas.DataFrame([["x", "y"]], columns=pandas.MultiIndex.from_tuples([("a", "b"), ("c", "d")]))
    with pytest.raises(TypeError, match="such as zip"):
        scorer.predict(named)  # The names are pairs of str.
    assert scorer.predict(zip(frame["query"], frame["answer"], strict=True)).shape == (2,)
    with pytest.raises(TypeError, match=r"sentences1|first"):
        SimilarityEvaluator(frame, frame, [0.0, 1.0])
    with pytest.raises(TypeError, match=r"samples\[0\]\['positive'\] is a DataFrame"):
        RerankingEvaluator([{"query": "a", "positive": frame, "negative": ["b"]}])
    with pytest.raises(TypeError, match=r"texts is a DataFrame"):
        topic_words(frame, [0, 1])
    with pytest.raises(TypeError, match=r"corpus is a DataFrame"):
        mine_hard_negatives(model, [("a", "b")], frame)


@pytest.mark.parametrize("kind", frames(PAIRS))
def test_04_a_frame_is_training_data(kind: str) -> None:
    rows = Rows(frames(PAIRS)[kind], MultipleNegativesRankingLoss())
    assert [rows.texts(row) for row in range(len(rows))] == list(zip(TEXTS, TEXTS[::-1], strict=True))


def test_04_a_frame_of_training_data_says_what_is_wrong_with_it(model: SentenceEncoder) -> None:
    frame = pandas.DataFrame({"score": [0.5, 1.0], "one": TEXTS[:2], "two": ["a", None]})
    loss = SimilarityLoss()
    assert Rows(frame.iloc[:1], loss, columns=["one", "two"]).labels.tolist() == [0.5]  # type: ignore[union-attr]
    with pytest.raises(TypeError, match=r"data, row 1: column 1 holds nan of type float"):
        Rows(frame, loss, columns=["one", "two"])
    with pytest.raises(ValueError, match=r"two columns of the DataFrame have the same name: a, a"):
        Rows(pandas.DataFrame([["x", "y"]], columns=["a", "a"]), loss)
    with pytest.raises(TypeError, match=r"anchor, row 0 is of type str \(a dict of columns .*data frame"):
        Trainer(model, PAIRS, MultipleNegativesRankingLoss())
    pairs = pandas.DataFrame({"anchor": TEXTS[:1], "positive": TEXTS[1:2]})
    assert mine_hard_negatives(model, pairs, TEXTS)[0]["negative"] == TEXTS[2]


class SimilarityLoss(torch.nn.Module):
    def forward(self, first: torch.Tensor, second: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return ((first * second).sum(1) - labels).square().mean()


# --------------------------------------------------------------------------------------------------- 5: files


def parquet(path: Path, columns: dict[str, list[Any]]) -> Path:
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], folder: Path) -> Callable[..., tuple[int, str, str]]:
    def call(*words: object) -> tuple[int, str, str]:
        code = main([str(folder if word == "MODEL" else word) for word in words])
        written = capsys.readouterr()
        return code, written.out, written.err

    return call


def test_05_parquet_and_json_arrays_are_read(run: Any, model: SentenceEncoder, tmp_path: Path) -> None:
    objects = [{"id": i, "text": text} for i, text in enumerate(TEXTS)]
    made = {
        "a.parquet": (None, "text"),
        "a.json": (json.dumps(TEXTS, indent=1), None),
        "b.json": ("\n " + json.dumps(objects), "text"),
        "c.json": ("".join(json.dumps(row) + "\n" for row in objects), "text"),  # As many call JSONL.
        "d.JSON": ("\n".join(map(json.dumps, TEXTS)), None),
        "e.tab": ("id\ttext\n" + "".join(f"1\t{text}\n" for text in TEXTS), "text"),
        "notes.md": ("\n".join(TEXTS), None),
        "corpus.en": ("\n".join(TEXTS), None),
        "plain": ("\n".join(TEXTS), None),
    }
    parquet(tmp_path / "a.parquet", COLUMNS)
    for name, (content, column) in made.items():
        if content is not None:
            (tmp_path / name).write_text(content, encoding="utf-8")
        assert list(read_texts(tmp_path / name, column)) == TEXTS, name
        packed = tmp_path / f"{name}.gz"
        packed.write_bytes(gzip.compress((tmp_path / name).read_bytes()))
        assert list(read_texts(packed, column)) == TEXTS, packed
    for name, column in (("a.parquet", "text"), ("b.json", "text"), ("a.json", None)):
        words = ["--column", column] if column else []
        code, _, err = run("encode", "MODEL", tmp_path / name, *words, "-o", tmp_path / "v.npy")
        assert (code, err) == (0, "")
        assert np.array_equal(np.load(tmp_path / "v.npy"), model.encode(TEXTS))
    code, out, _ = run("pairs", "MODEL", tmp_path / "a.parquet", "--column", "text", "--json", "--max-pairs", 1)
    assert code == 0
    assert set(json.loads(out)["texts"]) <= set(TEXTS)
    code, out, _ = run("search", "MODEL", tmp_path / "a.json", TEXTS[1], "--no-cache", "--json", "--top-k", 1)
    assert (code, json.loads(out)["text"]) == (0, TEXTS[1])


def test_05_rows_for_training_and_evaluation_from_parquet_and_json(tmp_path: Path) -> None:
    columns = {"sentence1": TEXTS, "sentence2": TEXTS[::-1], "score": [0.0, 2.5, 5.0]}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    parquet(tmp_path / "a.parquet", columns)
    (tmp_path / "a.json").write_text(json.dumps(rows, indent=2), encoding="utf-8")
    expected = [{**row, "label": row["score"]} for row in rows]
    for row in expected:
        del row["score"]
    for name in ("a.parquet", "a.json"):
        assert list(read_rows(tmp_path / name, ["sentence1", "sentence2"], "score")) == expected
        assert read_classes(tmp_path / name, "score") == ["0.0", "2.5", "5.0"]
        assert [row["label"] for row in read_sts(tmp_path / name)] == [0.0, 0.5, 1.0]
        assert [row["first"] for row in read_sts(tmp_path / name)] == TEXTS


def test_05_training_from_a_parquet_file(run: Any, folder: Path, tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", PAIRS)
    options = f"--columns anchor,positive --loss ranking --steps 1 --batch-size 3 --output {tmp_path / 'out'} --quiet"
    assert run("train", "--model", folder, "--data", path, *options.split()) == (0, "", "")
    assert (tmp_path / "out" / "final" / "modules.json").exists()


@pytest.mark.parametrize(
    ("name", "content", "column", "message"),
    [
        ("a.xlsx", b"PK\x03\x04", None, "ends in .xlsx, which is not supported: sbert reads plain text"),
        ("a.PDF.gz", b"%PDF", None, "ends in .pdf, which is not supported"),
        ("a.npy", b"\x93NUMPY", None, "ends in .npy, which is not supported"),
        ("a.html", b"<p>a</p>", None, "ends in .html, which is not supported"),
        ("a.dat", b"one\ntwo\0\n", None, "a.dat, line 2: a NUL byte; convert the text to UTF-8 (sbert reads"),
        ("plain", "one".encode("utf-16-le"), None, "plain, line 1: a NUL byte"),
        ("plain", b"\x89PNG\r\n", None, "plain, line 1: not UTF-8"),
        ("a.parquet", b"PAR1 and nothing", "text", "a.parquet: not a valid Parquet file"),
        ("a.parquet", b"", "text", "a.parquet: not a valid Parquet file"),
        ("a.json", b'["a", "b"', None, "a.json, line 1: not a JSON array"),
        (
            "a.json",
            b'["a"]\n["b"]\n',
            None,
            "line 2: not a JSON array (Extra data at character 1); fix it, or pass",
        ),
        ("a.json", b'["a", 1]', None, "a.json, element 2: a number where a text is expected; put a string there"),
        ("a.json", b'[{"t": "a"}]', None, "element 1: an object where a text is expected; name the column"),
        ("a.json", b'[{"t": "a"}, {"x": "b"}]', "t", "a.json, element 2: no key 't'; the keys are x"),
        ("a.jsonl", b'["a", "b"]', None, "a.jsonl, line 1: a list where a text is expected; put a string there"),
    ],
)
def test_05_other_files_are_refused_by_name(
    run: Any, tmp_path: Path, name: str, content: bytes, column: str | None, message: str
) -> None:
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    words = [] if column is None else ["--column", column]
    code, out, err = run("encode", "MODEL", tmp_path / name, *words, "-o", tmp_path / "v.npy")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"{tmp_path / name}" in err
    assert message in err
    assert not (tmp_path / "v.npy").exists()


def test_05_parquet_names_its_columns(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", {**COLUMNS, "note": [None, "a", "b"]})
    with pytest.raises(ValueError, match=r"a.parquet has columns; name the one that holds the texts"):
        read_texts(path)
    with pytest.raises(ValueError, match=r"no columns 'body'; name one that occurs once, of id, text, note"):
        list(read_texts(path, "body"))
    with pytest.raises(ValueError, match=r"a.parquet, row 1: null where a text is expected; put a string there"):
        list(read_texts(path, "note"))
    with pytest.raises(ValueError, match=r"a.parquet, row 1: column 'note' is empty"):
        list(read_rows(path, ["text", "note"]))


def test_05_an_empty_file_is_worth_a_warning(run: Any, tmp_path: Path) -> None:
    for name, content in (("a.txt", ""), ("a.json", "[]"), ("b.json", ""), ("a.jsonl", "")):
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        code, out, err = run("encode", "MODEL", path, "-o", tmp_path / "v.npy")
        assert (code, out) == (0, f"{tmp_path / 'v.npy'}: 0 vectors of 16 float32\n")
        assert err == f"sbert: warning: {path} contains no texts, so {tmp_path / 'v.npy'} contains no vectors\n"
        code, _, err = run("pairs", "MODEL", path)
        assert (code, err) == (2, f"sbert: error: {path} contains no text; pass another file\n")


# --------------------------------------------------------------------------------------- 19: missing extras


@pytest.mark.parametrize(
    ("package", "call", "message"),
    [
        ("matplotlib", lambda: check_plot("a.png"), 'a plot needs matplotlib; run: pip install "sbert[plot]"'),
        ("sklearn", lambda: cluster(np.eye(9), "kmeans", clusters=2), "\"sbert[cluster]\", or pass 'community'"),
        ("sklearn", lambda: project(np.eye(9), method="tsne"), "\"sbert[plot]\", or pass method='pca'"),
        ("faiss", lambda: Index(4, backend="faiss"), 'needs faiss-cpu; run: pip install "sbert[search]"'),
        (
            "peft",
            lambda: load_adapter(torch.nn.Linear(1, 1), Path("a")),
            'needs peft; run: pip install "sbert[adapters]"',
        ),
        (
            "pyarrow",
            lambda: list(read_texts(__file__, "a", "parquet")),
            'needs pyarrow; run: pip install "sbert[parquet]"',
        ),
    ],
)
def test_19_what_is_not_installed_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, package: str, call: Callable[[], Any], message: str
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError) as error:
        call()
    assert message in str(error.value)


def test_19_every_extra_holds_what_it_is_named_for() -> None:
    root = Path(__file__).parent.parent.parent
    extras = dict(
        re.findall(r"^(\w+) = (\[.*\])$", (root / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    )
    sources = "".join(path.read_text(encoding="utf-8") for path in (root / "sbert").rglob("*.py"))
    named = re.findall(r'(?:missing|needed)\([^,]+, "?([\w-]+)"?, "(\w+)"', sources)
    assert len(named) >= 8
    for package, extra in named:
        assert package == "package" or f'"{package}"' in extras[extra]
    assert not re.search(r"pip install (?!\"sbert|sbert\b|tomli\b)", sources)


# ------------------------------------------------------------------------------------- 10: unknown letters

KOREAN = ["오늘은 날씨가 맑다", "고양이가 소파에서 잔다", "세금이 오른다"]
SHARE = (
    r"^unknown tokens: \d+% of the tokens of these {} are not in the model's vocabulary.*use a model for that language"
)


def encoder(tokenizer: Any) -> SentenceEncoder:
    """A BERT of two layers with a tokenizer."""
    network = small.bert_model()
    network.resize_token_embeddings(tokenizer.get_vocab_size())
    return SentenceEncoder(Transformer(network, small.wrapped(tokenizer, 64)), Pooling("mean"), device="cpu")


def told(call: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(warning.message) for warning in caught]


def test_10_the_model_of_the_library_says_what_it_does_not_know() -> None:
    model = SentenceEncoder(device="cpu")
    assert told(lambda: model.encode(["A cat sleeps → on the sofa ☃.", "Taxes rise again in spring, they say."])) == []
    (message,) = told(lambda: model.encode(KOREAN))
    tokens = model.tokens(KOREAN)
    own = [i for row in range(3) for i in tokens.ids[tokens.offsets[row] + 1 : tokens.offsets[row + 1] - 1]]
    share = np.mean(np.array(own) == model.tokenizer.unk_token_id)
    assert message.startswith(f"unknown tokens: {share:.0%} of the tokens of these sentences")
    assert share > 0.1
    assert told(lambda: model.encode(KOREAN)) == []  # Once a model.
    assert len(told(lambda: SentenceEncoder(device="cpu").encode(KOREAN[::-1]))) == 1


@pytest.mark.parametrize(
    ("make", "known"),
    [
        (lambda: encoder(small.wordpiece()), False),
        (lambda: encoder(small.unigram()), False),
        (lambda: encoder(small.byte_bpe()), True),
        (lambda: SentenceEncoder(StaticEmbedding(small.wordpiece(), torch.randn(200, 8)), device="cpu"), False),
        (lambda: SentenceEncoder(words(), Pooling("mean"), device="cpu"), False),
        (lambda: SentenceEncoder(words(stop_words=["naps", *" ".join(KOREAN).split()]), Pooling("mean")), True),
    ],
    ids=["wordpiece", "unigram", "bytes", "static", "words", "stop words"],
)
def test_10_every_tokenizer_says_so_once(make: Callable[[], SentenceEncoder], known: bool) -> None:
    model = make()
    assert told(lambda: model.encode(["a small boat", "seven green hills", "the red fox"])) == []
    assert told(lambda: model.encode(["a small boat lies", "문장 €"] * 9)) == []  # One rare symbol or two.
    messages = told(lambda: model.encode(KOREAN, prompt="the red fox runs over seven green hills "))
    assert len(messages) == (not known)
    if not known:
        assert re.match(SHARE.format("sentences"), messages[0])
    assert told(lambda: model.encode(KOREAN)) == []


def words(**options: Any) -> WordEmbeddings:
    known = [*small.words(), "€"]
    return WordEmbeddings(known, torch.randn(len(known), 8), **options)


def test_10_the_last_token_is_not_the_unknown_one() -> None:
    """Some call by one name what ends every text and what nothing is in the vocabulary for."""
    tokenizer = small.byte_bpe()
    wrapped = small.wrapped(tokenizer, 64)
    wrapped.unk_token = "</s>"
    network = small.bert_model()
    network.resize_token_embeddings(len(wrapped))
    model = SentenceEncoder(Transformer(network, wrapped), Pooling("mean"), device="cpu")
    assert told(lambda: model.encode(["a", "b", "c", "d"])) == []


def test_10_pairs_passages_and_training_say_so_too(folder: Path, scorer: CrossEncoder) -> None:
    pairs = [("a small boat", text) for text in KOREAN]
    (message,) = told(lambda: scorer.predict(pairs))
    assert re.match(SHARE.format("pairs"), message)
    assert told(lambda: scorer.predict(pairs)) == []
    model = SentenceEncoder(folder, device="cpu")
    (message,) = told(lambda: encode_chunks(model, KOREAN, 4, late=True))
    assert re.match(SHARE.format("passages"), message)
    model = SentenceEncoder(folder, device="cpu")
    rows = list(zip(KOREAN, KOREAN[::-1], strict=True))
    trainer = Trainer(model, rows, MultipleNegativesRankingLoss(), TrainingConfig(steps=2, batch_size=3))
    (message,) = told(lambda: trainer.fit(show_progress_bar=False))
    assert re.match(SHARE.format("training texts"), message)


def test_10_the_warning_stands_at_the_line_that_called_and_can_be_silenced(folder: Path) -> None:
    with pytest.warns(UserWarning, match="unknown tokens") as caught:
        SentenceEncoder(folder, device="cpu").encode_query(KOREAN)
    assert caught[0].filename == __file__
    model = SentenceEncoder(folder, device="cpu")
    with pytest.warns(UserWarning, match="were truncated to max_seq_length") as caught:
        model.encode("a small boat " * 40)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "unknown tokens")
        model.encode(KOREAN)


# ------------------------------------------------------------------------------------------- 19: messages


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda f: SentenceEncoder(f, devise="cpu"),
            "SentenceEncoder() takes no argument 'devise'; did you mean 'device'",
        ),
        (lambda f: SentenceEncoder(f).encode("a", normalise_embeddings=True), "did you mean 'normalize_embeddings'"),
        (
            lambda f: SentenceEncoder(f).encode_query("a", batchsize=1),
            "encode() takes no argument 'batchsize'; did you mean 'batch_size'?",
        ),
        (lambda f: SentenceEncoder(f).encode("a", wings=2), "no argument 'wings', only sentences, prompt_name"),
        (lambda f: CrossEncoder(f, klasses=1), "CrossEncoder() takes no argument 'klasses'; did you mean 'classes'"),
        (lambda f: CrossEncoder(f).predict([], show_progress=True), "predict() takes no argument 'show_progress'"),
        (lambda f: Transformer(f, max_length=1), "did you mean 'max_seq_length'"),
        (lambda f: Pooling(pooling_mode="mean"), "Pooling() takes no argument 'pooling_mode'; did you mean 'mode'?"),
        (lambda f: Dense(1, out_feature=1), "did you mean 'out_features'"),
        (lambda f: LSTM(1, hiden=1), "did you mean 'hidden'"),
    ],
)
def test_19_an_unknown_keyword_names_the_nearest(folder: Path, call: Callable[[Path], Any], message: str) -> None:
    with pytest.raises(TypeError) as error:
        call(folder)
    assert message in str(error.value)


def test_19_signatures_stay_what_they_are(model: SentenceEncoder) -> None:
    assert "normalize_embeddings" in inspect.signature(SentenceEncoder.encode).parameters
    assert list(inspect.signature(Pooling).parameters) == ["mode", "include_prompt"]
    assert "Encode sentences to vectors" in (SentenceEncoder.encode.__doc__ or "")
    assert copy.deepcopy(model).encode("a").shape == (16,)


@pytest.mark.skipif(torch.version.cuda is not None, reason="a build with CUDA")
@pytest.mark.parametrize(
    ("device", "error", "message"),
    [
        ("cuda", ValueError, "device='cuda' cannot be used (this build of torch, "),
        ("cuda:1", ValueError, "has no CUDA); pass 'cpu'"),
        ("gpu", ValueError, "device='gpu' is unknown; pass 'cpu'"),
        (["cpu", "cpu"], TypeError, "device=['cpu', 'cpu'] is of type list; pass one device, such as 'cpu'"),
        (True, TypeError, "device=True is of type bool; pass one device"),
    ],
)
def test_19_devices_that_are_none(
    model: SentenceEncoder, folder: Path, device: Any, error: type[Exception], message: str
) -> None:
    for call in (
        lambda: SentenceEncoder(folder, device=device),
        lambda: CrossEncoder(folder, device=device),
        *([] if isinstance(device, list) else [lambda: model.encode("a", device=device)]),  # Several processes.
    ):
        with pytest.raises(error) as raised:
            call()
        assert message in str(raised.value)


def test_19_a_model_called_with_a_text(model: SentenceEncoder, scorer: CrossEncoder) -> None:
    with pytest.raises(TypeError, match=r"called with a str; pass texts to encode\(\), or, .* model.tokenize\(texts\)"):
        model("hello")
    with pytest.raises(TypeError, match=r"called with a dict; pass texts to encode\(\)"):
        model({"input_ids": torch.ones(1, 2)})
    with pytest.raises(TypeError, match=r"called with a list; pass pairs of texts to predict\(\)"):
        scorer([("a", "b")])


def test_19_a_hub_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from huggingface_hub import constants, errors

    def refuse(*_: Any, **__: Any) -> None:
        raise errors.LocalEntryNotFoundError("words " * 100) from ConnectionError("more " * 100)

    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)
    for offline, options, start in (
        (False, {}, "check the connection, or pass a model's folder: 'n"),
        (True, {}, "unset HF_HUB_OFFLINE, or pass a model's folder: 'n"),
        (False, {"local_files_only": True}, "unset local_files_only, or pass a model's folder: 'n"),
    ):
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
        with pytest.raises(FileNotFoundError) as error:
            SentenceEncoder("n" * 90, **options)  # type: ignore[arg-type]
        assert str(error.value).startswith(start)
        assert len(str(error.value)) < 200
    response = type("Response", (), {"headers": {}, "status_code": 404, "request": None})()
    for kind, start in (
        (errors.RepositoryNotFoundError, "check the name and, for a private model, the token: 'me/none'"),
        (errors.GatedRepoError, "accept the terms of 'me/none' on its page"),
    ):

        def absent(*_: Any, kind: Any = kind, **__: Any) -> None:
            raise kind("words " * 100, response=response)

        monkeypatch.setattr("huggingface_hub.snapshot_download", absent)
        with pytest.raises(FileNotFoundError) as error:
            SentenceEncoder("me/none")
        assert str(error.value).startswith(start)
        assert len(str(error.value)) < 200
