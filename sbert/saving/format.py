"""File names and keys of model folders in the format of sentence-transformers, and the settings of an encoder."""

from __future__ import annotations

from dataclasses import dataclass, field

MODULES = "modules.json"
SETTINGS = "config_sentence_transformers.json"
REFERENCE = "sbert_reference.json"
WORDS_CONFIG = "wordembedding_config.json"
WORDS_VOCABULARY = "whitespacetokenizer_config.json"
LSTM_CONFIG = "lstm_config.json"
THEIRS = "sentence_transformers."
OURS = "sbert."

# The file names that sentence-transformers has used for the settings of a transformer.
TRANSFORMER_CONFIGS = [
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
]
# The flags of poolings, in the order in which their vectors are concatenated, and the names of the modes.
POOLING_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
POOLING_NAMES = {"mean_sqrt_len_tokens": "mean_sqrt_len"}


@dataclass
class Settings:
    """The settings of an encoder, in addition to its modules."""

    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    similarity_fn_name: str | None = None
    truncate_dim: int | None = None
