"""Semantic search: the best documents for a query, and the quality of the search over all judged queries.

python examples/search.py [QUERY] [--data FOLDER] [--model MODEL] [--top-k K]

FOLDER is in BEIR's layout: corpus.jsonl, queries.jsonl and qrels/test.tsv, or the same tables as TSV. The
default QUERY is the first one in the folder. The last table shows the recall of a corpus in low precision.
"""

import random

from shared import load, parser, things, worded

from sbert.data import Retrieval, read_retrieval
from sbert.evaluation import ModelVectors, RetrievalEvaluator
from sbert.search import calibrate, quantize, semantic_search

CORPUS = {
    "d1": "Bread dough rises because yeast turns sugar into gas, which is caught in small bubbles.",
    "d2": "A sourdough starter is flour and water in which wild yeast lives; feed it every day.",
    "d3": "Cut the grass high in summer, or the sun burns the lawn brown.",
    "d4": "Roses are pruned in early spring, just above a bud that looks outwards.",
    "d5": "Tomato plants get brown leaves when they are watered from above; water the soil.",
    "d6": "If the chain of a bicycle slips, it is worn out or the gears are badly adjusted.",
    "d7": "A flat bicycle tyre is mended with a patch: find the hole, roughen the rubber, and glue.",
    "d8": "The moon pulls the sea towards it, so there is high tide twice a day.",
    "d9": "An eclipse of the sun happens when the moon stands between the sun and the earth.",
    "d10": "Cats sleep for most of the day, since hunting takes so much of their strength.",
}
QUERIES = {
    "q1": "Why does bread rise?",
    "q2": "How do I repair a bicycle tyre?",
    "q3": "When should I prune roses?",
    "q4": "What causes the tides of the sea?",
    "q5": "Why are the leaves of my tomato plants brown?",
}
# Documents that no query is about.
CORPUS.update({f"x{i}": worded(thing, random.Random(i)) for i, thing in enumerate(things(held_out=True))})
RELEVANT = {"q1": {"d1": 2, "d2": 1}, "q2": {"d7": 1}, "q3": {"d4": 1}, "q4": {"d8": 1}, "q5": {"d5": 1}}


def short(text: str, most: int = 90) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


flags = parser(__doc__, "a folder of documents, queries and judgments")
flags.add_argument("query", nargs="?", help="default: the first one in the folder")
flags.add_argument("--top-k", type=int, default=5, metavar="K", help="documents to print")
options = flags.parse_args()

data = read_retrieval(options.data) if options.data else Retrieval(QUERIES, CORPUS, RELEVANT)
evaluator = RetrievalEvaluator(*data, precision_recall_at=(10, 100))
vectors = ModelVectors(load(options.model))  # Encodes each text once, for the search and for the metrics.
documents, names = list(data.corpus.values()), list(data.corpus)
corpus = vectors(documents, "document")  # (documents, dim)

query = options.query or next(iter(data.queries.values()))
hits = semantic_search(vectors([query], "query"), corpus, options.top_k)
print(f"{len(documents)} documents. {query}\n")
for hit in hits[0]:
    print(f"{hit.score:6.3f}  {names[hit.row]:>6}  {short(documents[hit.row])}")

figures = evaluator.measure(vectors)
print(f"\nOver {len(data.queries)} queries:", end=" ")
print(", ".join(f"{name} {figures[name]:.3f}" for name in ("ndcg@10", "map@100", "recall@10", "recall@100")))

queries = vectors(list(data.queries.values()), "query")
expected = semantic_search(queries, corpus, 10).indices
ranges = calibrate(corpus)
stored = {"float32": corpus, "int8": quantize(corpus, "int8", ranges), "binary": quantize(corpus, "ubinary")}
print(f"\n{'stored as':28} {'bytes per vector':>16} {'of the best 10 of float32':>26}")
for coarse, fine in (("int8", None), ("binary", None), ("binary", "int8"), ("binary", "float32")):
    rescored = {} if fine is None else {"rescore": stored[fine], "oversample": 4}
    rescored |= {"ranges": ranges} if "int8" in (coarse, fine) else {}
    rows = semantic_search(queries, stored[coarse], 10, **rescored).indices
    recall = (rows[:, :, None] == expected[:, None]).any(2).mean()
    name = coarse if fine is None else f"{coarse}, rescored by {fine}"
    size = sum(stored[precision][0].nbytes for precision in (coarse, fine) if precision)
    print(f"{name:28} {size:16,} {recall:26.3f}")
