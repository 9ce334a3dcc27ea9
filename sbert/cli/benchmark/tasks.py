"""What a contender is asked to do: encode, and count what it needs."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sbert.cli.benchmark.contenders import OWN, PEERS, Encode
from sbert.cli.benchmark.workloads import synthetic
from sbert.cli.doctor import diagnose
from sbert.modules.transformer import Transformer


class Tasks:
    """What a contender does for the measurement, in the process where it is loaded.

    Args:
        name: A key of ``OWN`` or ``PEERS``.
        model: A folder, or a name on the hub.
        device: The device to run on.
    """

    encode: Encode
    encoder: Any

    def __init__(self, name: str, model: str, device: str | None) -> None:
        self._contender: tuple[str, str, str | None] = name, model, device

    def load(self) -> dict[str, float]:
        """Load the model: seconds until it is loaded, and then until the first vector."""
        name, model, device = self._contender
        start = time.perf_counter()
        self.encode, self.encoder = {**OWN, **PEERS}[name](model, device)
        loaded = time.perf_counter() - start
        return {"load": loaded, "first": self.timed(["one text"])[0]}

    def timed(self, texts: list[str], **options: Any) -> tuple[float, npt.NDArray[np.float32]]:
        """Encode texts: seconds, and the vectors."""
        start = time.perf_counter()
        vectors = self.encode(texts, **options)
        return time.perf_counter() - start, vectors

    def latencies(self, texts: list[str]) -> list[float]:
        """Seconds for each text alone."""
        return [self.timed([text])[0] for text in texts]

    def grow(self, count: int, seed: int) -> dict[str, float]:
        """Encode synthetic texts: seconds, growth of the peak memory in bytes, and size of the vectors in bytes."""
        texts, before = synthetic(count, seed), peak_memory()
        seconds, vectors = self.timed(texts)
        return {"seconds": seconds, "grown": peak_memory() - before, "vectors": vectors.nbytes}

    def memory(self) -> dict[str, int]:
        """Peak memory in bytes."""
        device = self.encoder.device
        gpu = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
        return {"host": peak_memory(), "gpu": gpu}

    def facts(self) -> dict[str, Any]:
        """How the model runs, and the sizes of its transformer."""
        return {"diagnosis": diagnose(self.encoder), **self._sizes()}

    def useful(self, texts: list[str]) -> dict[str, float]:
        """Number of tokens of the truncated texts, and of the operations that they need without padding.

        The model's default prompt is included, because every contender inserts it before each text.

            operations per token = 2 weights + 4 length dim layers

        Each weight of a linear layer is used once per token; attention compares a token with all tokens of its text,
        once for the scores and once for the values.
        """
        default = self.encoder.default_prompt_name
        prompt = "" if default is None else self.encoder.prompts[default]
        lengths = self.encoder.tokenize(texts, prompt).lengths.double()
        sizes = self._sizes()
        operations = 2 * sizes["weights"] * lengths.sum() + 4 * sizes["layers"] * sizes["dim"] * lengths.square().sum()
        return {"tokens": float(lengths.sum()), "operations": float(operations)}

    def _sizes(self) -> dict[str, int]:
        first = self.encoder[0]
        if not isinstance(first, Transformer):
            return {"weights": 0, "layers": 0, "dim": 0}
        config = first.auto_model.config
        return {"weights": self._weights(first), "layers": config.num_hidden_layers, "dim": config.hidden_size}

    @torch.no_grad()
    def _weights(self, transformer: Transformer) -> int:
        """Weights of the linear layers per token; those of a layer that is used repeatedly (ALBERT) count each time."""
        used: list[int] = []
        hooks = [
            layer.register_forward_hook(lambda layer, *_: used.append(layer.weight.numel()))
            for name, layer in transformer.auto_model.named_modules()
            if isinstance(layer, torch.nn.Linear) and not name.startswith("pooler")
        ]
        ids, mask = self.encoder.tokenize(["one text"]).to(self.encoder.device).padded()
        try:
            transformer.auto_model(input_ids=ids, attention_mask=mask.long())
        finally:
            for hook in hooks:
                hook.remove()
        return sum(used)


def peak_memory() -> int:
    """Peak memory of this process in bytes.

    On Linux a process inherits ``ru_maxrss`` from its parent, so it may be too large; the process's own peak is in
    /proc. macOS counts ``ru_maxrss`` in bytes, other systems in units of 1,024.
    """
    import resource

    with suppress(OSError), open("/proc/self/status", encoding="utf-8") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
