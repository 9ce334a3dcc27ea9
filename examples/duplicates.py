"""Find duplicate questions: the pairs with the highest similarity among all pairs.

python examples/duplicates.py [--data FILE] [--model MODEL] [--threshold COSINE] [--show N]

FILE is a table (TSV, CSV or JSONL) with the columns question1, question2 and is_duplicate (0 or 1), like Quora's. All
questions are compared with each other, not only those of one row. Pairs without a judgment are ignored: precision is
the share of duplicates among the judged pairs above the threshold, recall the share of duplicates above it.
"""

from shared import load, parser

from sbert.data import read_rows
from sbert.search import paraphrase_mining

ROWS = [
    ("How can I learn to play the guitar?", "What is the best way to learn playing the guitar?", 1),
    ("Why is the sky blue?", "What makes the sky look blue?", 1),
    ("How do I make pancakes?", "What is the recipe for pancakes?", 1),
    ("How much water should I drink every day?", "How many glasses of water should one drink a day?", 1),
    ("Where can I buy a used car?", "How do I sell my old bicycle?", 0),
    ("What is the capital of Australia?", "How do I make pancakes?", 0),
    ("Who invented the telephone?", "How do I clean a wooden floor?", 0),
]

flags = parser(__doc__, "a table of judged pairs of questions")
flags.add_argument("--threshold", type=float, default=0.8, metavar="COSINE", help="minimum cosine of duplicates")
flags.add_argument("--show", type=int, default=5, metavar="N", help="pairs to print")
options = flags.parse_args()

if options.data:
    table = read_rows(options.data, ["question1", "question2"], "is_duplicate", classes=["0", "1"])
    rows = [(row["question1"], row["question2"], row["label"]) for row in table]
else:
    rows = ROWS
questions = list(dict.fromkeys(question for row in rows for question in row[:2]))
places = {question: place for place, question in enumerate(questions)}
judged = {tuple(sorted((places[one], places[two]))): bool(label) for one, two, label in rows if one != two}

found = paraphrase_mining(load(options.model), questions, threshold=options.threshold)
pairs = list(zip(found.first.tolist(), found.second.tolist(), strict=True))
print(f"{len(pairs):,} of the {len(questions) * (len(questions) - 1) // 2:,} pairs of {len(questions):,} questions")
print(f"have a cosine of at least {options.threshold}. The most similar:\n")
for score, first, second in found[: options.show]:
    said = {True: "duplicates", False: "no duplicates", None: "not judged"}[judged.get((first, second))]
    print(f"{score:6.3f}  {said}\n        {questions[first]}\n        {questions[second]}")

known = [judged[pair] for pair in pairs if pair in judged]
right, duplicates = sum(known), sum(judged.values())
print(f"\n{len(known)} of them were judged, {right} of these are duplicates, of {duplicates} in all:", end=" ")
print(f"precision {right / max(1, len(known)):.3f}, recall {right / max(1, duplicates):.3f}")
