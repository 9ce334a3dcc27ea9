"""``sbert benchmark``, end to end on a tiny model; no test looks at a time."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sbert.cli import benchmark
from sbert.cli.main import main
from tests import small


@contextmanager
def start_thread() -> Iterator[ThreadPoolExecutor]:
    """In the place of a process, which imports torch anew."""
    with ThreadPoolExecutor(1) as executor:
        yield executor


def test_every_library_and_dtype_has_its_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def load(library: str, model: str, device: str | None, dtype: str) -> float:
        calls.append((library, dtype))
        if library != "sbert" and dtype == "float16":
            raise ValueError("no float16")
        return real("sbert", model, device, dtype)  # The import of the other library takes seconds.

    real = benchmark.load
    monkeypatch.setattr(benchmark, "load", load)
    monkeypatch.setattr(benchmark, "start_process", start_thread)
    (tmp_path / "texts.txt").write_text("".join(f"a small boat number {i}\n" for i in range(9)), encoding="utf-8")
    model = str(small.bert(tmp_path / "bert"))
    words = ["benchmark", model, "--data", str(tmp_path / "texts.txt"), "--rounds", "2", "--sample", "4"]
    assert main([*words, "--device", "cpu", "--dtypes", "float32,float16", "--json"]) == 0
    said = capsys.readouterr()
    results = json.loads(said.out)
    assert [each["name"] for each in results] == ["sbert float32", "sbert float16", "sentence-transformers float32"]
    assert all(value > 0 for each in results for value in list(each.values())[1:])
    assert "sentence-transformers float16 does not run this model: no float16" in said.err
    assert len(calls) == 4
    table = benchmark._format(results, argparse.Namespace(model=model, sample=4)).splitlines()
    assert table[5].split()[3] == "1.00"  # The ratio of what others are compared with.


@pytest.mark.slow  # The figures of a process are its own: an import of torch.
def test_processes_of_their_own_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "find_spec", lambda name: None)  # The other library takes seconds more.
    model = str(small.bert(tmp_path / "bert"))
    assert main(["benchmark", model, "--device", "cpu", "--rounds", "1", "--sample", "4"]) == 0
    assert capsys.readouterr().out.splitlines()[3].startswith("sbert ")
    assert main(["benchmark", str(tmp_path / "none")]) == 2
    assert "none does not exist" in capsys.readouterr().err
    with suppress(KeyboardInterrupt), benchmark.start_process() as process:
        busy: Future[None] = process.submit(time.sleep, 600)
        raise KeyboardInterrupt
    assert busy.done()
    assert multiprocessing.active_children() == []
