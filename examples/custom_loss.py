"""A loss of your own is a function of vectors. Train with large batches in little memory, stop, and resume.

python examples/custom_loss.py [--model MODEL] [--data FOLDER] [--rows N] [--output FOLDER]

FOLDER/captions holds multi30k_train_5cap.tsv.gz and multi30k_test_5cap.tsv.gz: five captions of one picture per row.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from shared import arguments, load, paraphrases, read

from sbert import Trainer, TrainingConfig


def hardest_negative(anchor, positive):
    """Each anchor is nearer to its own positive than to any other row's, by a margin.

    The parameters are named like the columns of the data. Each is a tensor (rows, dim).
    """
    scores = F.normalize(anchor) @ F.normalize(positive).T  # (rows, rows)
    is_positive = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    hardest = scores.masked_fill(is_positive, -torch.inf).amax(1)  # (rows,)
    return F.relu(hardest - scores.diagonal() + 0.3).mean()


def found(model):
    """The share of held-out anchors whose nearest text is their own positive."""
    anchors, positives = ([row[name] for row in held_out] for name in ("anchor", "positive"))
    nearest = model.similarity(model.encode(anchors), model.encode(positives)).argmax(1)
    return sum(positives[i] == positive for i, positive in zip(nearest, positives, strict=True)) / len(held_out)


def stop(model):
    """An evaluator that interrupts the training, as Ctrl-C does."""
    raise KeyboardInterrupt


options = arguments(__doc__)
if options.data:
    parts = (
        read(options, f"captions/multi30k_{part}_5cap.tsv.gz", ["caption1", "caption2"]) for part in ("train", "test")
    )
    train, held_out = ([{"anchor": row["caption1"], "positive": row["caption2"]} for row in rows] for rows in parts)
else:
    train, held_out = paraphrases(384, seed=0), paraphrases(128, seed=1, held_out=True)

model = load(options.model)
print(f"paraphrases found before: {found(model):.3f}")
with tempfile.TemporaryDirectory() as folder:
    config = TrainingConfig(
        output=options.output or Path(folder) / "training",
        steps=max(20, len(train) // 32),
        batch_size=32,
        chunk_tokens=256,  # Tokens per chunk; memory does not grow with the batch size.
        learning_rate=1e-4,
        sampler="no_duplicates",  # Otherwise the positive of another row may also fit this row.
    )
    stopped = replace(config, checkpoint_every=5, evaluate_every=12)
    try:
        Trainer(model, train, hardest_negative, stopped, evaluator=stop).fit()
    except KeyboardInterrupt:
        print("interrupted after step 12")

    model = load(options.model)  # As in a new process; the weights come from the checkpoint.
    history = Trainer(model, train, hardest_negative, config).fit(resume=True)
print(f"resumed from step 10, ended at step {history[-1]['step']}")
print(f"paraphrases found after: {found(model):.3f}")
