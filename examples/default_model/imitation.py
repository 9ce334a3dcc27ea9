"""How the default model learns: its layers, its vocabulary, the loss, and which texts come in a batch together."""

import unicodedata

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import BertConfig, BertModel, BertTokenizerFast

from sbert import Normalize, Pooling, SentenceEncoder, Transformer
from sbert.training.table import RowIndices

TEMPERATURE = 0.05  # Of the similarities in the loss of the ranking.
# Alphabets of letters that are no words, and Greek letters that are no symbols of science: they occur in words alone.
SCRIPTS = "ARABIC CARIAN CJK CYPRIOT CYRILLIC DEVANAGARI GLAGOLITIC HANGUL HEBREW HIRAGANA KATAKANA".split()
SCRIPTS += "KATAKANA-HIRAGANA LYCIAN OLD PHOENICIAN RUNIC".split()
GREEK = set("ιουςͳϳ")
NEIGHBOURS = 8  # Pairs whose passages are similar come in the same batch, at most so many together.


class Imitation(nn.Module):
    """The distance of the student's vectors and similarities from the teacher's.

        loss = mean_i (1 - cos(s_i, t_i)) + weight * mean_ij (cos(s_i, s_j) - cos(t_i, t_j))^2
            + ranking * mean_i KL(softmax_j cos(t_i, t_j) / 0.05 || softmax_j cos(s_i, s_j) / 0.05),    j != i

    The last term compares how student and teacher rank the other texts of the batch.

    Args:
        weight: Weight of the second term.
        ranking: Weight of the third term.

    Shape:
        sentence, labels: (rows, dim), the student's and the teacher's vectors. Output: scalar.
    """

    labels_are_vectors = True

    def __init__(self, weight: float, ranking: float = 0.0) -> None:
        super().__init__()
        self.weight, self.ranking = weight, ranking

    def extra_repr(self) -> str:
        """The weights: a run with others does not continue."""
        return f"weight={self.weight}, ranking={self.ranking}"

    def forward(self, sentence: Tensor, labels: Tensor) -> Tensor:
        student, teacher = F.normalize(sentence, dim=1), F.normalize(labels, dim=1)
        ours, theirs = student @ student.T, teacher @ teacher.T  # (rows, rows)
        loss = (1 - (student * teacher).sum(1)).mean() + self.weight * (ours - theirs).square().mean()
        itself = torch.eye(len(ours), dtype=torch.bool, device=ours.device)
        found, expected = ((scores / TEMPERATURE).masked_fill(itself, -1e4).log_softmax(1) for scores in (ours, theirs))
        return loss + self.ranking * F.kl_div(found, expected, log_target=True, reduction="batchmean")


def make_student(
    tokenizer: BertTokenizerFast, layers: int, width: int, inner: int, positions: int, seed: int, start: np.ndarray
) -> SentenceEncoder:
    """A BERT with random weights; ``start``, (pieces, width), gives the word embeddings but for their scale."""
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=max(1, width // 64),
        intermediate_size=inner,
        max_position_embeddings=positions,
        hidden_dropout_prob=0.0,  # Each text is seen only a few times.
        attention_probs_dropout_prob=0.0,
    )
    bert = BertModel(config, add_pooling_layer=False)
    table = bert.get_input_embeddings().weight
    initial = torch.from_numpy(start).to(table)
    with torch.no_grad():
        table.copy_(initial * (table.std() / initial.std()))
    return encoder(bert, tokenizer)


def with_vocabulary(student: SentenceEncoder, tokenizer: BertTokenizerFast) -> SentenceEncoder:
    """The student with another vocabulary: a new piece starts as the mean of the old pieces it consists of."""
    bert, old = student[0].auto_model, student.tokenizer
    before = bert.get_input_embeddings().weight.detach()
    known = old.get_vocab()
    rows = []
    for piece in tokenizer.convert_ids_to_tokens(list(range(len(tokenizer)))):
        parts = [piece] if piece in known else old.tokenize(piece.removeprefix("##"))
        rows.append(before[[known[part] for part in parts]].mean(0))
    bert.set_input_embeddings(nn.Embedding.from_pretrained(torch.stack(rows), freeze=False, padding_idx=0))
    bert.config.vocab_size = len(tokenizer)
    return encoder(bert, tokenizer)


def without_other_scripts(student: SentenceEncoder) -> SentenceEncoder:
    """The student without the single letters of scripts that it knows no words of; all other vectors stay the same.

    A word of such letters is then unknown, and not a sequence of letters: texts of languages that the student has not
    learned do not get vectors that look like those of others.
    """
    old = student.tokenizer
    kept = [piece for piece in old.convert_ids_to_tokens(list(range(len(old)))) if not of_other_script(piece)]
    vocabulary = {piece: number for number, piece in enumerate(kept)}
    limit = student.max_seq_length
    return with_vocabulary(student, BertTokenizerFast(vocab=vocabulary, do_lower_case=True, model_max_length=limit))


def of_other_script(piece: str) -> bool:
    """Whether a piece of a vocabulary is a single letter that English does not use, of a word or alone."""
    letter = piece.removeprefix("##")
    if len(letter) != 1 or unicodedata.category(letter)[0] not in "LM":
        return False
    return letter in GREEK or unicodedata.name(letter, "").split(" ")[0] in SCRIPTS


def encoder(bert: BertModel, tokenizer: BertTokenizerFast) -> SentenceEncoder:
    """Mean pooling and normalization behind a BERT."""
    return SentenceEncoder(Transformer(bert, tokenizer), Pooling("mean"), Normalize())


def neighbours(vectors: np.ndarray, seed: int) -> list[np.ndarray]:
    """Groups of at most ``NEIGHBOURS`` similar vectors, as indices: all are halved along a direction, again and again.

    A direction is the difference of two vectors of the group.
    """
    generator = np.random.default_rng(seed)
    groups = [np.arange(len(vectors))]
    while max(map(len, groups)) > NEIGHBOURS:
        halves = []
        for group in groups:
            first, second = vectors[generator.choice(group, 2, replace=False)]
            halves += np.array_split(group[np.argsort(vectors[group] @ (first - second))], 2)
        groups = halves
    return groups


class Together:
    """A sampler: each batch has sentences and pairs of a query and a passage, among them pairs hard to tell apart.

    Args:
        sentences: Number of sentences. The rows are the sentences, and then each query and its passage in turn.
        groups: Pairs that come in the same batch, as numbers of pairs; each pair is in one group.
    """

    def __init__(self, sentences: int, groups: list[np.ndarray]) -> None:
        self.sentences, self.groups = sentences, groups

    def __call__(self, _: object, batch_size: int, generator: np.random.Generator) -> list[RowIndices]:
        pairs = np.concatenate([self.groups[i] for i in generator.permutation(len(self.groups))])
        number = -(-(self.sentences + 2 * len(pairs)) // batch_size)
        texts = self.sentences + 2 * pairs[:, None] + np.arange(2)  # (pairs, 2)
        singles = np.array_split(generator.permutation(self.sentences), number)
        return [
            np.concatenate([some, both.ravel()])
            for some, both in zip(singles, np.array_split(texts, number), strict=True)
        ]
