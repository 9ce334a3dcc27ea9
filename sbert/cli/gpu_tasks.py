"""What ``sbert doctor --gpu`` asks a model to do: encode, and count what it needs."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sbert.modules.transformer import Transformer


class Tasks:
    """A model, and its ``encode``."""

    def __init__(self, encoder: Any) -> None:
        self.encode, self.encoder = encoder.encode, encoder

    def timed(self, texts: list[str], **options: Any) -> tuple[float, npt.NDArray[np.float32]]:
        """Encode texts: seconds, and the vectors."""
        start = time.perf_counter()
        vectors = self.encode(texts, **options)
        return time.perf_counter() - start, vectors

    def useful(self, texts: list[str]) -> dict[str, float]:
        """Number of tokens of the truncated texts, and of the operations that they need without padding.

        The model's default prompt is included, because ``encode`` inserts it before each text.

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


_WORDS = (
    "the a of and light stone river under green slowly house walks seven open sky because bread window friend carries"
    " winter music early garden letters against morning quiet market children remember silver across mountains"
).split()


def synthetic(count: int, seed: int) -> list[str]:
    """Synthetic sentences of common words; their lengths in words have a log-normal distribution."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(np.log(13), 0.45, count), 2, 60).astype(int)
    return [" ".join(rng.choice(_WORDS, length)) for length in lengths]
