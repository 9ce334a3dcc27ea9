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

Three wrappers take other losses: ``MatryoshkaLoss`` trains vectors that can be truncated, ``AdaptiveLayerLoss`` layers
that can be left out, and ``WeightedSum`` adds losses, such as ``GlobalOrthogonalRegularizationLoss`` to any other.

>>> from sbert.losses import CosineSimilarityLoss
>>> loss = CosineSimilarityLoss()
>>> loss(torch.eye(2), torch.ones(2, 2), labels=torch.ones(2)).round(decimals=4)
tensor(0.0858)

## A loss of your own

It is a function. Chunks, several processes, deduplication and the wrappers work with it without further code:

>>> import torch
>>> import torch.nn.functional as F
>>> def hardest_negative(anchor, positive):
...     '''Each anchor is nearer to its own positive than to that of any other row, by a margin.'''
...     scores = F.normalize(anchor) @ F.normalize(positive).T  # (rows, rows)
...     own = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
...     hardest = scores.masked_fill(own, -torch.inf).amax(1)  # (rows,)
...     return F.relu(hardest - scores.diagonal() + 0.3).mean()
>>> hardest_negative(torch.eye(3), torch.eye(3))
tensor(0.)

``Trainer(model, rows, hardest_negative, config)`` trains it on rows with the columns ``anchor`` and ``positive``:

>>> import tempfile
>>> from sbert import SentenceEncoder, Trainer, TrainingConfig
>>> pairs = [{"anchor": f"There are {i} cats.", "positive": f"I see {i} cats."} for i in range(64)]
>>> settings = {"batch_size": 32, "chunk_tokens": 256, "sampler": "no_duplicates"}
>>> config = TrainingConfig(output=tempfile.mkdtemp(), **settings)
>>> history = Trainer(SentenceEncoder(device="cpu"), pairs, hardest_negative, config).fit()
>>> history[-1]["step"]
2

It may also have two methods: ``check_labels(labels)`` raises for labels that it does not take, and
``check_data(data)`` for data that can teach it nothing: ``data.rows`` is the number of rows of the largest batch,
``data.columns`` the number of columns of text, and ``data.labels`` are all labels.

A module may have weights of its own, which are trained and kept in checkpoints. ArcFace (Deng et al., 2019) asks that
each vector be nearer to the vector of its class than to any other, by an angle:

>>> class ArcFace(torch.nn.Module):
...     def __init__(self, dim, classes, margin=0.5, scale=64.0):
...         super().__init__()
...         self.margin, self.scale = margin, scale
...         self.classes = torch.nn.Parameter(torch.randn(classes, dim))
...     def forward(self, sentence, labels):
...         cosines = F.normalize(sentence) @ F.normalize(self.classes).T  # (rows, classes)
...         angles = cosines.clamp(-1 + 1e-6, 1 - 1e-6).acos()
...         own = F.one_hot(labels, len(self.classes))
...         return F.cross_entropy(self.scale * (angles + self.margin * own).cos(), labels)
>>> labelled = [("The cat sleeps.", 0), ("Taxes rise.", 1), ("A kitten naps.", 0), ("Prices rise.", 1)]
>>> Trainer(SentenceEncoder(device="cpu"), labelled, ArcFace(256, 2), TrainingConfig(steps=1)).fit()[-1]["step"]
1

SimCSE (Gao et al., 2021) needs no loss of its own, but rows with the same text twice, and a model with dropout:

>>> from sbert.losses import MultipleNegativesRankingLoss
>>> twice = [(text, text) for text, _ in labelled]
>>> Trainer(SentenceEncoder(minilm), twice, MultipleNegativesRankingLoss(), TrainingConfig(steps=1)).fit()[-1]["step"]
1

## Data of the rows

Parameters after ``*`` are columns of the data that are not encoded, and arrive as they stand: a weight, an id, a list
of scores, or a text; one that ``columns=`` of the trainer names is encoded as well. A parameter with a default is a
setting if the data has no such column.

>>> def weighted(anchor, positive, *, weight, power=1.0):
...     return (weight**power * (1 - torch.cosine_similarity(anchor, positive))).mean()
>>> rows = [{**pair, "weight": 1 / (1 + i)} for i, pair in enumerate(pairs)]
>>> Trainer(SentenceEncoder(device="cpu"), rows, weighted, TrainingConfig(steps=1)).fit()[-1]["step"]
1

So the scores of two teachers, for instance, are two columns, each a list with a number for each candidate:

>>> def two_teachers(anchor, positive, *negatives, small, large):
...     student = torch.stack([torch.cosine_similarity(anchor, text) for text in (positive, *negatives)], 1)
...     teacher = (small.softmax(1) + large.softmax(1)) / 2  # (rows, candidates)
...     return F.kl_div((student / 0.05).log_softmax(1), teacher, reduction="batchmean")
>>> rows = [{**pair, "negative": "Taxes rise.", "small": [2.0, 0.5], "large": [9.0, 1.0]} for pair in pairs]
>>> Trainer(SentenceEncoder(device="cpu"), rows, two_teachers, TrainingConfig(steps=1)).fit()[-1]["step"]
1

## Noise and token ids

A method ``collate(texts, generator)`` gets the texts of each row of a batch, and returns the texts to encode and
further row data, by name. The random numbers are those of the batch, in every process and after a resume. TSDAE trains
without labels: a decoder rebuilds a text from the vector of what noise left of it.

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

## Several layers, several models

A loss sees vectors only. Where it needs those of all layers, or of two models, the encoder returns them side by side:

>>> from sbert import Pooling, Transformer, register_module
>>> from sbert.losses import AdaptiveLayerLoss, MatryoshkaLoss
>>> @register_module
... class AllLayers(Transformer):
...     def __init__(self, model):
...         super().__init__(model)
...         self.config = {"model": str(model)}  # With this, checkpoints save it.
...     @property
...     def dim(self):
...         return super().dim * self.network.config.num_hidden_layers
...     def forward(self, batch):
...         ids, mask = batch.padded()
...         output = self.materialize()(ids, attention_mask=mask.long(), output_hidden_states=True)
...         return batch.embeddings(torch.cat(output.hidden_states[1:], -1)[mask])
>>> layers = SentenceEncoder(AllLayers(minilm), Pooling("mean"))
>>> loss = AdaptiveLayerLoss(MatryoshkaLoss(MultipleNegativesRankingLoss(), [384, 128]), layers=6)  # 2d-Matryoshka
>>> Trainer(layers, pairs[:8], loss, TrainingConfig(steps=1, batch_size=8)).fit()[-1]["step"]
1
>>> del layers[0].auto_model.encoder.layer[3:]  # Three layers are enough.
>>> SentenceEncoder(Transformer(layers[0].auto_model, layers[0].tokenizer), Pooling("mean")).encode("A cat.").shape
(384,)

``ContrastiveTensionLoss`` takes the vectors of two copies in the same way: an encoder that runs ``self.second``, a
``copy.deepcopy`` of its network, after its own, and concatenates both.

## Pitfalls: rows that teach nothing

Some losses compare the rows of a batch: MultipleNegativesRankingLoss without negatives, ContrastiveTensionLoss and
GlobalOrthogonalRegularizationLoss need two rows, CoSENTLoss and AnglELoss two of different labels,
OnlineContrastiveLoss two, the batch triplet losses two of one label and one of another. RankNetLoss and LambdaLoss
need queries whose documents have different labels. Losses with a classifier or of scores (SoftmaxLoss,
CrossEntropyLoss, BinaryCrossEntropyLoss, SquaredErrorLoss) need labels that differ, or one answer would be right for
all texts. All others learn from any row:
CosineSimilarityLoss and ContrastiveLoss from labels that are all 1, too, which draw texts together and none apart, so
add rows with other labels.

- Data that can teach a loss nothing is an error of the trainer before the first step.
- A batch that happens to teach nothing, such as the last of an epoch with one row, has the value 0 and no gradient.
  One class in a batch still teaches a classifier.
- Labels are checked before the first step, and the error names the row.
"""

from sbert.losses.classification import SoftmaxLoss
from sbert.losses.contrastive import ContrastiveLoss, OnlineContrastiveLoss
from sbert.losses.contrastive_tension import ContrastiveTensionLoss
from sbert.losses.distillation import DistillKLDivLoss, MarginMSELoss, MSELoss
from sbert.losses.embedding_distillation import EmbeddingDistillationLoss
from sbert.losses.lambda_loss import LambdaLoss, RankNetLoss
from sbert.losses.lists import ListMLELoss, ListNetLoss, LocalizedContrastiveLoss, ScoreMarginMSELoss
from sbert.losses.mega_batch import MegaBatchMarginLoss
from sbert.losses.ranking import MultipleNegativesRankingLoss
from sbert.losses.regression import AnglELoss, CoSENTLoss, CosineSimilarityLoss
from sbert.losses.regularization import GlobalOrthogonalRegularizationLoss
from sbert.losses.scores import BinaryCrossEntropyLoss, CrossEntropyLoss, SquaredErrorLoss
from sbert.losses.triplets import BatchAllTripletLoss, BatchHardTripletLoss, BatchSemiHardTripletLoss, TripletLoss
from sbert.losses.wrappers import AdaptiveLayerLoss, MatryoshkaLoss, WeightedSum

__all__ = [
    "AdaptiveLayerLoss",
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
