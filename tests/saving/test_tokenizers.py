"""Tokenizers that transformers builds anew from the vocabulary of a tokenizer.json give the tokens of the file."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, normalizers, pre_tokenizers
from torch import nn
from transformers import AutoTokenizer

from sbert import CrossEncoder
from sbert.backends import huggingface
from sbert.cli.main import main
from tests.backends.test_families import FAMILIES, MORE, build, ours
from tests.saving.layouts import LAYOUTS, NAMED, as_its_class_writes_it, change

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers")
TEXTS = ["The Quick fox", " a BOAT", "lake café", "2023 foxes"]


def folder_with(family: str, folder: Path, kind: str | None, steps: dict[str, Any], **settings: Any) -> Path:
    """A folder of a family whose tokenizer.json has other steps than its class, which the settings name."""
    build(family, folder)
    path = folder / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    for name, step in steps.items():
        setattr(tokenizer, name, step)
    tokenizer.save(str(path))
    return change(folder / "tokenizer_config.json", tokenizer_class=kind, **settings)


METASPACE = {"pre_tokenizer": pre_tokenizers.Metaspace()}
SPLIT = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
LOWER = {"normalizer": normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])}
CASED = {"normalizer": normalizers.BertNormalizer(lowercase=False)}
ACCENTS = {"normalizer": normalizers.BertNormalizer(strip_accents=False)}
BYTES = {"pre_tokenizer": pre_tokenizers.ByteLevel(add_prefix_space=False)}
BROKEN = {
    "XLM-R, leftover prefix space": ("xlm-roberta", "XLMRobertaTokenizer", {"pre_tokenizer": SPLIT}, False),
    "XLM-R, lower case": ("xlm-roberta", "XLMRobertaTokenizerFast", {**LOWER, "pre_tokenizer": SPLIT}, None),
    "XLM-R, white space": ("xlm-roberta", "XLMRobertaTokenizer", METASPACE, None),
    "CamemBERT, lower case": ("camembert", "CamembertTokenizer", {**LOWER, "pre_tokenizer": SPLIT}, None),
    "BERT, cased": ("bert", "BertTokenizer", CASED, None),
    "BERT, accents": ("bert", "BertTokenizerFast", ACCENTS, None),
    "DistilBERT, cased": ("distilbert", "DistilBertTokenizer", CASED, None),
    "ELECTRA, cased": ("electra", "ElectraTokenizer", CASED, None),
    "RoBERTa, words": ("roberta", "RobertaTokenizer", {"pre_tokenizer": pre_tokenizers.Whitespace()}, None),
    "Qwen, digits together": ("qwen3", "Qwen2Tokenizer", BYTES, None),
    "T5, lower case": ("t5-encoder", "T5Tokenizer", {**LOWER, "pre_tokenizer": SPLIT}, None),
    "BERT, of XLM-R's vocabulary": ("xlm-roberta", None, {"pre_tokenizer": SPLIT}, None),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_file_is_taken_and_one_warning_says_so(name: str, tmp_path: Path) -> None:
    family, kind, steps, prefix = BROKEN[name]
    more = {} if prefix is None else {"add_prefix_space": prefix}
    folder = folder_with(family, tmp_path / "given", kind, steps, **more)
    if kind is None:  # As paraphrase-multilingual-MiniLM-L12-v2 was at first.
        change(folder / "config.json", model_type="bert", architectures=["BertModel"])
    with pytest.warns(UserWarning, match="of transformers reads .*; the file is used; for the other") as caught:
        model = ours(folder)
    assert len(caught) == 1
    file = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert model[0].tokenize(TEXTS) == [encoding.ids for encoding in file.encode_batch(TEXTS)]
    model.save(tmp_path / "saved")  # It is read the same everywhere.
    assert ours(tmp_path / "saved")[0].tokenize(TEXTS) == model[0].tokenize(TEXTS)
    assert AutoTokenizer.from_pretrained(tmp_path / "saved")(TEXTS)["input_ids"] == model[0].tokenize(TEXTS)


CLASSES = ("distilbert DistilBertTokenizer", "electra ElectraTokenizer", "roberta RobertaTokenizer")
CLASSES += ("camembert CamembertTokenizer", "mpnet GPT2Tokenizer", "t5-encoder T5Tokenizer", "bert BertTokenizerFast")
GOOD = {
    **{family: partial(build, family) for family in (*FAMILIES, *MORE)},
    **{name: LAYOUTS[name] for name in ("baked", "vocabulary_file", "truncated on the left", "links", *NAMED.values())},
    **{names: partial(as_its_class_writes_it, *names.split()) for names in CLASSES},
    # What the settings state goes before the file, as the authors had it in transformers 4.
    "stated case": lambda folder: folder_with("bert", folder, "BertTokenizer", CASED, do_lower_case=True),
    "stated space": lambda folder: folder_with("roberta", folder, "RobertaTokenizer", BYTES, add_prefix_space=True),
}


@pytest.mark.parametrize("name", GOOD)
def test_no_false_alarm(name: str, tmp_path: Path) -> None:
    folder = GOOD[name](tmp_path / "given")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        tokenizer = huggingface.load_tokenizer(folder, {})
    assert not hasattr(tokenizer, "sbert_note")


def test_the_second_text_of_a_pair_has_its_own_segment(tmp_path: Path) -> None:
    """Also where the tokenizer of the file is taken, and after a save."""
    folder = folder_with("bert", tmp_path / "given", "BertTokenizer", CASED)
    with pytest.warns(UserWarning, match="of transformers reads"):
        scorer = CrossEncoder(folder, classes=1, device="cpu", activation=nn.Identity())
    inputs = scorer.tokenizer("a boat", "the lake", return_tensors="pt")
    assert inputs["token_type_ids"].sum() == 3
    with torch.no_grad():
        expected = scorer.auto_model(**inputs).logits[0, 0]
    assert scorer.predict([("a boat", "the lake")])[0] == pytest.approx(float(expected), abs=1e-6)
    scorer.save(tmp_path / "saved")
    again = CrossEncoder(tmp_path / "saved", device="cpu", activation=nn.Identity())
    assert again.predict([("a boat", "the lake")])[0] == pytest.approx(float(expected), abs=1e-6)


def test_reference_vectors_decide(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_with("bert", tmp_path / "given", "BertTokenizer", CASED)
    with pytest.warns(UserWarning, match="the file is used"):
        cased = ours(folder)
    cased.save(tmp_path / "cased")
    reference = (tmp_path / "cased/sbert_reference.json").read_text(encoding="utf-8")
    cased[0].tokenizer = AutoTokenizer.from_pretrained(folder)
    cased.save(tmp_path / "lower")
    for text, match in ((reference, "the file is used"), (None, "the reference vectors fit the first, which is used")):
        text = text or (tmp_path / "lower/sbert_reference.json").read_text(encoding="utf-8")
        (folder / "sbert_reference.json").write_text(text, encoding="utf-8")
        with pytest.warns(UserWarning, match=match) as caught:
            assert ours(folder).verify()
        assert len(caught) == 1
    assert main(["info", str(folder)]) == 0
    assert "BertTokenizer of transformers reads" in capsys.readouterr().out
