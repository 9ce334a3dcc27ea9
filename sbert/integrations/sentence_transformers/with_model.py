"""Their losses that need a decoder, or all layers of the model.

Where theirs run the model in their ``forward``, ours have a method ``encode(model, batch)`` or ``collate``, which the
trainer calls: chunks, gradient caching and deduplication work as for other losses. Where theirs draw layers or
dimensions, all of them count here, with weights that give the expected value of theirs.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert import losses
from sbert.backends import padded_arguments
from sbert.backends.huggingface import import_from, silence


class DenoisingAutoEncoderLoss(nn.Module):
    """A decoder rebuilds a text from the vector of what noise left of it (TSDAE).

    Args:
        model: The model, a transformer with one vector of its width for each text.
        decoder_name_or_path: Where the decoder is from, if its weights are its own. Default: the folder of the model.
        tie_encoder_decoder: Whether the decoder has the weights of the model, but for its head and its attention to
            the vector.

    Shape:
        damaged: (rows, dim). original: (rows, dim), not used. ids: (rows, tokens), of the original texts.
        Output: scalar.

    Raises:
        ValueError: If transformers has no decoder of this kind, or there are several processes.

    References:
        Wang et al., 2021. https://arxiv.org/abs/2104.06979
    """

    def __init__(self, model: Any, decoder_name_or_path: str | None = None, tie_encoder_decoder: bool = True) -> None:
        super().__init__()
        # A copy would get the gradient of a part of the rows, and shared weights too large a one.
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ValueError("DenoisingAutoEncoderLoss trains in one process; start one, with larger batches")
        network = model[0].auto_model
        path = (not tie_encoder_decoder and decoder_name_or_path) or network.config._name_or_path
        options = {"is_decoder": True, "add_cross_attention": True, "dtype": model.dtype}
        with silence():
            decoder = import_from("AutoModelForCausalLM").from_pretrained(path, **options)
            other = import_from("AutoTokenizer").from_pretrained(path)
        if tie_encoder_decoder:
            _share(network, decoder)
        reader = copy.deepcopy(model.tokenizer if tie_encoder_decoder else other)
        reader.pad_token = reader.pad_token or reader.eos_token
        self.decoder, self.padding = decoder, reader.pad_token_id
        self._read = partial(reader, padding=True, truncation=True, max_length=model.max_seq_length)

    def collate(self, texts: Any, _generator: Any) -> Any:
        """The damaged texts, with an empty text in place of the original, and the token ids of the original."""
        ids = self._read([original for _, original in texts], return_tensors="pt")["input_ids"]
        return [(damaged, "") for damaged, _ in texts], {"ids": ids}

    def forward(self, damaged: Tensor, original: Tensor, *, ids: Tensor) -> Tensor:  # noqa: ARG002
        scores = self.decoder(ids[:, :-1], encoder_hidden_states=damaged[:, None], use_cache=False).logits
        return F.cross_entropy(scores.flatten(0, 1), ids[:, 1:].flatten(), ignore_index=self.padding)


def _share(network: Any, decoder: Any) -> None:
    """Put the weights of a network in place of those of the decoder with the same names."""
    decoder.resize_token_embeddings(network.get_input_embeddings().num_embeddings)
    weights = dict(network.named_parameters())
    for name in weights.keys() & dict(decoder.base_model.named_parameters()).keys():
        owner, _, key = name.rpartition(".")
        setattr(decoder.base_model.get_submodule(owner), key, weights[name])
    decoder.tie_weights()  # The table of the head.


class AdaptiveLayerLoss(losses.AdaptiveLayerLoss):
    """``sbert.losses.AdaptiveLayerLoss`` of all layers of the model; the table of embeddings is one of them.

    Args:
        model: The model, whose first module is a transformer.
        loss: A loss of vectors.
        n_layers_per_step: n, how many layers theirs draw; -1 for all. Here all count; the divergence, a sum, n times.
        last_layer_weight: The weight of the last layer.
        prior_layers_weight: The weight of each of the others.
        kl_div_weight: The weight of the divergence.
        kl_temperature: Its temperature; 0 leaves the divergence out.

    Shape:
        Each column: (rows, layers * dim). Output: scalar.

    Raises:
        ValueError: If a weight is negative.

    References:
        Li et al., 2024 (2d-Matryoshka). https://arxiv.org/abs/2402.14776
    """

    def __new__(cls, *_values: Any, **_named: Any) -> Any:  # Ours would refuse the model.
        return object.__new__(cls)

    def __init__(
        self, model: Any, loss: Any, n_layers_per_step: int = 1, last_layer_weight: float = 1.0,
        prior_layers_weight: float = 1.0, kl_div_weight: float = 1.0, kl_temperature: float = 0.3,
    ) -> None:  # fmt: skip
        prior = int(model[0].network.config.num_hidden_layers)
        weights = [*[prior_layers_weight] * prior, last_layer_weight]
        drawn = n_layers_per_step if 0 < n_layers_per_step < prior else prior
        super().__init__(loss, prior + 1, weights, drawn * kl_div_weight * bool(kl_temperature), kl_temperature or 1.0)

    def encode(self, model: Any, batch: Any) -> Tensor:
        """The vectors of all layers side by side. Shape: (texts, layers * dim)."""
        network = model[0].auto_model
        output = network(**padded_arguments(network, batch), output_hidden_states=True)
        states = torch.stack([*output.hidden_states[:-1], output.last_hidden_state])  # (layers, rows, longest, dim)
        tokens = states[:, : batch.rows, : batch.longest].flatten(1, 2)[:, batch.slot_of_token]
        vectors = [reduce(lambda x, module: module(x), [*model][1:], batch.embeddings(values)) for values in tokens]
        return torch.cat(vectors, 1)


class Matryoshka2dLoss(AdaptiveLayerLoss):
    """``AdaptiveLayerLoss`` of ``sbert.losses.MatryoshkaLoss``.

    Args:
        model: The model, whose first module is a transformer.
        loss: A loss of vectors.
        matryoshka_dims: The dimensions to truncate to.
        matryoshka_weights: A weight for each of them; by default all 1.
        n_layers_per_step: As in ``AdaptiveLayerLoss``.
        n_dims_per_step: How many dimensions theirs draw; -1 for all. Here all count, that much less.
        options: The further arguments of ``AdaptiveLayerLoss``.
    """

    def __init__(
        self, model: Any, loss: Any, matryoshka_dims: Sequence[int], matryoshka_weights: Sequence[float] | None = None,
        n_layers_per_step: int = 1, n_dims_per_step: int = 1, **options: Any,
    ) -> None:  # fmt: skip
        count = len(matryoshka_dims)
        share = n_dims_per_step / count if 0 < n_dims_per_step < count else 1.0
        weights = [share * weight for weight in matryoshka_weights or [1.0] * count]
        super().__init__(model, losses.MatryoshkaLoss(loss, matryoshka_dims, weights), n_layers_per_step, **options)
