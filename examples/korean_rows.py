"""Korean rows: translations from a folder of data, and made-up sentences that say the same as those of shared.py."""

import argparse
import random

from shared import ACTIONS, PEOPLE, PLACES, read, scored_pairs, sentence, things

# In the order of the English lists, of each the same: two wordings, and a more general term.
_PEOPLE = ["여자가/여성이/사람이", "남자가/신사가/사람이", "소년이/남자아이가/아이가", "소녀가/여자아이가/아이가"]
_PEOPLE += ["의사가/의사 선생님이/누군가", "경찰관이/경찰이/누군가", "학생이/제자가/누군가", "요리사가/주방장이/누군가"]
_ACTIONS = ["바이올린을 연주한다/바이올린을 켠다/음악을 한다", "노래를 부른다/곡을 노래한다/음악을 한다"]
_ACTIONS += ["경주를 한다/결승선까지 달린다/운동을 한다", "축구공을 찬다/공을 발로 찬다/운동을 한다"]
_ACTIONS += ["사과를 먹는다/과일을 베어 문다/음식을 먹는다", "커피를 마신다/에스프레소를 홀짝인다/음료를 마신다"]
_ACTIONS += ["소설을 읽는다/책장을 넘긴다/독서를 한다", "자동차를 고친다/차를 수리한다/일을 한다"]
_PLACES = ["공원에서/공공 정원에서/야외에서", "해변에서/바닷가에서/야외에서", "거리에서/길에서/야외에서"]
_PLACES += ["숲에서/나무 사이에서/야외에서", "부엌에서/주방에서/실내에서", "지하실에서/지하층에서/실내에서"]
_PLACES += ["강당에서/로비에서/실내에서", "다락방에서/지붕 밑에서/실내에서"]
_KOREAN = {
    english: tuple(korean.split("/"))
    for pair in ((PEOPLE, _PEOPLE), (ACTIONS, _ACTIONS), (PLACES, _PLACES))
    for english, korean in zip(*pair, strict=True)
}
_DETAILS = ["처음으로", "돈을 벌려고", "내기 때문에", "출근하기 전에", "친구를 위해"]


def korean(thing: tuple, wordings: tuple[int, int, int]) -> str:
    """A sentence for a combination of person, action and place, in the given wording of each."""
    who, does, where = (_KOREAN[part][i] for part, i in zip(thing, wordings, strict=True))
    return f"{who} {where} {does}."


def _worded(thing: tuple, draw: random.Random) -> str:
    return korean(thing, tuple(draw.randrange(2) for _ in range(3)))


def korean_pairs(count: int, seed: int, held_out: bool = False) -> list[dict]:
    """Two sentences per row, and a score from 0 to 1 for equal parts."""
    return scored_pairs(count, seed, held_out, _worded)


def korean_nli(premises: int, seed: int, held_out: bool = False) -> list[dict]:
    """Three rows per premise, one hypothesis for each label: contradiction, entailment, neutral."""
    draw, rows = random.Random(seed), []
    for thing in draw.sample(things(held_out), premises):
        who, does, where = thing
        other = draw.choice([action for action in ACTIONS if action[2] != does[2]])
        neutral = korean(thing, (1, 1, 0)).replace(" ", f" {draw.choice(_DETAILS)} ", 1)
        for label, hypothesis in enumerate([_worded((who, other, where), draw), korean(thing, (2, 2, 2)), neutral]):
            rows.append({"premise": korean(thing, (0, 0, 0)), "hypothesis": hypothesis, "label": label})
    return rows


def translations(count: int, seed: int, held_out: bool = False) -> list[dict]:
    """An English sentence and its Korean translation per row."""
    draw, rows = random.Random(seed), []
    for thing in draw.sample(things(held_out), count):
        chosen = tuple(draw.randrange(2) for _ in thing)
        english = sentence(*(part[i] for part, i in zip(thing, chosen, strict=True)))
        rows.append({"eng": english, "kor": korean(thing, chosen)})
    return rows


def read_translations(options: argparse.Namespace) -> list[dict]:
    """The translations of a data folder, one of each Korean sentence, and none of KorSTS dev and test.

    KorSTS translates STSb row by row. So its rows and those of STSb with the same number are translations, too.
    """
    pair = ["sentence1", "sentence2"]
    korsts = {part: read(options, f"korean/korsts_{part}.tsv", pair) for part in ("train", "dev", "test")}
    rows = read(options, "parallel/junior_high_evaluation_koen.tsv", ["eng", "kor"])
    for english, korean_row in zip(read(options, "stsb/train.tsv", pair), korsts["train"], strict=True):
        rows += [{"eng": english[name], "kor": korean_row[name]} for name in pair]
    held_out = {row[name] for part in ("dev", "test") for row in korsts[part] for name in pair}
    return list({row["kor"]: row for row in rows if row["kor"] not in held_out}.values())
