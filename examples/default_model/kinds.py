"""How well a model finds texts, by kind: short queries, claims, typos, late passages, code; on what was held out.

python -m examples.default_model.kinds --data FOLDER [MODEL ...]

Each query has one right text among all texts of its kind. The score is the mean reciprocal rank (MRR) of that text,
times 100, over all ranks.
"""

import argparse
import random
from collections.abc import Iterable
from pathlib import Path

from examples.default_model.texts import CODE_HELD_OUT, END, few_words, read_functions, read_pairs, with_typo
from examples.shared import load
from sbert import SentenceEncoder

MOST = 2000  # Queries of each kind.
Kinds = dict[str, tuple[list[str], list[str]]]  # Queries, and the right text for each.


def read_kinds(data: Path) -> Kinds:
    """Queries and texts of each kind, from passages and packages that no training has seen."""
    choose = random.Random(0)
    pairs = [pair for pair in read_pairs(data, held=True) if not pair[1].startswith(pair[0])]  # With a title.
    choose.shuffle(pairs)
    short = [(few_words(title, choose, 3, 3), text) for title, text in pairs]
    short = [pair for pair in short if pair[0]][:MOST]
    # A claim is the last sentence, which its text is then without.
    parts = [(title, END.split(text)) for title, text in pairs]
    claims = [(title, " ".join(rest), last) for title, (*rest, last) in parts if rest and len(last.split()) >= 8][:MOST]
    others = [text for _, text in pairs[-len(short) :]]
    code = list(read_functions(CODE_HELD_OUT))
    choose.shuffle(code)
    return {
        "three words": split(short),
        "claim to title": split((claim, title) for title, _, claim in claims),
        "claim to 60 words": split((claim, " ".join(text.split()[:60])) for _, text, claim in claims),
        "claim with typos": split((with_typo(with_typo(claim, choose), choose), text) for _, text, claim in claims),
        "behind 150 words": split(
            (title, f"{' '.join((' '.join(others[i:] + others[:i])).split()[:150])} {text}")
            for i, (title, text) in enumerate(pairs[:500])
        ),
        "code": split(code[:MOST]),
    }


def split(pairs: Iterable[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """Queries, and their texts."""
    queries, texts = zip(*pairs, strict=True)
    return [*queries], [*texts]


def measure(model: SentenceEncoder, kinds: Kinds) -> dict[str, float]:
    """The mean reciprocal rank of the right text, for each kind."""
    found = {}
    for kind, (queries, texts) in kinds.items():
        asked, given = model.encode_query(queries), model.encode_document(texts, on_truncate="ignore")
        scores = model.similarity(asked, given)  # (queries, texts)
        own = scores.diagonal()[:, None]
        found[kind] = float((1 / ((scores > own).sum(1) + 1)).mean())
    return found


def rows_of(models: dict[str, SentenceEncoder], data: Path) -> list[list[str]]:
    """A table of all models."""
    kinds = read_kinds(data)
    rows = [["", *kinds], ["---", *["---:"] * len(kinds)]]
    for title, model in models.items():
        rows.append([title, *(f"{100 * value:.1f}" for value in measure(model, kinds).values())])
    return rows


def as_table(rows: list[list[str]]) -> str:
    """The rows as Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    """Measure the models and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("models", nargs="*", default=["sbert-mini", "all-MiniLM-L6-v2"])
    options = parser.parse_args()
    models = {Path(name).name: load(name).to("cpu") for name in options.models}
    print(as_table(rows_of(models, options.data)))


if __name__ == "__main__":
    main()
