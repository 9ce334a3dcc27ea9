"""Training: rows and a loss in, a better model out.

A loss is a function of vectors (``sbert.losses``). It never sees a model, and its parameters name the columns of the
data. Rows are tuples of texts with the label last, or dicts; ``sbert.data.read_rows`` reads them from files, and data
frames of pandas, polars and Arrow are taken as they are.

>>> import tempfile
>>> import torch
>>> from sbert import SentenceEncoder, Trainer, TrainingConfig
>>> from sbert.losses import CosineSimilarityLoss
>>> rows = [("The cat sleeps.", "A kitten is napping.", 0.9), ("The cat sleeps.", "Taxes go up.", 0.0)]
>>> student = SentenceEncoder(device="cpu")
>>> output = tempfile.mkdtemp()
>>> config = TrainingConfig(output=f"{output}/cats", epochs=2, learning_rate=2e-5)  # the rest: the paper's recipe
>>> history = Trainer(student, rows, CosineSimilarityLoss(), config).fit(resume=True)
>>> history[-1]["step"]
2

The output folder then contains ``final`` (a model), the newest ``checkpoints``, and ``history.jsonl``, which
``sbert.visualization.training_curves`` draws. ``fit(resume=True)`` continues from the last checkpoint, if there is one;
on a CPU, the weights are bit-for-bit identical after a resume. Checkpoints have checksums: one that is damaged is named
in a warning and renamed, and the run continues from the one before it. While a run writes to an output folder, no other
run can.

With ``evaluator=``, a function from a model to a score or to a dict of metrics such as
``sbert.evaluation.SimilarityEvaluator``, the best model is saved in ``best``; ``TrainingConfig(metric=…)`` chooses it
by another metric than the first.

## Options

- **Prompts**: ``TrainingConfig(prompts={"anchor": "query", "positive": "document"})``, by column; each is the name of
  one of the model's prompts, a text, or ``""``. A model with a default prompt needs this setting before it trains.
  A cross-encoder takes one name or text, ``prompts="query"``, before the first text of each pair.
- **Large batches in little memory**: ``chunk_tokens=4096`` computes the same gradient of any loss in chunks (gradient
  caching).
- **Repeated texts** of a batch are encoded once. ``deduplicate=False`` encodes each of them. Rows ``(text, text)``
  train two dropout views of a text, as SimCSE does, if the model has dropout; ``sbert-mini`` has none.
- **Samplers**: ``"random"``; ``"no_duplicates"``, no text twice in a batch, so that the positive of one row is never a
  negative of another; ``"group_by_label"`` for the batch triplet losses; or a function, which may have a
  parameter ``epoch``: a curriculum gives easy rows first and more in each epoch. ``epochs=`` counts the rows of each.
- **Several datasets**: ``Trainer(model, {"nli": nli, "sts": sts}, {"nli": loss, "sts": other})``, alternately or by
  size. The history has ``loss_nli`` and ``loss_sts`` beside ``loss``.
- **Parts of a loss**: a function may return ``{"near": a, "far": b}``, whose sum is the loss; the history has
  ``loss_near`` and ``loss_far``, too.
- **Optimizers** are classes of ``torch.optim`` by name, or functions of groups of parameters: an 8-bit AdamW is
  ``optimizer=bitsandbytes.optim.AdamW8bit``, other settings are ``partial(torch.optim.AdamW, betas=(0.9, 0.98))``.
- **bfloat16** is the default on NVIDIA GPUs that compute in it; weights, losses and the optimizer stay in float32, and
  ``TrainingConfig(dtype="float32")`` computes in it throughout. GPUs without bfloat16 (T4, V100) take
  ``dtype="float16"``, for which torch's ``GradScaler`` scales the gradients.
- **Several processes**: ``torchrun --nproc-per-node 2 train.py`` runs the same program. ``batch_size`` counts the rows
  of all processes, the loss sees all of them, and the result is that of one process, except for dropout's random
  numbers. If a process dies or hangs, the others end with torch's error, at the latest after ``timeout=600`` seconds.
- **Not tested on GPUs**: several processes run with gloo on CPUs in the tests, and sums beside the backward pass on
  simulated streams, so NCCL has not been tried.
- **The command line**: ``sbert train --help`` explains the flags and the file that take all of this for one data set;
  ``sbert train --resume FOLDER`` goes on with a run that was stopped.
- **Adapters**: LoRA and QLoRA have a section of their own below.

A callback sees the gradients before each step of the optimizer, here their norm in each layer:

>>> from sbert.training import Callback
>>> class LayerNorms(Callback):
...     def on_gradients(self, progress):
...         layers = progress.model[0].auto_model.encoder.layer
...         self.norms = [float(torch.nn.utils.get_total_norm([p.grad for p in l.parameters()])) for l in layers]
>>> watch = LayerNorms()
>>> history = Trainer(student, rows, CosineSimilarityLoss(), callbacks=watch).fit()
>>> len(watch.norms) == student[0].auto_model.config.num_hidden_layers
True

A search of settings is ten lines of Optuna, or of any other program of the kind:

>>> import optuna
>>> from sbert.evaluation import SimilarityEvaluator
>>> def score(trial):
...     config = TrainingConfig(steps=2, learning_rate=trial.suggest_float("learning_rate", 1e-6, 1e-3, log=True))
...     model, evaluator = SentenceEncoder(device="cpu"), SimilarityEvaluator.from_rows(rows)
...     history = Trainer(model, rows, CosineSimilarityLoss(), config, evaluator=evaluator).fit()
...     return max(entry["evaluation"]["spearman"] for entry in history if "evaluation" in entry)
>>> optuna.logging.set_verbosity(optuna.logging.WARNING)
>>> study = optuna.create_study(direction="maximize")  # With storage= it can be resumed.
>>> study.optimize(score, n_trials=2)
>>> list(study.best_params)
['learning_rate']

## Many negatives

Rows may have lists of negatives, of which ``negatives`` are drawn again in each epoch. ``load_best`` gives the model
the weights of its best evaluation at the end:

>>> from sbert.losses import MultipleNegativesRankingLoss
>>> many = [("Who sleeps?", "The cat sleeps.", ["The dog barks.", "Taxes go up.", "It rains."])] * 4
>>> config = TrainingConfig(epochs=2, batch_size=2, negatives=1, load_best=True, metric="spearman")
>>> loss, evaluator = MultipleNegativesRankingLoss(in_batch=False), SimilarityEvaluator.from_rows(rows)
>>> history = Trainer(SentenceEncoder(device="cpu"), many, loss, config, evaluator=evaluator).fit()

A model soon knows the negatives that it was given: mine others with its present weights between two trainings, by
``sbert.search.mine_hard_negatives``. Leave out the nearest with ``range_min`` or ``relative_margin=0.05``: they may be
answers that are not labelled.

A cross-encoder is a better judge than the model in training. ``score_lists`` adds its scores to such rows, as labels
for ``DistillKLDivLoss`` and, with ``as_margins=True``, for ``MarginMSELoss``; or to lists of documents, for the losses
of the next section. It yields rows as they are scored, so a file of any size can be written as it goes.

>>> from sbert import CrossEncoder
>>> from sbert.losses import MarginMSELoss
>>> from sbert.search import score_lists
>>> teacher = CrossEncoder(minilm, classes=1, device="cpu")
>>> many = [{"anchor": "Who sleeps?", "positive": "The cat sleeps.", "negatives": ["It rains.", "Taxes go up."]}] * 4
>>> scored = list(score_lists(teacher, many, as_margins=True))
>>> sorted(scored[0]), len(scored[0]["labels"])
(['anchor', 'labels', 'negatives', 'positive'], 2)
>>> history = Trainer(SentenceEncoder(device="cpu"), scored, MarginMSELoss(), TrainingConfig(steps=2)).fit()
>>> import json, tempfile
>>> with tempfile.TemporaryFile("w") as file:  # or open("scores.jsonl", "w"), to score once and train often
...     for row in score_lists(teacher, many):
...         print(json.dumps(row), file=file)

## Adapters for large models

An adapter of ``peft`` trains small matrices beside a frozen base model, such as Qwen3-Embedding-0.6B. The base may be
loaded with ``dtype="bfloat16"``, in which it then computes, and in 4 bits of ``bitsandbytes`` with ``model_kwargs=
{"quantization_config": transformers.BitsAndBytesConfig(load_in_4bit=True)}`` (QLoRA). Adapters train in float32, and
so do ``Dense`` modules. Instructions are ``prompts`` by column; vectors of the last token do not depend on the side of
the padding; ``gradient_checkpointing`` and ``chunk_tokens`` save memory as without adapters:

>>> from peft import LoraConfig
>>> large = SentenceEncoder(minilm, device="cpu", prompts={"query": "Find an answer to: "})
>>> large[0].auto_model.add_adapter(LoraConfig(r=4, target_modules=["query", "value"]))
>>> questions = [("Who sleeps?", "The cat sleeps."), ("What goes up?", "Taxes go up.")]
>>> settings = {"prompts": {"anchor": "query", "positive": ""}, "learning_rate": 1e-4, "merge_adapters": False}
>>> config = TrainingConfig(output=f"{output}/adapter", chunk_tokens=4096, **settings)
>>> history = Trainer(large, questions, MultipleNegativesRankingLoss(), config).fit()
>>> SentenceEncoder(f"{output}/adapter/final", device="cpu").save(f"{output}/merged")

With ``merge_adapters=False``, the folders ``best`` and ``final`` hold the adapter alone and the name of its base model,
from where that is loaded with it; ``save`` then merges them into an ordinary model, which does not need ``peft``. By
default they are merged already. Into 4 bits nothing can be merged: load the folder without ``quantization_config``
first. Checkpoints hold the adapter and the state of its optimizer, not the base: to resume, load the base in the same
dtype and add an adapter of the same configuration; the run refuses another base, by samples of all its weights.

The new head of a cross-encoder (``scorer.auto_model.add_adapter(config)``) is random and trains with its adapter, which
``freeze=`` prevents; its weights have to be float32.

## Pairs as one input

A ``sbert.CrossEncoder`` reads two texts together and scores them. It is more accurate than two vectors and much slower,
so it reranks the results of a search. It trains with the same trainer:

>>> from sbert import CrossEncoder
>>> scorer = CrossEncoder(minilm, classes=1)  # a folder or a name on the hub; the new head is random until trained
>>> _ = scorer.fit(rows)
>>> len(scorer.rank("Who sleeps?", ["The cat sleeps.", "Taxes go up."]))
2

A loss of lists (``LambdaLoss``, ``RankNetLoss``, ``ListNetLoss`` and others) sees all documents of a query together
and learns their order. A row is a query, a list of documents and a list of labels: grades, 1 and 0, or the scores of a
stronger reranker. The lists may differ in length. A retriever's mistakes are the best negatives:

>>> from sbert.losses import LambdaLoss
>>> from sbert.search import mine_hard_negatives
>>> pairs, corpus = [("Who sleeps?", "The cat sleeps.")], ["The dog barks.", "Taxes go up."]
>>> lists = mine_hard_negatives(SentenceEncoder(device="cpu"), pairs, corpus, negatives=2, as_lists=True)
>>> lists[0]["documents"], lists[0]["labels"]
(['The cat sleeps.', 'The dog barks.', 'Taxes go up.'], [1, 0, 0])
>>> _ = scorer.fit(lists, LambdaLoss(), TrainingConfig(steps=2, chunk_tokens=4096))

``LocalizedContrastiveLoss(in_batch=4)`` takes rows without labels, the relevant document first, and adds four documents
of other queries in the batch to each. ``sbert.evaluation.RerankingEvaluator`` measures what a reranker gains.

## Pitfalls

- A loss with weights, such as ``SoftmaxLoss``, starts from torch's random numbers: call ``torch.manual_seed`` before
  you create it. The model's folder does not hold its classifier: the vectors do not depend on it, and other libraries
  would not know the file. To classify pairs later, keep it beside the model, with the order of the classes:
  ``torch.save(loss.state_dict(), "classifier.pt")``, then ``loss.load_state_dict(torch.load("classifier.pt"))`` and
  ``loss.scores(first, second)``. A ``CrossEncoder`` with ``classes=3`` has its classifier in its folder.
- In-batch negatives are wrong if two rows of a batch have the same answer: use ``sampler="no_duplicates"``.
  ``MultipleNegativesRankingLoss`` masks equal texts by itself; a loss of your own does not.
- ``load_dataset`` without ``split="train"`` returns all splits. The trainer refuses those for evaluation.
- ``gradient_checkpointing=True`` changes dropout's random numbers: the gradients are as good, and not the same bits.
- Compare runs on development data, with more than one seed: differences of 0.5 points are often noise.

The programs ``train_nli.py``, ``train_stsb.py``, ``train_triplets.py``, ``custom_loss.py`` and ``distil.py`` in the
folder ``examples`` run in a minute without any data, and take ``--data`` for the full run.
"""

from sbert.distributed.buckets import GradientBuckets
from sbert.distributed.ranks import Ranks
from sbert.inputs.arguments import publish
from sbert.losses.signature import Signature
from sbert.training.backward import TrainingBatch, backward
from sbert.training.callbacks import Callback, EarlyStopping, Progress, TensorBoard, WandB
from sbert.training.config import TrainingConfig
from sbert.training.trainer import Trainer
from sbert.training.training_data import ParquetRows, TrainingData

__all__ = [
    "Trainer",
    "TrainingConfig",
    "backward",
    "Signature",
    "TrainingData",
    "ParquetRows",
    "TrainingBatch",
    "Ranks",
    "GradientBuckets",
    "Callback",
    "Progress",
    "EarlyStopping",
    "TensorBoard",
    "WandB",
]

publish(__name__)
