"""Losses: functions of columns of vectors that know no model.

A loss never sees the model; the trainer does: ``Trainer(model, rows, CosineSimilarityLoss())``. The names of its
parameters are those of the data's columns; ``sbert.training.Signature`` has the rule.

## Which loss for which data

| data | loss |
|---|---|
| two texts and a score | ``CoSENTLoss``, ``AnglELoss``, ``CosineSimilarityLoss`` |
| a question and its answer, with or without hard negatives | ``MultipleNegativesRankingLoss``, also as GISTEmbed |
| a question and its answer, in batches of hundreds | ``MegaBatchMarginLoss`` |
| anchor, positive, negative | ``TripletLoss``, or ``MultipleNegativesRankingLoss`` |
| two texts, and whether they belong together | ``OnlineContrastiveLoss``, ``ContrastiveLoss`` |
| two texts and a class, such as entailment | ``SoftmaxLoss``, with any concatenation of the paper's ablation |
| single texts | ``ContrastiveTensionLoss``, or each text twice with ``MultipleNegativesRankingLoss`` (SimCSE) |
| single texts and a class | ``BatchAllTripletLoss``, ``BatchHardTripletLoss``, ``BatchSemiHardTripletLoss`` |
| scores or vectors of a teacher | ``MarginMSELoss``, ``DistillKLDivLoss``; ``MSELoss``, ``EmbeddingDistillationLoss`` |
| pairs for a ``sbert.CrossEncoder`` | ``CrossEntropyLoss``, ``BinaryCrossEntropyLoss``, ``SquaredErrorLoss`` |
| a query, documents and their grades, for a ``CrossEncoder`` | ``LambdaLoss``, ``RankNetLoss``, ``ListMLELoss`` |
| the same with a teacher's scores | ``ListNetLoss``, ``ScoreMarginMSELoss`` |
| the same with the relevant document first, and negatives in the batch | ``LocalizedContrastiveLoss`` |

Two wrappers take other losses: ``MatryoshkaLoss`` trains vectors that can be truncated, and ``WeightedSum`` adds
losses, such as ``GlobalOrthogonalRegularizationLoss`` to any other.

## A loss of your own

It is a function. Chunks, several processes, deduplication and the wrappers work with it without further code:

>>> import torch
>>> import torch.nn.functional as F
>>> from sbert import SentenceEncoder, Trainer, TrainingConfig
>>> def hardest_negative(anchor, positive):
...     '''Each anchor is nearer to its own positive than to that of any other row, by a margin.'''
...     scores = F.normalize(anchor) @ F.normalize(positive).T  # (rows, rows)
...     diagonal = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
...     hardest = scores.masked_fill(diagonal, -torch.inf).amax(1)  # (rows,)
...     return F.relu(hardest - scores.diagonal() + 0.3).mean()
>>> pairs = [{"anchor": f"There are {i} cats.", "positive": f"I see {i} cats."} for i in range(16)]
>>> config = TrainingConfig(batch_size=8, chunk_tokens=256, sampler="no_duplicates")
>>> Trainer(SentenceEncoder(device="cpu"), pairs, hardest_negative, config).fit()[-1]["step"]
2

It may have a method ``check_labels(labels)``, which raises for labels that it does not take, and ``check_data(data)``,
for data that can teach it nothing: ``data.rows`` is the number of rows of the largest batch, ``data.columns`` the
number of columns of text, and ``data.labels`` are all labels. A module may have weights of its own, which are trained
and are part of checkpoints, as those of ``SoftmaxLoss``.

**Data of the rows**: parameters after ``*`` are columns of the data that are not encoded, and arrive as they stand: a
weight, an id, a list of scores, or a text. A parameter with a default is a setting if the data has no such column.

>>> def weighted(anchor, positive, *, weight, power=1.0):
...     return (weight**power * (1 - torch.cosine_similarity(anchor, positive))).mean()
>>> rows = [{**pair, "weight": 1 / (1 + i)} for i, pair in enumerate(pairs)]
>>> Trainer(SentenceEncoder(device="cpu"), rows, weighted, TrainingConfig(steps=1)).fit()[-1]["step"]
1

**Noise and token ids**: a method ``collate(texts, generator)`` gets the texts of each row of a batch, and returns the
texts to encode and further row data, by name. The random numbers are those of the batch, in every process and after a
resume. TSDAE trains without labels: a decoder rebuilds a text from the vector of what noise left of it.

>>> class TSDAE(torch.nn.Module):
...     def __init__(self, tokenize, decoder):
...         super().__init__()
...         self.tokenize, self.decoder = tokenize, decoder
...     def collate(self, texts, generator):
...         ids = [torch.tensor(row[:128]) for row in self.tokenize([text for text, in texts])]
...         words = [text.split() for text, in texts]
...         noisy = [[word for word in row if generator.random() > 0.6] or row[:1] for row in words]
...         padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
...         return [(" ".join(row),) for row in noisy], {"ids": padded}
...     def forward(self, sentence, *, ids):
...         output = self.decoder(ids[:, :-1], encoder_hidden_states=sentence[:, None], use_cache=False)
...         return F.cross_entropy(output.logits.flatten(0, 1), ids[:, 1:].flatten(), ignore_index=0)
>>> from transformers import BertConfig, BertLMHeadModel
>>> encoder = SentenceEncoder(device="cpu")
>>> size = {"num_hidden_layers": 1, "is_decoder": True, "add_cross_attention": True}
>>> decoder = BertLMHeadModel(BertConfig.from_dict({**encoder[0].auto_model.config.to_dict(), **size}))
>>> texts = [(f"There are {i} cats.",) for i in range(8)]
>>> Trainer(encoder, texts, TSDAE(encoder[0].tokenize, decoder), TrainingConfig(steps=1)).fit()[-1]["step"]
1

**Several layers, several models**: a loss sees vectors only. Where it needs those of all layers, or of two models, the
encoder returns them side by side: a subclass of ``Transformer`` concatenates them in its ``forward``, as
``tests/losses/test_layers.py`` shows for ``ContrastiveTensionLoss``. Or the loss has a method
``encode(model, batch)``, which the trainer calls in place of ``model(batch)``; the wrappers refuse such a loss.

## Pitfalls: rows that teach nothing

- Some losses compare the rows of a batch: rankings without negatives, ContrastiveTensionLoss and
  GlobalOrthogonalRegularizationLoss need two rows, CoSENTLoss and AnglELoss two of different labels, the batch triplet
  losses two of one label and one of another; RankNetLoss and LambdaLoss documents of different labels. Classifiers
  and losses of scores need labels that differ. Data that can teach a loss nothing is an error before the first step.
- A batch that happens to teach nothing, such as the last of an epoch with one row, has the value 0 and no gradient.
- Labels that are all 1 draw texts together and none apart: add rows with other labels.
- Labels are checked before the first step, and the error names the row.
"""

from sbert.inputs.arguments import publish
from sbert.losses.distillation import DistillKLDivLoss, EmbeddingDistillationLoss, MarginMSELoss, MSELoss
from sbert.losses.lists import LambdaLoss, ListMLELoss, ListNetLoss, LocalizedContrastiveLoss, RankNetLoss
from sbert.losses.lists import ScoreMarginMSELoss as ScoreMarginMSELoss
from sbert.losses.margin_losses import (
    BatchAllTripletLoss,
    BatchHardTripletLoss,
    BatchSemiHardTripletLoss,
    ContrastiveLoss,
    OnlineContrastiveLoss,
    TripletLoss,
)
from sbert.losses.pair_losses import (
    AnglELoss,
    CoSENTLoss,
    CosineSimilarityLoss,
    GlobalOrthogonalRegularizationLoss,
    SoftmaxLoss,
)
from sbert.losses.ranking import ContrastiveTensionLoss, MegaBatchMarginLoss, MultipleNegativesRankingLoss
from sbert.losses.score_losses import BinaryCrossEntropyLoss, CrossEntropyLoss, SquaredErrorLoss
from sbert.losses.wrappers import MatryoshkaLoss, WeightedSum

__all__ = [
    "AnglELoss",
    "BatchAllTripletLoss",
    "BatchHardTripletLoss",
    "BatchSemiHardTripletLoss",
    "BinaryCrossEntropyLoss",
    "CoSENTLoss",
    "ContrastiveLoss",
    "ContrastiveTensionLoss",
    "CosineSimilarityLoss",
    "CrossEntropyLoss",
    "DistillKLDivLoss",
    "EmbeddingDistillationLoss",
    "GlobalOrthogonalRegularizationLoss",
    "LambdaLoss",
    "ListMLELoss",
    "ListNetLoss",
    "LocalizedContrastiveLoss",
    "MSELoss",
    "MarginMSELoss",
    "MatryoshkaLoss",
    "MegaBatchMarginLoss",
    "MultipleNegativesRankingLoss",
    "OnlineContrastiveLoss",
    "RankNetLoss",
    "ScoreMarginMSELoss",
    "SoftmaxLoss",
    "SquaredErrorLoss",
    "TripletLoss",
    "WeightedSum",
]

publish(__name__)
