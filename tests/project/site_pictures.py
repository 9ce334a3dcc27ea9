"""Pictures of the guides, drawn by the library itself with its own model and the sentences of the examples."""

from __future__ import annotations

import io
import os
import random
import shlex
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from html import escape
from pathlib import Path

from examples.shared import ACTIONS, PEOPLE, PLACES
from sbert import SentenceEncoder, Trainer, TrainingConfig
from sbert.cli.main import main
from sbert.evaluation import SimilarityEvaluator
from sbert.losses import CosineSimilarityLoss
from sbert.visualization import Topics, corpus_map, map_page, project_vectors, similarity_heatmap, training_curves

SENTENCES = [
    "The cat sleeps on the sofa.",
    "A kitten is napping.",
    "Parliament raises the income tax.",
    "Workers must pay more to the state.",
    "The train to Berlin is late.",
    "Passengers wait on the platform.",
]
SESSION = [
    "sbert search texts.txt 'Who sleeps?' --top-k 2 --no-cache",
    "sbert pairs texts.txt --threshold 0.3",
    "sbert encode texts.txt -o vectors.npy",
    "sbert encode texts.txt -o vectors.npy",
]


def draw(folder: Path) -> dict[str, str]:
    """Draw all pictures into a folder, and return the HTML that shows them, by guide."""
    model = SentenceEncoder(device="cpu")
    folder.mkdir(parents=True, exist_ok=True)
    similarity_heatmap(SENTENCES, model, folder / "heatmap.png")

    texts, labels = write_corpus()
    points = project_vectors(model.encode(texts))  # (texts, 2)
    names = [action for action, *_ in ACTIONS]
    corpus_map(points, folder / "map.png", labels=[names[label] for label in labels])
    map_page(texts, points, [Topics(labels, names)], title="Sentences by what is done", path=folder / "map.html")
    training_curves(_train(texts, labels), folder / "curves.png")

    heatmap = _figure("heatmap.png", "Similarities of six sentences: similarity_heatmap(sentences, model)")
    caption = f"{len(texts)} sentences in two wordings, coloured by what is done: corpus_map(vectors, labels=actions)"
    corpus = _figure("map.png", caption) + '<p><a href="../pictures/map.html">The same as a page</a>, by map_page.</p>'
    curves = _figure("curves.png", "A run in which sentences learn what is done: training_curves(history)")
    return {
        "index": corpus.replace("../pictures/", "pictures/"),
        "sbert": heatmap,
        "sbert.search": corpus,
        "sbert.training": curves,
        "sbert.visualization": heatmap + corpus + curves,
        "sbert.cli": run_session(),
    }


def write_corpus() -> tuple[list[str], list[int]]:
    """Sentences of the examples, and what is done in each: every action by every person, in two wordings."""
    numbers = random.Random(0)
    texts, labels = [], []
    for label, action in enumerate(ACTIONS):
        for person in PEOPLE:
            for wording in (0, 1):
                place = numbers.choice(PLACES)[wording]
                texts.append(f"{person[wording]} {action[wording]} {place}.".capitalize())
                labels.append(label)
    return texts, labels


def _train(texts: list[str], labels: list[int]) -> list[dict[str, object]]:
    """The history of a short run on pairs: similar if the same is done."""
    numbers = random.Random(0)
    pairs = []
    for _ in range(320):
        same = numbers.random() < 0.5
        first, second = numbers.randrange(len(texts)), numbers.randrange(len(texts))
        while (labels[first] == labels[second]) != same:
            second = numbers.randrange(len(texts))
        pairs.append((texts[first], texts[second], float(same)))
    config = TrainingConfig(batch_size=8, learning_rate=5e-5, log_every=1, evaluate_every=4, evaluate_first=True)
    evaluator = SimilarityEvaluator(*zip(*pairs[192:], strict=True))
    trainer = Trainer(SentenceEncoder(device="cpu"), pairs[:192], CosineSimilarityLoss(), config, evaluator=evaluator)
    return trainer.fit(show_progress_bar=False)


def run_session() -> str:
    """A few commands and what they print, as a terminal shows it."""
    parts, here = [], Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "texts.txt").write_text("\n".join([*SENTENCES, ""]), encoding="utf-8")
        os.chdir(folder)
        try:
            for command in SESSION:
                with redirect_stdout(io.StringIO()) as said, redirect_stderr(said):
                    if main(shlex.split(command)[1:]):
                        raise RuntimeError(said.getvalue())
                parts.append(f"<b>$ {escape(command)}</b>\n{escape(said.getvalue())}")
        finally:
            os.chdir(here)
    return f'<pre class="terminal">{"".join(parts)}</pre>'


def _figure(name: str, caption: str) -> str:
    return (
        f'<figure><img src="../pictures/{name}" alt="{escape(caption)}" loading="lazy">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )
