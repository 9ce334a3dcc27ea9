"""The texts that the default model learns from: sentences, passages with queries, definitions, functions.

Only sources whose licences allow it; the card names each. Nothing of the evaluation data sets is among them: no
sentence of STS, SICK and SNLI's dev and test, and no passage that shares twelve words in a row with a document of the
retrieval collections. Every fiftieth passage and some packages of code are held out for the figures by kind of text.
"""

import ast
import json
import random
import re
import sysconfig
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from examples.paper.pretrain import HELD_OUT, cells, key
from sbert.data import read_retrieval

SENTENCES = [
    "nli/snli_train_subset.tsv.gz:premise,hypothesis",
    "nli/snli_counterfactual_cad.tsv.gz:premise,hypothesis",
    "nli/mnli_train_ptbtok.tsv.gz:premise,hypothesis",
    "nli/wanli_15k.tsv.gz:premise,hypothesis",
    "nli/nyu_wiki_nli_train.tsv.gz:premise,hypothesis",
    "passages/nq-questions/queries.tsv.gz:query",
]
COLLECTIONS = {"Cranfield": "cranfield", "CACM": "retrieval_dev/cacm", "TIME": "retrieval_dev/time"}
PASSAGES = "passages"
# Of Python's standard library and of packages under the MIT, BSD, Apache or PSF licence.
CODE = "accelerate apsw datasets fsspec huggingface_hub hypothesis IPython langchain_core matplotlib nbclient numpy"
CODE += " peft PIL polars pyarrow pydantic pygments pytest requests scipy sentence_transformers sklearn sqlalchemy"
CODE += " sympy tokenizers torch tqdm transformers txtai uvicorn"
CODE_HELD_OUT = "fastapi jinja2 networkx optuna pandas"
LIBRARY = "library"  # The standard library.
WORDS_OF = 3, 60  # Minimum and maximum number of words per sentence.
MOST_OF_A_SOURCE = 15_000  # Passages of one source, so that law and software do not outweigh food and news.
MOST_OF_RARE = 60_000  # The same, where passages are chosen by their words.
HELD = 50  # Each so-manieth passage is held out.
SHARED = 12  # A passage that shares so many words in a row with an evaluation document is left out.
LONGEST = 1500  # Characters of a function.
RARE = 30  # Words of fewer texts than that are rare.
KNOWN = 12  # Words of fewer passages than that are left aside: many are misprints and names.
WINDOW = 90  # Most words of a part of a passage, in whole sentences; a longer first sentence is cut after 100.
END = re.compile(r"(?<=[.!?])[\"')]*\s+(?=[\"'(]*[A-Z0-9])")
FEW = set(
    "a about after all also an and are as at be been but by can could do does for from had has have he her his how i"
    " if in into is it its may more most no not of on one or other our she so some such than that the their them then"
    " there these they this to up was we were what when where which who why will with would you your".split()
)

Pair = tuple[str, str]  # A title, question, query or docstring, and its passage or function.


def clean(text: str) -> str:
    """Normalize white space, also before punctuation."""
    return re.sub(r" (?=[.,;:!?)])", "", " ".join(text.split()))


def read_sentences(data: Path, seed: int) -> Iterator[str]:
    """Yield each sentence once, without those of the evaluation data sets; at the end, a random one of each passage."""
    seen = sentences_of_evaluation(data)
    least, most = WORDS_OF
    choose = random.Random(seed)
    of_passages = (choose.choice(END.split(passage)) for _, passage in read_pairs(data, seed))
    for text in (text for some in (cells(data, SENTENCES), of_passages) for text in some):
        text = clean(text)
        mark = key(text)
        if least <= text.count(" ") + 1 <= most and mark not in seen:
            seen.add(mark)
            yield text


def read_pairs(
    data: Path, seed: int | None = None, *, held: bool = False, most: int = MOST_OF_A_SOURCE
) -> Iterator[Pair]:
    """Yield each passage once, with its title or question, or else its first sentence, source by source.

    At most ``most`` passages of a source, first those with a title or question. ``held``: those that are
    held out, instead of the others.
    """
    seen, runs = sentences_of_evaluation(data), runs_of_evaluation(data)
    for source in sorted((data / PASSAGES).glob("*/passages.tsv.gz")):
        texts = cells(data, [f"{source.relative_to(data)}:query,text"])
        rows = list(zip(texts, texts, strict=True))
        if seed is not None:
            random.Random(seed).shuffle(rows)
        rows.sort(key=lambda row: not row[0])
        left = most
        for query, passage in rows:
            passage = clean(passage)
            query = clean(query) or END.split(passage)[0]
            mark = key(passage)
            apart = (crc32(mark.encode()) % HELD == 0) == held
            if left and apart and mark not in seen and key(query) not in seen and runs.isdisjoint(runs_of(passage)):
                seen.add(mark)
                left -= 1
                yield query, passage


def with_rare_words(data: Path, known: list[str], pairs: list[Pair], seed: int) -> Iterator[Pair]:
    """Yield parts of passages with many words that few of the known texts have: first those with nine such words.

    Args:
        data: The folder with the passages.
        known: The texts that the model learns from besides.
        pairs: Their passages, which are left out.
        seed: Of the order.
    """
    counts, of_passages = Counter(word for text in known for word in words_of(text)), Counter[str]()
    seen = {key(passage) for _, passage in pairs}
    pool = [pair for pair in read_pairs(data, seed, most=MOST_OF_RARE) if key(pair[1]) not in seen]
    random.Random(seed).shuffle(pool)
    for _, passage in pool:
        of_passages.update(words_of(passage))

    def rare(text: str) -> int:
        return sum(counts[word] < RARE and of_passages[word] >= KNOWN for word in words_of(text))

    for least in (9, 7, 6, 5, 4):
        for pair in pool:
            if rare(pair[1]) < least:
                continue
            part = max(parts_of(pair[1]), key=rare)
            if rare(part) >= least and key(part) not in seen:
                seen.add(key(part))
                title, part = partly(pair, part)
                counts.update(words_of(f"{title} {part}"))
                yield title, part


def parts_of(passage: str) -> Iterator[str]:
    """The part of a passage from each sentence on that has about ``WINDOW`` words, in whole sentences."""
    sentences = END.split(passage)
    for start in range(len(sentences)):
        part: list[str] = []
        for sentence in sentences[start:]:
            words = sentence.split()
            if part and len(part) + len(words) > WINDOW:
                break
            part += words
        yield " ".join(part[: WINDOW + 10])


def words_of(text: str) -> set[str]:
    """The words of at least three letters of a text."""
    return set(re.findall(r"[a-z]{3,}", text.lower()))


def read_definitions(wordnet: Path, data: Path, known: Collection[str], seed: int) -> Iterator[tuple[str, str, str]]:
    """Yield a name, the definition and a query for each concept of WordNet whose name has a known word.

    Two in five definitions come with a name, some with an example. A query is some words of the definition, a name
    with that of a wider concept, an example, or the definition.

    Args:
        wordnet: The folder with the files data.noun, data.verb, data.adj and data.adv of WordNet 3.0.
        data: The folder with the evaluation data sets, whose sentences are left out.
        known: Words that other texts have.
        seed: Of the choice.
    """
    if not (wordnet / "data.noun").exists():
        raise SystemExit(f"{wordnet} has no WordNet; install Debian's wordnet-base, or pass its folder")
    choose, seen = random.Random(seed), sentences_of_evaluation(data)
    concepts = {concept.key: concept for file in sorted(wordnet.glob("data.*")) for concept in read_concepts(file)}
    for names, gloss, wider, _ in concepts.values():
        definition, *examples = re.split(r'; (?=")', gloss)
        if len(definition.split()) < 3 or words_of(" ".join(names)).isdisjoint(known):
            continue
        if not seen.isdisjoint(map(key, [definition, *definition.split(";"), *names, ", ".join(names[:4])])):
            continue
        examples = [text for each in examples if key(text := each.strip('"; ')) not in seen and " " in text]
        passage = f"{choose.choice(names)}: {definition}" if choose.random() < 0.4 else definition
        if examples and choose.random() < 0.6:
            passage += f". {choose.choice(examples)}"
        kind = choose.random()
        if kind < 0.3 and wider:
            query = f"{choose.choice(names)} {choose.choice(concepts[choose.choice(wider)].names)}"
        elif kind < 0.55:
            query = few_words(definition, choose) or definition
        else:
            query = choose.choice(examples) if examples and kind < 0.75 else definition
        name = choose.choice(names) if choose.random() < 0.6 else ", ".join(names[:4])
        yield name, passage, with_typo(query, choose) if choose.random() < 0.2 else query


class Concept(NamedTuple):
    """A synset of WordNet."""

    names: list[str]
    gloss: str  # The definition, and examples in quotation marks.
    wider: list[tuple[str, str]]  # The keys of the concepts that it is a kind of.
    key: tuple[str, str]  # Part of speech and offset.


def read_concepts(file: Path) -> Iterator[Concept]:
    """Yield the concepts of a data file of WordNet, whose lines the manual page wndb(5WN) explains."""
    kind = file.suffix
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("  "):  # The licence.
            fields, _, gloss = line.partition(" | ")
            offset, _, _, number, *rest = fields.split()
            last = 2 * int(number, 16)
            names = [re.sub(r"\(\w+\)$", "", name).replace("_", " ") for name in rest[:last:2]]
            wider = [(kind, to) for mark, to in pairwise(rest[last:]) if mark in ("@", "@i")]
            yield Concept(names, gloss.strip(), wider, (kind, offset))


def read_functions(packages: str) -> Iterator[Pair]:
    """Yield the first sentence of the docstring of each function, and its code without it; every second has no name."""
    seen: set[str] = set()
    for name in packages.split():
        folder = folder_of(name)
        for file in sorted(folder.rglob("*.py")):
            if {"tests", "test", "site-packages", "_vendor"}.isdisjoint(file.relative_to(folder).parts):
                for asks, code in functions_of(file):
                    if key(asks) not in seen:
                        seen.add(key(asks))
                        yield asks, code


def folder_of(package: str) -> Path:
    """The folder of an installed package, or of the standard library."""
    if package == LIBRARY:
        return Path(sysconfig.get_path("stdlib"))
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"{package} is not installed; install sbert[test], whose packages the model learns code from")
    return Path(found.submodule_search_locations[0])


def functions_of(file: Path) -> Iterator[Pair]:
    """The functions of one file that say in at least three words what they do."""
    try:
        source = file.read_text(encoding="utf-8")
        tree = ast.parse(source)
    except (SyntaxError, UnicodeDecodeError):
        return
    lines = source.splitlines()
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not (text := ast.get_docstring(node)):
            continue
        asks = clean(END.split(clean(text.split("\n\n")[0]))[0])
        told = node.body[0]
        body = lines[node.lineno - 1 : told.lineno - 1] + lines[(told.end_lineno or 0) : node.end_lineno]
        code = textwrap.dedent("\n".join(body))[:LONGEST]
        if len(node.body) > 1 and 3 <= asks.count(" ") + 1 <= 40 and asks.isascii():
            without_name = crc32(code.encode()) % 2
            yield asks, re.sub(rf"\b{re.escape(node.name)}\b", "function", code) if without_name else code


def typed(pair: Pair, chance: random.Random) -> str:
    """A query for a passage as people type them: a few of its words, its title or a sentence; some with a typo."""
    title, passage = pair
    sentences = END.split(passage)
    kind = chance.random()
    if kind < 0.5:
        query = few_words(title if kind < 0.3 else chance.choice(sentences), chance) or title
    else:
        query = title if kind < 0.65 else chance.choice(sentences)
    query = " ".join(query.split()[:30])
    if chance.random() < 0.5:
        query = query.lower().rstrip(".?!")
    return with_typo(query, chance) if chance.random() < 0.3 else query


def excerpt(pair: Pair, lengths: Sequence[int], chance: random.Random) -> Pair:
    """A pair with some of the words of its passage, one in three from the middle; its title, or a sentence of them."""
    words, most = pair[1].split(), chance.choice(lengths)
    start = chance.choice((0, 0, max(0, len(words) - most) // 2))
    return partly(pair, " ".join(words[start : start + most]))


def partly(pair: Pair, part: str) -> Pair:
    """The title and a part of a passage; a title that is its first sentence is exchanged for a sentence of the part."""
    title, passage = pair
    if title == END.split(passage)[0] and not passage.startswith(part):
        title = END.split(part)[:2][-1]  # The first may lack its beginning.
    return title, part


def few_words(text: str, chance: random.Random, least: int = 3, most: int = 5) -> str:
    """Three to five words of a text in their order, function words left out; "" if it has fewer."""
    words = [word for word in re.findall(r"[\w'-]+", text) if word.lower() not in FEW]
    number = min(len(words), chance.randint(least, most))
    return " ".join(words[i] for i in sorted(chance.sample(range(len(words)), number))) if number >= least else ""


def with_typo(text: str, chance: random.Random) -> str:
    """The text with a letter left out, doubled, or exchanged with the next, in one of its longer words; or in none."""
    words = text.split()
    long = [i for i, word in enumerate(words) if len(word) > 4 and word.isalpha()]
    if long:
        i = chance.choice(long)
        word, at = words[i], chance.randrange(1, len(words[i]) - 1)
        ways = word[at + 1 :], word[at] * 2 + word[at + 1 :], word[at + 1] + word[at] + word[at + 2 :]
        words[i] = word[:at] + chance.choice(ways)
    return " ".join(words)


def sentences_of_evaluation(data: Path) -> set[str]:
    """The keys of the sentences of all evaluation data sets, and of the queries of the retrieval collections."""
    missing = [source for source in HELD_OUT if not any(data.glob(source.partition(":")[0]))]
    missing += [name for name in COLLECTIONS.values() if not (data / name).is_dir()]
    if missing:
        raise SystemExit(f"{data} lacks {', '.join(missing)}; without them, it could train on evaluation data")
    queries = (query for name in COLLECTIONS.values() for query in read_retrieval(data / name).queries.values())
    return {key(text) for some in (cells(data, HELD_OUT), queries) for text in some}


def runs_of(text: str) -> set[str]:
    """All runs of ``SHARED`` words of a text."""
    words = re.findall(r"\w+", text.lower())
    return {" ".join(words[start : start + SHARED]) for start in range(len(words) - SHARED + 1)}


def runs_of_evaluation(data: Path) -> set[str]:
    """The runs of words of the documents of the retrieval collections."""
    documents = (text for name in COLLECTIONS.values() for text in read_retrieval(data / name).corpus.values())
    return {run for text in documents for run in runs_of(text)}


def cached(read: Callable[[], Iterator[Any]], most: int | None, seed: int, file: Path) -> list[Any]:
    """The texts in random order, cached in a file."""
    if not file.exists():
        found = list(read())
        if not found:
            raise SystemExit(f"there are no texts for {file.name}; pass the folder with nli and passages")
        random.Random(seed).shuffle(found)
        half = file.with_suffix(".half")
        half.write_text("".join(json.dumps(text) + "\n" for text in found[:most]), encoding="utf-8")
        half.rename(file)
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
