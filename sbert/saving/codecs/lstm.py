"""Codec of LSTM."""

from __future__ import annotations

from pathlib import Path

from sbert.modules import LSTM
from sbert.saving.codecs.codec import Codec, ReadOptions, dimension, with_weights, write_weights
from sbert.saving.format import LSTM_CONFIG
from sbert.storage.files import field, read_object, write_json


def _read(folder: Path, _: ReadOptions) -> LSTM:
    path = folder / LSTM_CONFIG
    config = read_object(path)
    key = "word_embedding_dimension" if "word_embedding_dimension" in config else "embedding_dimension"
    return with_weights(
        folder,
        path,
        LSTM,
        dimension(config, path, key),
        dimension(config, path, "hidden_dim"),
        field(config, path, "num_layers", int, 1),
        float(field(config, path, "dropout", (int, float), 0.0)),
        field(config, path, "bidirectional", bool, True),
    )


def _write(module: LSTM, folder: Path, _: int) -> None:
    layers = module.encoder
    config = {
        "word_embedding_dimension": layers.input_size,
        "hidden_dim": layers.hidden_size,
        "num_layers": layers.num_layers,
        "dropout": layers.dropout,
        "bidirectional": layers.bidirectional,
    }
    write_json(folder / LSTM_CONFIG, config)
    write_weights(module.state_dict(), folder)


CODEC = Codec(_read, _write)
