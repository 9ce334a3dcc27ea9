"""The command line: what its small commands print, how each ends, and what it says when something is wrong."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sbert import SentenceEncoder
from tests.cli.conftest import TEXTS, Run, check_refused

LINES = ["", *TEXTS]
HERE = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
LONG = "one two three four five six seven eight nine ten " * 20


def start(*words: object, **options: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "sbert", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


# ------------------------------------------------------------------------------------------------------ encode


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("--device cpu --dtype float32 --on-truncate error", {}),
        ("--normalize --truncate-dim 5 --batch-size 2", {"normalize_embeddings": True, "truncate_dim": 5}),
        ("--prompt-name query --batch-tokens 16", {"prompt_name": "query"}),
        ("--prompt nobody: --precision ubinary", {"prompt": "nobody:", "precision": "ubinary"}),
    ],
)
def test_encode_equals_the_method(
    folder: Path, model: SentenceEncoder, texts: Path, run: Run, words: str, options: dict[str, Any]
) -> None:
    expected = model.encode(LINES, **options)
    said = f"v.npy: 13 vectors of {expected.shape[1]} {expected.dtype}\n"
    assert run("encode", folder, texts, "-o", "v.npy", *words.split()) == (0, said, "")
    assert np.array_equal(np.load("v.npy"), expected)
    assert np.load("v.npy").dtype == expected.dtype
    # The options have an effect, or the comparison above would show nothing.
    assert not options or not np.array_equal(expected, model.encode(LINES))


def test_encode_standard_input_and_nothing(
    folder: Path, texts: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [*(json.dumps({"body": text}) for text in LINES)]
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO("\r\n".join(lines).encode())))
    words = ["--format", "jsonl", "--column", "body", "--quiet", "--dtype", "bfloat16"]
    assert run("encode", folder, "-", "-o", "v.npy", *words) == (0, "", "")
    expected = SentenceEncoder(folder, device="cpu", dtype="bfloat16").encode(LINES)
    assert np.array_equal(np.load("v.npy"), expected)
    texts.write_text("", encoding="utf-8")
    assert run("encode", folder, texts, "-o", "none.npy")[0] == 0
    assert np.load("none.npy").shape == (0, 16)


def test_truncated_texts_are_a_warning_of_one_line(folder: Path, texts: Path, run: Run) -> None:
    texts.write_text(f"short\n{LONG}\n", encoding="utf-8")
    code, _, errors = run("encode", folder, texts, "-o", "v.npy")
    assert code == 0
    assert errors.startswith("sbert: warning: 1 of 2 sentences were truncated to max_seq_length=64 tokens")
    assert errors.count("\n") == 1
    assert "tokens; pass --on-truncate 'ignore' to silence" in errors
    assert run("encode", folder, texts, "-o", "v.npy", "--on-truncate", "ignore")[2] == ""
    assert run("pairs", folder, texts)[2].endswith("max_seq_length=64 tokens\n")  # It has no such option.


# ------------------------------------------------------------------------------------------ similarity and info


def test_similarity_is_a_number_or_a_matrix(folder: Path, model: SentenceEncoder, run: Run) -> None:
    vectors = model.encode(TEXTS[:3])
    expected = model.similarity(vectors, vectors)
    assert run("similarity", folder, *TEXTS[:2]) == (0, f"{expected[0, 1]:.4f}\n", "")
    # Words may stand behind options.
    said = run("similarity", folder, TEXTS[0], "--dtype", "auto", *TEXTS[1:3])[1]
    shown = [[float(score) for score in row.split()] for row in said.splitlines()]
    np.testing.assert_allclose(shown, expected, atol=5.1e-5)
    assert abs(expected[0, 1]) < 0.9999


def test_info(folder: Path, tmp_path: Path, model: SentenceEncoder, run: Run) -> None:
    code, said, errors = run("info", folder, "--device", "cpu")
    assert (code, errors) == (0, "")
    lines = {line[:20].strip(): line[21:] for line in said.splitlines() if line[:1] != " "}
    assert lines["modules"].startswith("Transformer(BertModel, dim=16, max_seq_length=64")
    assert lines["prompts"] == "query: 'seven green hills: '"
    assert (lines["similarity"], lines["device"], lines["versions"]) == ("cosine", "cpu", f"sbert {version('sbert')}")
    assert lines["verification"].startswith("same vectors")
    assert said.splitlines()[1].startswith(" " * 21 + "Pooling(")  # Each module is on a line of its own.
    facts = json.loads(run("info", folder, "--json", "--dtype", "bfloat16", "--device", "cpu")[1])
    assert facts["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert facts["prompts"] == {"query": "seven green hills: ", "document": "the lake: "}
    assert (facts["dim"], facts["default_prompt_name"], facts["dtype"]) == (16, None, "bfloat16")
    assert facts["verification"]["ok"] is True  # bfloat16 moves the vectors by more than 1e-4.
    assert facts["verification"]["max_difference"] > 1e-4
    other = shutil.copytree(folder, tmp_path / "other")
    weights = other / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4000] + bytes(4000))
    for dtype in ("float32", "bfloat16"):
        assert "DIFFERENT vectors" in run("info", other, "--dtype", dtype)[1]
    assert "no reference vectors" in run("info", folder.parent / "bert")[1]
    assert json.loads(run("info", folder.parent / "bert", "--json")[1])["verification"] is None


# ------------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("encode MODEL none.txt -o v.npy", "none.txt does not exist; name a file"),
        ("encode MODEL texts.txt", "the following arguments are required: -o/--output; see sbert encode --help"),
        ("encode MODEL texts.txt -o v.npy", "v.npy has no manifest, and may be yours; move it, or pass --overwrite"),
        ("encode MODEL texts.txt -o v.npy --prompt a --prompt-name b", "--prompt-name and --prompt both set the"),
        ("encode MODEL texts.txt -o v.npy --batch-size abc", "is not possible; pass a whole number of at least 1"),
        ("encode MODEL texts.txt -o v.npy --batchsize 3", "for --batchsize, did you mean --batch-size? See sbert"),
        ("serch texts.txt lake", "argument COMMAND: 'serch' is unknown; did you mean search? See sbert --help"),
        ("search MODEL texts.txt lake --threshold 7", "--threshold 7.0 is not a cosine; pass -1 to 1"),
        ("benchmark MODEL --dtypes float3 --sample 4", "--dtypes 'float3' is unknown"),
        ("merge v.npy", "there are no shards of "),
        ("train --model x --loss ranking --output y --data label=1/z.csv", "error: label=1/z.csv does not exist"),
        ("encode table.csv -o w.npy", "table.csv has columns; pass --column, the one that holds the texts"),
        ("encode texts.txt -o v.npy --shard 4/4", "'4/4' is not a valid shard; shards are counted from 0: 0/4, 1/4"),
        ("encode texts.txt -o v.npy --device cpu --devices cpu,cpu", "--device and --devices both name devices"),
        ("search MODEL none.txt lake", "error: 'none.txt': file not found; pass [MODEL] FILE QUERY"),
        ("search MODEL texts.txt - lake", "pass it once"),
        ("map texts.txt -o no/map.html", "the folder no does not exist; create it"),
        ("cluster MODEL texts.txt -k 3 --min-size 2", "--threshold and --min-size are for clusters of any number"),
        ("cluster MODEL texts.txt -k 13", "--clusters 13 exceeds the 12 vectors; pass at most 12"),
        ("similarity MODEL one", "one text cannot be compared; pass two or more"),
        ("info no-such-model", "or pass a model's folder: 'no-such-model' is not in the cache"),
    ],
)
def test_errors_are_one_line_and_leave_what_was_there(
    folder: Path, texts: Path, run: Run, words: str, message: str
) -> None:
    here = texts.parent
    (here / "table.csv").write_text("id,text\n1,a lake\n", encoding="utf-8")
    (here / "v.npy").write_bytes(b"older")
    before = sorted(here.iterdir())
    check_refused(run(*(folder if word == "MODEL" else word for word in words.split())), message)
    assert sorted(here.iterdir()) == before
    assert (here / "v.npy").read_bytes() == b"older"


def test_warnings_are_one_line_and_a_bug_shows_its_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import warnings

    def load(arguments: Any) -> None:
        warnings.warn("for programmers", DeprecationWarning, stacklevel=1)
        warnings.warn("two\n  lines", UserWarning, stacklevel=1)
        raise {"value": ValueError, "bug": KeyError, "stop": KeyboardInterrupt}[arguments.model]("two\n  lines")

    monkeypatch.setattr("sbert.cli.info.load_by_options", load)
    stopped = run("info", "stop")
    assert (stopped[0], stopped[2].partition("\n")[2]) == (130, "sbert: interrupted; two\n  lines\n")
    assert run("info", "value") == (2, "", "sbert: warning: two lines\nsbert: error: two lines\n")
    with pytest.raises(KeyError, match="two"):
        run("info", "bug")


# --------------------------------------------------------------------------------- the process and its surroundings


def test_the_process_ends_as_the_command() -> None:
    with start("dance") as wrong:
        said, errors = wrong.communicate()
        assert (said, wrong.returncode) == (b"", 2)
        assert errors.startswith(b"sbert: error: argument COMMAND: 'dance' is unknown; the known ones are encode, ")
    command = Path(sys.executable).with_name("sbert")
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"sbert {version('sbert')}\n"


def test_help_of_every_command_does_without_torch() -> None:
    code = (
        "import sys; from sbert.cli.main import _COMMANDS, main\n"
        "for words in [[], *([name] for name in _COMMANDS)]:\n"
        "    try: main([*words, '--help'])\n"
        "    except SystemExit: print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("usage: sbert") == done.stdout.count("\n[]\n") >= 13


def test_a_closed_pipe_ends_quietly() -> None:
    with start("--help") as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == b""
        assert child.wait(60) == 0


def test_closed_streams_lead_to_nowhere(tmp_path: Path) -> None:
    """The file of results does not take the place of one."""
    (tmp_path / "texts.txt").write_text("A cat.\nTaxes.\n", encoding="utf-8")
    for number, (words, code, said) in enumerate(
        [
            ("encode texts.txt -o v.npy <&- >&- 2>&-", 0, b""),
            ("similarity one two >&-", 0, b""),
            ("encode - -o w.npy <&-", 2, b"sbert: error: standard input is closed; name a file, or pipe the texts\n"),
        ]
    ):
        command = f"{sys.executable} -m sbert {words}"
        done = subprocess.run(command, shell=True, cwd=tmp_path, env=HERE, capture_output=True)
        assert (number, done.returncode, done.stderr) == (number, code, said)
    assert np.load(tmp_path / "v.npy").shape == (2, 256)


def test_interrupted_while_it_is_imported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from sbert import __main__

    monkeypatch.setitem(sys.modules, "sbert.cli.main", Interrupted())
    assert __main__.start() == 130
    assert capsys.readouterr() == ("", "")


class Interrupted:
    """In the place of a module whose import Ctrl-C ends."""

    @property
    def main(self) -> None:
        raise KeyboardInterrupt


# A signal meets a process that waits for its input: only one of its own can show how it ends.
@pytest.mark.slow
def test_interrupted_while_reading(folder: Path, texts: Path) -> None:
    Path("v.npy").write_bytes(b"older")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background jobs ignore it.
    with start("encode", folder, "-", "-o", "v.npy", "--overwrite", stdin=subprocess.PIPE) as child:
        signal.signal(signal.SIGINT, before)
        assert child.stdin is not None
        child.stdin.write(b"one two seven green hills\n" * 1500)
        child.stdin.flush()
        deadline = time.monotonic() + 60
        while not [path for path in texts.parent.iterdir() if path.name.startswith("v.npy.")]:
            assert time.monotonic() < deadline
            assert child.poll() is None
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=60)
    said = b"sbert: interrupted; to go on, run the same command again, without --overwrite\n"
    assert (child.returncode, errors) == (130, said)
    assert Path("v.npy").read_bytes() == b"older"
