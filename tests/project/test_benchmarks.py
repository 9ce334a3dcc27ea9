"""The measuring programs run from end to end, on the CPU with tiny models; no test looks at a time."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from sbert import SentenceEncoder
from sbert.modules import Normalize, Pooling, Transformer
from tests import small
from tests.benchmarks import contenders, gpu, turns

pytestmark = pytest.mark.gate


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Of the other library.
def test_the_table_has_every_contender(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vectors are the same, at every kind of work."""
    chain = (Transformer(small.bert(tmp_path / "bert")), Pooling(), Normalize())
    SentenceEncoder(*chain, device="cpu").save(tmp_path / "model")
    (tmp_path / "texts.txt").write_text("".join(f"{text} {i}\n" for i in range(9) for text in small.CORPUS))
    monkeypatch.setattr(contenders, "SINGLES", 8)
    monkeypatch.setattr(contenders, "ceiling", lambda dtype: 1e9)
    command = f"contenders --data {tmp_path}/texts.txt --sample 16 --rounds 2 --busy --model {tmp_path}/model"
    with ThreadPoolExecutor(1) as thread:  # In the place of processes, which import torch again.
        for module in (contenders, turns):
            monkeypatch.setattr(module, "start_process", lambda: nullcontext(thread))
        only = "sbert float32,sbert bfloat16,sbert 32 in input order,padded"
        monkeypatch.setattr("sys.argv", [*command.split(), "--only", only])
        contenders.main()
    lines = capsys.readouterr().out.splitlines()
    assert re.match(r"### .*; torch \S+, transformers \S+, .*sentence_transformers \S+$", lines[0])
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    kinds = [f"{load}: {figure}" for load in ("short", "mixed") for figure in ("texts/s", "ceiling, %")]
    singles = ["one: p50, ms", "p95, ms", "busy: p50, ms", "p95 busy, ms"]
    assert table[0] == ["model", *kinds, *singles, "eight: texts/s", "least cosine", "largest difference"]
    names = ["sentence-transformers float32", "sbert float32", "sbert bfloat16", "sbert 32 in input order"]
    assert [row[0] for row in table[2:]] == [*names, "padded 32 in input order"]
    for row in table[2:]:
        assert all(re.fullmatch(r"[\d,.]+( \([\d.]+\))?", cell) for cell in row[1:10])
    for row in table[3:]:
        assert float(row[10]) > (0.99 if "bfloat16" in row[0] else 0.999999)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Of the other library.
def test_the_gpu_program_prints_every_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vectors are the same; of a contender that fails, the reason is in the table."""

    def search(who: str, *others: Any, **options: Any) -> turns.Round:
        if who == "sbert":
            raise RuntimeError("the device is lost\nand more")
        return real(who, *others, **options)

    real = gpu.search
    monkeypatch.setattr(gpu, "search", search)
    monkeypatch.setattr(gpu, "MODELS", {name: (1, head_dim) for name, (_, head_dim) in gpu.MODELS.items()})
    monkeypatch.setattr(gpu, "compete", lambda title, makers, _, *limits: turns.compete(title, makers, 1, *limits))
    with ThreadPoolExecutor(1) as thread:  # In the place of processes, which import torch again.
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
