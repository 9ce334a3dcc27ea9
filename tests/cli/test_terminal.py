"""What people see: the first commands, the help, and results in terminals of 80 and 40 columns."""

from __future__ import annotations

import re
import shlex
import subprocess
from importlib import import_module
from pathlib import Path

import pytest

from sbert.cli.main import _COMMANDS, main
from sbert.pipeline.progress import progress_bar
from sbert.visualization.text import count_columns
from tests.cli.conftest import Run
from tests.terminal import final_lines, terminal


def widths(written: str) -> list[int]:
    """The columns of each line, and of each state of a bar."""
    return [count_columns(piece) for piece in re.split(r"[\r\n]|\x1b\[A", written)]


# ------------------------------------------------------------------------------------------------ the first hour


def examples(text: str) -> list[str]:
    """The indented lines, joined where they are continued."""
    lines = re.findall(r"^  \S(?:.*\\\n)*.*", text, re.MULTILINE)
    return [line for line in map(str.strip, lines) if line.startswith(("sbert ", "printf "))]


def test_five_commands_run_in_their_order(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said, errors = run()
    assert (code, errors) == (0, "")
    assert max(map(len, said.splitlines())) <= 80
    commands = examples(said)
    assert [line.split()[0] for line in commands].count("sbert") == 5
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shown = {}
    for line in commands:
        if line.startswith("printf"):
            subprocess.run(line, shell=True, check=True, executable="/bin/sh")
            continue
        code, out, errors = run(*shlex.split(line)[1:])
        assert (code, errors) == (0, "")
        shown[line.split()[1]] = out
    assert float(shown["similarity"]) > 0.5
    for name in ("search", "pairs"):
        assert {"sofa", "couch"} <= {*re.findall(r"\w+", shown[name])}
    assert shown["cluster"].startswith("cluster 1: 2 texts")
    assert Path("vectors.npy").exists()


def test_help_fits_a_screen_and_its_examples_are_accepted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    most = {"encode": 41, "train": 53}  # Lines; of the others 42.
    for name in _COMMANDS:
        with pytest.raises(SystemExit, match="0"):
            main([name, "--help"])
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= 80, name
        assert len(lines) <= most.get(name, 42), name
        commands = examples("\n".join(lines))
        assert commands, name
        for command in commands:
            ran = []
            monkeypatch.setattr(import_module(f"sbert.cli.{name}"), "run", lambda arguments, ran=ran: ran.append(1))
            assert main(shlex.split(command.replace("\\\n", ""))[1:]) == 0, command
            assert ran == [1]


# -------------------------------------------------------------------------------------------------- the terminal


@pytest.mark.parametrize("columns", [80, 40])
@pytest.mark.parametrize("total", [3000, None], ids=["total", "no total"])
def test_no_bar_is_longer_than_the_terminal(columns: int, total: int | None) -> None:
    with terminal(columns) as shown:
        bar = progress_bar(None, total=total, unit=" sentences", desc="Encoding", mininterval=0)
        for _ in range(3):
            bar.update(1000)
            bar.set_postfix_str("loss 0.1234, and more that has no room")
        bar.close()
    assert max(widths(shown[0])) <= columns
    assert final_lines(shown[0])[-1].startswith("Encoding: 100%|" if total else "Encoding: 3000 sentences [")


@pytest.mark.parametrize("columns", [80, 120])
def test_tables_fit_the_terminal(folder: Path, texts: Path, columns: int) -> None:
    words = [["info", folder], ["doctor", folder], ["search", folder, texts, "lake"], ["similarity", "a", "b"]]
    words += [["search", folder, texts, "lake", "--threshold", "7"], ["encode", folder, texts, "-o", "v.npy"]]
    for line in words:
        with terminal(columns) as shown:
            code = main([*map(str, line), "--device", "cpu"])
        assert code == (2 if "--threshold" in line else 0)
        if code:  # An error is wrapped between words.
            assert " ".join(shown[0].split()) == "sbert: error: --threshold 7.0 is not a cosine; pass -1 to 1"
        assert max(widths(shown[0])) <= columns, line
        assert "\x1b" not in shown[0].replace("\x1b[A", "")  # No colours.
