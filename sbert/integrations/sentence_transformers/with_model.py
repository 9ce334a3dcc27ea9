"""Their losses that need a second model, a decoder, or all layers of the model; and the data of these losses.

Where theirs run the model in their ``forward``, ours have a method ``encode(model, batch)`` or ``collate``, which the
trainer calls: chunks, gradient caching and deduplication work as for other losses. Where theirs draw layers or
dimensions, all of them count here, with weights that give the expected value of theirs.
"""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert import losses
from sbert.backends import padded_arguments
from sbert.backends.huggingface import import_from, silence
from sbert.integrations.sentence_transformers.forms import similarity_name
from sbert.integrations.sentence_transformers.readers import InputExample, NoDuplicatesDataLoader


class _WithModel(nn.Module):
    """A loss that is made with a model, which ours refuse."""

    # In several processes, a copy would get the gradient of a part of the rows, and shared weights too large a one.
    one_process = True

    def __new__(cls, *_values: Any, **_named: Any) -> Any:
        if cls.one_process and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ValueError(f"{cls.__name__} trains in one process; start one, with batches as large as of all")
        return object.__new__(cls)


class ContrastiveTensionLoss(_WithModel):
    """Whether two texts are equal, by the dot product of the first by a copy of the model and the second by the model.

        loss = sum_i -log sigmoid(u_i . v_i) if the texts are equal, else -log(1 - sigmoid(u_i . v_i))

    The copy is trained, too. Both models encode both texts of a row.

    Args:
        model: The model that is copied.

    Shape:
        first, second: (rows, 2 * dim), by the copy and by the model. texts: (rows, 2), integer ids.
        labels: (rows,), 0 or 1; by default whether the ids are equal. Output: scalar.

    Raises:
        ValueError: If there are several processes.

    References:
        Carlsson et al., 2021. https://openreview.net/forum?id=Ov_sMNau-PF
    """

    takes_several_vectors = True

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.copy: nn.Module = copy.deepcopy(model)

    def encode(self, model: nn.Module, batch: Any) -> Tensor:
        """The vectors by the copy, and side by side with them those by the model. Shape: (texts, 2 * dim)."""
        return torch.cat([self.copy.train(model.training)(batch), model(batch)], 1)

    def forward(self, first: Tensor, second: Tensor, *, texts: Tensor, labels: Tensor | None = None) -> Tensor:
        scores = (first.chunk(2, 1)[0] * second.chunk(2, 1)[1]).sum(1)  # (rows,)
        same = texts[:, 0] == texts[:, 1] if labels is None else labels
        return F.binary_cross_entropy_with_logits(scores, same.to(scores), reduction="sum")


class ContrastiveTensionLossInBatchNegatives(_WithModel, losses.ContrastiveTensionLoss):
    """``sbert.losses.ContrastiveTensionLoss`` with a copy of the model, which is trained, too.

    Args:
        model: The model that is copied.
        scale: What the similarities are multiplied by, at the start.
        similarity_fct: A name of a similarity, or a function of ``util``.

    Shape:
        sentence: (rows, 2 * dim), by the copy and by the model. others: further texts of a row, not used.
        Output: scalar.

    Raises:
        ValueError: If there are several processes.
    """

    encode = ContrastiveTensionLoss.encode

    def __init__(self, model: Any, scale: float = 20.0, similarity_fct: Any = "cosine") -> None:
        super().__init__(1 / scale, similarity_name(similarity_fct))
        self.copy: nn.Module = copy.deepcopy(model)

    def collate(self, texts: Any, _generator: Any) -> Any:
        """The first text of each row, with empty ones in place of the others."""
        return [(first, *("" for _ in others)) for first, *others in texts], {}

    def forward(self, sentence: Tensor, *others: Tensor) -> Tensor:  # noqa: ARG002
        return super().forward(sentence)


class ContrastiveTensionDataLoader(NoDuplicatesDataLoader):
    """Pairs for ``fit``: the first of every ``pos_neg_ratio`` is a text and itself, the others are two texts.

    Raises:
        ValueError: If ``batch_size`` is not a multiple of ``pos_neg_ratio``.

    Example:
        >>> loader = ContrastiveTensionDataLoader([str(i) for i in range(14)], batch_size=4, pos_neg_ratio=4)
        >>> [row.label for row in loader.dataset]
        [1, 0, 0, 0, 1, 0, 0, 0]
    """

    sampler = "in_order"

    def __init__(self, sentences: Sequence[str], batch_size: int, pos_neg_ratio: int = 8) -> None:
        if batch_size % pos_neg_ratio:
            raise ValueError(f"batch_size={batch_size} is not a multiple of pos_neg_ratio={pos_neg_ratio}")
        super().__init__([], batch_size)
        texts = 2 * batch_size - batch_size // pos_neg_ratio  # Of a batch.
        rest = iter(random.sample(list(sentences), len(sentences) // texts * texts))
        for first in rest:
            same = len(self.dataset) % pos_neg_ratio == 0
            self.dataset.append(InputExample(texts=[first, first if same else next(rest)], label=int(same)))


class DenoisingAutoEncoderLoss(_WithModel):
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


class AdaptiveLayerLoss(_WithModel, losses.AdaptiveLayerLoss):
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

    one_process = False

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
