"""A recurrent layer over the token embeddings of a text."""

from __future__ import annotations

from dataclasses import replace

from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from sbert.batch import TokenEmbeddings
from sbert.inputs.arguments import known_arguments


class LSTM(nn.Module):
    """A long short-term memory over the tokens of each text, in one or both directions.

    Args:
        in_features: Dimension of the token embeddings.
        hidden: Dimension of the hidden state; the output has twice that in both directions.
        layers: Number of layers.
        dropout: Dropout probability between the layers.
        bidirectional: Whether to add the backward direction.

    Shape:
        Input: TokenEmbeddings of (tokens, in_features). Output: TokenEmbeddings of (tokens, hidden) or
        (tokens, 2 * hidden).

    References:
        Conneau et al., 2017, section 3.2 (BiLSTM with max pooling). https://arxiv.org/abs/1705.02364

    Example:
        >>> import torch
        >>> from sbert import LSTM, TokenEmbeddings
        >>> tokens = TokenEmbeddings(torch.zeros(3, 8), torch.tensor([0, 2, 3]))
        >>> LSTM(8, 4)(tokens).values.shape
        torch.Size([3, 8])
    """

    @known_arguments
    def __init__(
        self, in_features: int, hidden: int, layers: int = 1, dropout: float = 0.0, bidirectional: bool = True
    ) -> None:
        super().__init__()
        self.encoder: nn.LSTM = nn.LSTM(
            in_features, hidden, layers, dropout=dropout, bidirectional=bidirectional, batch_first=True
        )

    def forward(self, tokens: TokenEmbeddings) -> TokenEmbeddings:
        dim = self.encoder.hidden_size * (2 if self.encoder.bidirectional else 1)
        if tokens.longest == 0:
            return replace(tokens, values=tokens.values.new_zeros(0, dim))
        values, _ = tokens.padded()  # (rows, longest, in_features)
        lengths = tokens.lengths.clamp(min=1).cpu()
        packed = pack_padded_sequence(values, lengths, batch_first=True, enforce_sorted=False)
        output, _ = self.encoder(packed)
        hidden, _ = pad_packed_sequence(output, True, total_length=tokens.longest)  # (rows, longest, dim)
        return replace(tokens, values=hidden.flatten(0, 1)[tokens.slot_of_token])
