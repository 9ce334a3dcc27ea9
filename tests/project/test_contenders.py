"""``python -m tests.benchmarks.contenders``, with a tiny model; no test looks at a time."""

from __future__ import annotations

import importlib
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbert import SentenceEncoder
from sbert.modules import Normalize, Pooling, Transformer
from tests import small
from tests.benchmarks import contenders, runtimes, turns
from tests.benchmarks.__main__ import listing

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
    with ThreadPoolExecutor(1) as thread:  # In the place of processes, which import torch anew.
        for module in (contenders, turns):
            monkeypatch.setattr(module, "start_process", lambda: nullcontext(thread))
        monkeypatch.setattr("sys.argv", [*command.split(), "--only", "sbert,padded"])
        contenders.main()
    lines = capsys.readouterr().out.splitlines()
    assert re.match(r"### .*; torch \S+, transformers \S+, .*sentence_transformers \S+$", lines[0])
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    kinds = [f"{load}: {figure}" for load in ("short", "mixed") for figure in ("texts/s", "ceiling, %")]
    singles = ["one: p50, ms", "p95, ms", "busy: p50, ms", "p95 busy, ms"]
    assert table[0] == ["model", *kinds, *singles, "least cosine", "largest difference"]
    names = ["sentence-transformers float32", "sbert float32", "sbert bfloat16", "sbert 32 in input order"]
    assert [row[0] for row in table[2:]] == [*names, "padded 32 in input order"]
    for row in table[2:]:
        assert all(re.fullmatch(r"[\d,.]+( \([\d.]+\))?", cell) for cell in row[1:9])
    for row in table[3:]:
        assert float(row[9]) > (0.99 if "bfloat16" in row[0] else 0.999999)


def test_what_is_not_installed_is_left_out(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contenders, "find_spec", lambda name: None if name == "openvino" else name)
    names = contenders.choose("openvino,sbert float32,onnxruntime", "folder")
    assert names == ["sentence-transformers float32", "sbert float32", "onnxruntime float32"]
    assert capsys.readouterr().out.splitlines() == [
        f"openvino {what} is left out: the package openvino is not installed" for what in ("float32", "default")
    ]
    assert contenders.choose(None, turns.MODEL)[-1] == contenders.OWN
    with pytest.raises(SystemExit, match="no contender is called 'sbert-mini'"):
        contenders.choose("sbert-mini", "folder")


def test_the_code_around_runtimes_keeps_the_order_and_pads(tmp_path: Path) -> None:
    tokenizer, shapes = small.wordpiece(), []
    tokenizer.enable_padding(pad_id=7)
    tokenizer.save(str(tmp_path / "tokenizer.json"))

    def call(inputs: dict[str, Any]) -> Any:
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        shapes.append(ids.shape)
        assert (ids[mask == 0] == 7).all()
        assert not inputs["token_type_ids"].any()
        return np.stack([mask.sum(1), (ids * mask).sum(1)], axis=1)

    names = ["input_ids", "attention_mask", "token_type_ids"]
    encode = runtimes.exported(tmp_path, names, call)
    texts = [" ".join(["boat", "lake", "red"][: 1 + i % 3] * (1 + i % 7)) for i in range(50)]
    tokenizer.no_padding()
    ids = [tokenizer.encode(text).ids for text in texts]
    expected = [[len(each), sum(each)] for each in ids]
    assert encode(texts).tolist() == expected
    assert [rows for rows, _ in shapes] == [32, 18]
    assert shapes[1][1] < shapes[0][1] == max(map(len, ids))
    assert np.concatenate([encode([text]) for text in texts]).tolist() == expected


@pytest.mark.parametrize(
    ("name", "millions"),
    [("bert-base", 85), ("modernbert-base", 110), ("nomic-bert", 113), ("qwen3-0.6b", 440)],
)  # fmt: skip
def test_sizes_are_the_published_ones(name: str, millions: int) -> None:
    """Of the matrices of layers, without embeddings."""
    with torch.device("meta"):
        network = runtimes.make_network(name)
    assert round(runtimes.count_weights(network) / 1e6) == millions


def test_counting_ends_with_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    processes: list[Any] = []

    class Noted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **options)
            processes.append(self)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    with contenders.counting():
        assert processes[0].poll() is None
    assert processes[0].poll() is not None


def test_every_measuring_program_is_listed_and_has_main() -> None:
    for name, line in listing().items():
        assert line, name
        assert callable(importlib.import_module(f"tests.benchmarks.{name}").main)
