"""The topics of a document: split it into passages, cluster them, and name each cluster.

python examples/cluster_document.py [--data FILE.txt] [--model MODEL] [--clusters N] [--max-tokens N]

A passage is as many whole sentences as fit into --max-tokens.
"""

from shared import load, parser

from sbert.chunking import encode_chunks
from sbert.search import cluster, topic_words

DOCUMENT = """\
The town council met in its hall on Monday to decide how much money the schools and the library get in a year.
Heavy rain fell in the hills over night, and in the morning the river stood a metre above its usual level.
In the football match on Saturday the home team scored twice in the last ten minutes and won by two goals to one.
Taxes on houses will rise by three per cent, said the mayor, since the town council has to pay for a new school.
The weather office expects more heavy rain tonight, and warns everybody who lives near the river of a flood.
The coach praised his goalkeeper, who kept the football team in the match with three saves in the first half.
Two members of the council voted against the higher taxes and asked the mayor to save money on roads instead.
Firemen filled sandbags at the river all day, while the rain went on and the water crept towards the first houses.
With this goal in the last minute the football team climbs to second place, and its coach hopes to win the league.
"""

flags = parser(__doc__, "a text file")
flags.add_argument("--clusters", type=int, default=3, metavar="N", help="number of clusters")
flags.add_argument("--max-tokens", type=int, default=32, metavar="N", help="maximum number of tokens per passage")
options = flags.parse_args()

document = options.data.read_text(encoding="utf-8") if options.data else DOCUMENT
passages, vectors = encode_chunks(load(options.model), document, options.max_tokens)
texts = [" ".join(passage.text([document]).split()) for passage in passages]
labels = cluster(vectors, "kmeans", clusters=options.clusters)

for number, words in topic_words(texts, labels).items():
    print(f"{number + 1}. {', '.join(words)}")
    for passage, text, label in zip(passages, texts, labels, strict=True):
        if label == number:
            print(f"   {passage.start:6}  {text}")
    print()
