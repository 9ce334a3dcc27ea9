"""Codec of Pooling, in the older form with one flag per mode and the newer one with a list of modes."""

from __future__ import annotations

from typing import Any

from sbert.modules import Pooling
from sbert.modules.pooling import POOLINGS
from sbert.saving.codecs.codec import configured
from sbert.saving.format import POOLING_KEYS, POOLING_NAMES
from sbert.storage.files import JsonObject


def _arguments(config: JsonObject) -> dict[str, Any]:
    given = config.field("pooling_mode", (str, list), None)
    if given is None:
        flags = {key: config.field(key, bool, None) for key in POOLING_KEYS}
        given = [mode for key, mode in POOLING_KEYS.items() if flags[key]]
    names = [given] if isinstance(given, str) else given or ["mean"]
    modes = [POOLING_NAMES.get(str(name), str(name)) for name in names]
    unknown = [mode for mode in modes if mode not in POOLINGS]
    if unknown:
        reason = f"gives the pooling mode {unknown[0]!r}, which is not one of {', '.join(POOLINGS)}"
        raise config.error(reason, f"import the code that defines it, with @register_pooling({unknown[0]!r})")
    return {"mode": modes, "include_prompt": config.field("include_prompt", bool, True)}


def _settings(module: Pooling, input_dim: int) -> dict[str, Any]:
    # The flags express neither an order nor registered modes. The list is read since sentence-transformers 5.4.
    in_order_of_flags = [mode for mode in POOLING_KEYS.values() if mode in module.modes]
    foreign_names = {ours: theirs for theirs, ours in POOLING_NAMES.items()}
    modes = [foreign_names.get(mode, mode) for mode in module.modes]
    return {
        "word_embedding_dimension": input_dim,
        **{key: mode in module.modes for key, mode in POOLING_KEYS.items()},
        **({} if list(module.modes) == in_order_of_flags else {"pooling_mode": modes}),
        "include_prompt": module.include_prompt,
    }


CODEC = configured(Pooling, _arguments, _settings)
