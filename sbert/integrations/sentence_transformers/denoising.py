"""Their loss that needs a decoder.

Where theirs runs the model in its ``forward``, this one has a method ``collate``, which the trainer calls: chunks,
gradient caching and deduplication work as for other losses.
"""

from __future__ import annotations

import copy
import os
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

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
