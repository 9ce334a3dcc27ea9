"""The command line: what it writes, what it says, and how it ends."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import numpy as np
import pytest

from sbert import Normalize, Pooling, SentenceEncoder, Transformer, __version__
from sbert.cli.main import main
from tests import small

TEXTS = ["a small boat", "the red fox runs", "", "the red fox runs", "one two three", "nobody rows it home"]
LONG = "one two three four five six seven eight nine ten " * 20
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with prompts, saved with its reference vectors."""
    root = tmp_path_factory.mktemp("models")
    prompts = {"query": "seven green hills: ", "document": ""}
    small.bert(root / "bert")
    encoder = SentenceEncoder(Transformer(root / "bert"), Pooling("mean"), prompts=prompts, device="cpu")
    encoder.save(root / "small")
    return root / "small"


@pytest.fixture(scope="module")
def model(folder: Path) -> SentenceEncoder:
    return SentenceEncoder(folder, device="cpu")


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")
    return path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process; gives its exit code and what it wrote to stdout and stderr."""

    def call(*words: object) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        written = capsys.readouterr()
        return code, written.out, written.err

    return call


def process(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sbert", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


# ------------------------------------------------------------------------------------------------------ encode


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("", {}),
        ("--normalize --truncate-dim 5", {"normalize_embeddings": True, "truncate_dim": 5}),
        ("--prompt-name query", {"prompt_name": "query"}),
        ("--prompt nobody:", {"prompt": "nobody:"}),
        ("--batch-tokens 16", {"batch_tokens": 16}),
        ("--batch-size 2", {"batch_size": 2}),
        ("--precision ubinary", {"precision": "ubinary"}),
        ("--device cpu --dtype float32 --on-truncate error", {}),
    ],
)
def test_encode_equals_the_method(
    folder: Path, model: SentenceEncoder, texts: Path, tmp_path: Path, run: Run, words: str, options: dict[str, Any]
) -> None:
    out = tmp_path / "vectors.npy"
    code, said, errors = run("encode", folder, texts, "-o", out, *words.split())
    expected = model.encode(TEXTS, **options)
    assert code == 0, errors
    assert np.array_equal(np.load(out), expected)
    assert np.load(out).dtype == expected.dtype
    assert said == f"{out}: 6 vectors of {expected.shape[1]} {expected.dtype}\n"
    assert errors == ""
    # The option has an effect, or the comparison above would show nothing.
    if set(options) & {"normalize_embeddings", "prompt_name", "prompt", "precision"}:
        assert not np.array_equal(expected, model.encode(TEXTS, truncate_dim=options.get("truncate_dim")))


def test_dtype_is_passed_on(folder: Path, texts: Path, tmp_path: Path, run: Run) -> None:
    assert run("encode", folder, texts, "-o", tmp_path / "a.npy", "--dtype", "bfloat16")[0] == 0
    expected = SentenceEncoder(folder, device="cpu", dtype="bfloat16").encode(TEXTS)
    assert np.array_equal(np.load(tmp_path / "a.npy"), expected)


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.tsv", "unknown"])
def test_encode_a_column(folder: Path, model: SentenceEncoder, tmp_path: Path, run: Run, name: str) -> None:
    rows = {
        "a.jsonl": "".join(json.dumps({"body": text}) + "\n" for text in TEXTS),
        "a.csv": "id,body\n" + "".join(f'1,"{text}"\n' for text in TEXTS),
        "a.tsv": "id\tbody\n" + "".join(f"1\t{text}\n" for text in TEXTS),
    }
    path = tmp_path / name
    path.write_text(rows.get(name, rows["a.jsonl"]), encoding="utf-8")
    more = ["--format", "jsonl"] if name == "unknown" else []
    assert run("encode", folder, path, "-o", tmp_path / "v.npy", "--column", "body", *more)[0] == 0
    assert np.array_equal(np.load(tmp_path / "v.npy"), model.encode(TEXTS))


def test_encode_no_texts(folder: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "empty.txt").touch()
    assert run("encode", folder, tmp_path / "empty.txt", "-o", tmp_path / "v.npy")[0] == 0
    assert np.load(tmp_path / "v.npy").shape == (0, 16)


def test_quiet_says_nothing(folder: Path, texts: Path, tmp_path: Path, run: Run) -> None:
    assert run("encode", folder, texts, "-o", tmp_path / "v.npy", "--quiet") == (0, "", "")


def test_encode_stdin_in_a_process_of_its_own(folder: Path, model: SentenceEncoder, tmp_path: Path) -> None:
    done = process("encode", folder, "-", "-o", "v.npy", cwd=tmp_path, input="\r\n".join(TEXTS))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "v.npy: 6 vectors of 16 float32\n"
    assert np.array_equal(np.load(tmp_path / "v.npy"), model.encode(TEXTS))


def test_cut_texts_are_a_warning_of_one_line(folder: Path, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "a.txt"
    path.write_text(f"short\n{LONG}\n", encoding="utf-8")
    code, _, errors = run("encode", folder, path, "-o", tmp_path / "v.npy")
    assert code == 0
    assert errors.startswith("sbert: warning: 1 of 2 sentences were truncated to max_seq_length=64 tokens")
    assert errors.count("\n") == 1
    assert run("encode", folder, path, "-o", tmp_path / "v.npy", "--on-truncate", "ignore")[2] == ""


# ------------------------------------------------------------------------------------------ similarity and info


def test_similarity_of_two_is_a_number(folder: Path, model: SentenceEncoder, run: Run) -> None:
    one, two = model.encode(TEXTS[:2])
    expected = model.similarity(one, two)[0, 0]
    assert run("similarity", folder, *TEXTS[:2]) == (0, f"{expected:.4f}\n", "")
    assert abs(expected) < 0.9999


def test_similarity_of_more_is_a_matrix(folder: Path, model: SentenceEncoder, run: Run) -> None:
    chosen = [TEXTS[0], TEXTS[1], TEXTS[4]]
    code, said, _ = run("similarity", folder, *chosen)
    vectors = model.encode(chosen)
    assert code == 0
    np.testing.assert_allclose(
        [[float(score) for score in row.split()] for row in said.splitlines()],
        model.similarity(vectors, vectors),
        atol=5.1e-5,
    )


def test_info_for_people(folder: Path, run: Run) -> None:
    code, said, errors = run("info", folder, "--device", "cpu")
    assert (code, errors) == (0, "")
    lines = {line[:20].strip(): line[21:] for line in said.splitlines() if line[:1] != " "}
    assert lines["modules"].startswith("Transformer(BertModel, dim=16, max_seq_length=64")
    assert "Pooling(mean" in said
    assert (lines["dim"], lines["max_seq_length"], lines["similarity"]) == ("16", "64", "cosine")
    assert lines["prompts"] == "query: 'seven green hills: '"
    assert (lines["dtype"], lines["device"]) == ("float32", "cpu")
    assert lines["versions"] == f"sbert {version('sbert')}"
    assert lines["verification"].startswith("same vectors")


def test_info_for_programs(folder: Path, model: SentenceEncoder, run: Run) -> None:
    code, said, _ = run("info", folder, "--json", "--dtype", "bfloat16", "--device", "cpu")
    facts = json.loads(said)
    assert code == 0
    assert len(facts["modules"]) == 2
    assert facts["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert facts["prompts"] == {"query": "seven green hills: ", "document": ""}
    assert facts["default_prompt_name"] is None
    assert facts["dtype"] == "bfloat16"
    assert facts["versions"]["sbert"] == version("sbert")
    # bfloat16 moves the vectors by more than verify's tolerance.
    assert facts["verification"]["ok"] is False
    assert facts["verification"]["max_difference"] > 1e-4


def test_info_says_that_vectors_differ_or_cannot_be_compared(folder: Path, run: Run) -> None:
    assert "DIFFERENT vectors" in run("info", folder, "--dtype", "bfloat16")[1]
    assert "no reference vectors" in run("info", folder.parent / "bert")[1]
    assert json.loads(run("info", folder.parent / "bert", "--json")[1])["verification"] is None


@pytest.mark.filterwarnings("ignore:not every program reads this model:UserWarning")
def test_info_puts_each_module_on_a_line(folder: Path, tmp_path: Path, run: Run) -> None:
    from sbert import Dense

    dense = SentenceEncoder(Transformer(folder.parent / "bert"), Pooling("mean"), Dense(16, 4), Normalize())
    dense.save(tmp_path / "dense")
    said = run("info", tmp_path / "dense")[1].splitlines()
    assert said[2].startswith(" " * 21 + "Dense( ")
    assert said[3] == " " * 21 + "Normalize()"


# ------------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("encode MODEL none.txt -o v.npy", "none.txt does not exist; name a file"),
        ("encode MODEL texts.txt -o v.bin", "does not end in .npy"),
        ("encode MODEL texts.txt -o none/v.npy", "the folder none does not exist"),
        ("encode MODEL texts.txt -o v.npy --column body", "is plain text and has no column 'body'"),
        ("encode MODEL table.tsv -o v.npy", "table.tsv has columns; name the one"),
        (
            "encode MODEL table.tsv -o v.npy --column body",
            "no columns 'body'; name one that occurs once, of id, text",
        ),
        ("encode MODEL latin.txt -o v.npy", "latin.txt, line 2: not UTF-8"),
        ("encode MODEL texts.txt -o v.npy --batch-size 2 --batch-tokens 9", "batch_size and batch_tokens"),
        ("encode MODEL texts.txt -o v.npy --batch-size 0", "batch_size=0 is too small"),
        ("encode MODEL texts.txt -o v.npy --prompt a --prompt-name query", "prompt_name and prompt"),
        ("encode MODEL texts.txt -o v.npy --prompt-name passage", "prompt_name='passage' is unknown"),
        ("encode MODEL texts.txt -o v.npy --truncate-dim 17", "truncate_dim=17 does not fit"),
        ("encode MODEL texts.txt -o v.npy --precision int3", "precision='int3' is unknown"),
        ("encode MODEL texts.txt -o v.npy --on-truncate shout", "on_truncate='shout' is unknown"),
        ("encode MODEL long.txt -o v.npy --on-truncate error", "sentences[1] has more than max_seq_length=64"),
        ("encode MODEL texts.txt -o v.npy --dtype float3", "dtype='float3' is unknown"),
        ("encode MODEL texts.txt -o v.npy --device abacus", "abacus"),
        ("encode MODEL texts.txt", "the following arguments are required: -o/--output; see sbert encode --help"),
        ("encode MODEL texts.txt -o v.npy --format xml", "invalid choice: 'xml'"),
        ("similarity one", "one text cannot be compared; pass two or more"),
        ("similarity MODEL one", "one text cannot be compared; pass two or more"),
        ("similarity sbert-mini one", "one text cannot be compared; pass two or more"),
        ("encode sbert-mini texts.txt none.txt -o v.npy", "none.txt does not exist"),
        ("info ./none", "none does not exist"),
        ("info texts.txt", "texts.txt is a file"),
        ("info no-such-model", "or pass a model's folder: 'no-such-model' is not a folder"),
        ("dance", "invalid choice: 'dance'"),
        ("", "the following arguments are required"),
        ("info MODEL --loud", "unrecognized arguments: --loud"),
    ],
)
def test_errors_are_one_line_and_leave_nothing(
    folder: Path, texts: Path, run: Run, monkeypatch: pytest.MonkeyPatch, words: str, message: str
) -> None:
    here = texts.parent
    monkeypatch.chdir(here)
    (here / "table.tsv").write_text("id\ttext\n1\tone\n", encoding="utf-8")
    (here / "latin.txt").write_bytes(b"one\ncaf\xe9\n")
    (here / "long.txt").write_text(f"short\n{LONG}\n", encoding="utf-8")
    before = sorted(here.iterdir())
    code, said, errors = run(*(folder if word == "MODEL" else word for word in words.split()))
    assert (code, said) == (2, "")
    assert errors.startswith("sbert: error: ")
    assert errors.count("\n") == 1
    assert message in errors
    assert sorted(here.iterdir()) == before


def test_an_error_leaves_the_older_file_alone(folder: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "v.npy").write_bytes(b"older")
    (tmp_path / "latin.txt").write_bytes(b"one\ncaf\xe9\n")
    assert run("encode", folder, tmp_path / "latin.txt", "-o", tmp_path / "v.npy")[0] == 2
    assert (tmp_path / "v.npy").read_bytes() == b"older"


def test_an_error_in_a_process_of_its_own(tmp_path: Path) -> None:
    done = process("info", tmp_path / "none")
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == f"sbert: error: {tmp_path / 'none'} does not exist; pass a model's folder or its name on the hub\n"
    )


def test_a_bug_shows_its_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("bug")

    monkeypatch.setattr("sbert.cli.info.load", broken)
    with pytest.raises(KeyError, match="bug"):
        run("info", "model")


def test_warnings_for_programmers_are_not_shown(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import warnings

    def warn(*_: object) -> None:
        warnings.warn("for programmers", DeprecationWarning, stacklevel=1)
        warnings.warn("two\n  lines", UserWarning, stacklevel=1)
        raise ValueError("two\n  lines")

    monkeypatch.setattr("sbert.cli.info.load", warn)
    assert run("info", "model") == (2, "", "sbert: warning: two lines\nsbert: error: two lines\n")


# --------------------------------------------------------------------------------- the process and its surroundings


def test_version() -> None:
    done = process("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"sbert {__version__}\n", "")


def test_the_installed_command_is_the_module() -> None:
    command = Path(sys.executable).with_name("sbert")
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"sbert {version('sbert')}\n"


@pytest.mark.parametrize("words", [["--help"], ["encode", "--help"], ["info", "--help"]])
def test_help_does_without_torch(words: list[str]) -> None:
    code = (
        "import sys; from sbert.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: sbert")


@pytest.fixture
def interruptible() -> Any:
    """Children can be interrupted even if this process ignores SIGINT, as a shell's background jobs do."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.02)


def feed(pipe: IO[bytes], lines: int) -> None:
    for number in range(lines):
        pipe.write(b"one two %d seven green hills\n" % number)
    pipe.flush()


# From 32,768 texts on, vectors are computed before the input ends; before 1,024, no file is written.
@pytest.mark.parametrize("lines", [1500, 40_000], ids=["while reading", "while encoding"])
@pytest.mark.usefixtures("interruptible")
def test_interrupted(folder: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, lines: int) -> None:
    (tmp_path / "v.npy").write_bytes(b"older")
    command = [sys.executable, "-m", "sbert", "encode", str(folder), "-", "-o", str(tmp_path / "v.npy")]
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=errors, stderr=errors) as child,
    ):
        try:
            assert child.stdin is not None
            writer = threading.Thread(target=feed, args=(child.stdin, lines))
            writer.start()
            # The file that is being written has another name until it is whole.
            wait_for(lambda: (tmp_path / "v.npy.partial").exists() or child.poll() is not None)
            writer.join()
            time.sleep(0.3)
            assert child.poll() is None
            child.send_signal(signal.SIGINT)
            code = child.wait(60)
        finally:
            child.kill()
        errors.seek(0)
        assert (code, errors.read()) == (130, b"sbert: interrupted; to go on, run the same command again\n")
    assert (tmp_path / "v.npy").read_bytes() == b"older"
    # No window was done, so the same command begins anew.
    feed(text := io.BytesIO(), 1500)
    text.seek(0)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=text))
    code, *_ = run("encode", folder, "-", "-o", tmp_path / "v.npy")
    assert code == 0
    assert np.load(tmp_path / "v.npy").shape == (1500, 16)
    assert list(tmp_path.iterdir()) == [tmp_path / "v.npy"]


@pytest.mark.usefixtures("interruptible")
def test_interrupted_while_loading(folder: Path, tmp_path: Path) -> None:
    """Early, when torch and transformers are still being imported."""
    command = [sys.executable, "-X", "importtime", "-m", "sbert", "info", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        for line in child.stderr:
            if line.split("|")[-1].strip() == "torch.version":
                break
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=60)
    said = [line for line in errors.splitlines() if not line.startswith("import time:")]
    assert (child.returncode, said) == (130, ["sbert: interrupted"])


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("words", [["--help"], ["info", "MODEL"]], ids=" ".join)
def test_a_closed_pipe_ends_quietly(folder: Path, words: list[str], unbuffered: str) -> None:
    command = [sys.executable, "-m", "sbert", *(str(folder) if word == "MODEL" else word for word in words)]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == b""
        assert child.wait(60) == 0
