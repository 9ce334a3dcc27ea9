"""``python -m tests.benchmarks.gpu``, end to end on the CPU with tiny models; no test looks at a time."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from tests.benchmarks import gpu, turns

pytestmark = pytest.mark.gate


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Of the other library.
def test_every_table_is_printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The vectors are the same; of a contender that fails, the reason is in the table."""

    def search(who: str, *others: Any, **options: Any) -> turns.Round:
        if who == "sbert":
            raise RuntimeError("the device is lost\nand more")
        return real(who, *others, **options)

    real = gpu.search
    monkeypatch.setattr(gpu, "search", search)
    monkeypatch.setattr(gpu, "MODELS", {name: (1, head_dim) for name, (_, head_dim) in gpu.MODELS.items()})
    monkeypatch.setattr(gpu, "compete", lambda title, makers, _, *limits: turns.compete(title, makers, 1, *limits))
    with ThreadPoolExecutor(1) as thread:  # In the place of processes, which import torch anew.
        monkeypatch.setattr(turns, "start_process", lambda: nullcontext(thread))
        monkeypatch.setattr("sys.argv", "gpu --device cpu --quick --scale 0.0004 --head-dim 8".split())
        gpu.main()
    said = capsys.readouterr()
    tables = said.out.split("\n\n")
    assert [table.split(" |")[0] for table in tables[1:]] == [
        *(f"| {name}" for name in gpu.MODELS), "| training, MiniLM-L6", "| search"
    ]  # fmt: skip
    assert tables[0].startswith("### ")
    for table in tables[1:4]:
        cosines = re.findall(r"sbert .* \| (\S+) \| \S+ \|$", table, re.MULTILINE)
        assert len(cosines) == 2
        assert min(map(float, cosines)) > 0.9999
    assert "| sbert float32 | failed: RuntimeError: the device is lost and more |" in tables[5]
    assert "search, round 1, sentence-transformers float32: 100 of 1,000 x 384, ms" in said.err


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("sys.argv", ["gpu"])
    with pytest.raises(SystemExit, match="torch finds no CUDA GPU here; --device cpu"):
        gpu.main()
