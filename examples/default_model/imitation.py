"""How the default model learns: its layers, its vocabulary, the loss, and which texts come in a batch together."""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from itertools import chain

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import BertModel, BertTokenizerFast

from sbert import Dense, Normalize, Pooling, SentenceEncoder, Transformer
from sbert.training.table import RowIndices

TEMPERATURE = 0.05  # Of the similarities in the loss of the ranking.
# Alphabets of letters that are no words, and Greek letters that are no symbols of science: they occur in words alone.
SCRIPTS = "ARABIC CARIAN CJK CYPRIOT CYRILLIC DEVANAGARI GLAGOLITIC HANGUL HEBREW HIRAGANA KATAKANA".split()
SCRIPTS += "KATAKANA-HIRAGANA LYCIAN OLD PHOENICIAN RUNIC".split()
GREEK = set("ιουςͳϳ")
REFINED_EPOCHS, REFINED_BATCH = 6, 256  # Of the training of the linear layer alone.
NEIGHBOURS = 8  # Similar sentences, and pairs with similar passages, come in the same batch, so many together.


class Imitation(nn.Module):
    """The distance of the student's vectors and similarities from the teachers'.

        loss = mean_i (1 - cos(s_i, t_i)) + weight * mean_ij (cos(s_i, s_j) - cos(t_i, t_j))^2
            + ranking * mean_i KL(softmax_j cos(t_i, t_j) / 0.05 || softmax_j cos(s_i, s_j) / 0.05),    j != i

    The last term compares how student and teachers rank the other texts of the batch. The teachers' vectors may be
    longer than the student's: the first term takes their first dimensions alone, the others all.

    Args:
        weight: Weight of the second term.
        ranking: Weight of the third term.

    Shape:
        sentence: (rows, dim), the student's vectors. labels: (rows, teacher dim), the teachers'. Output: scalar.
    """

    def __init__(self, distance: float, weight: float, ranking: float) -> None:
        super().__init__()
        self.distance, self.weight, self.ranking = distance, weight, ranking

    def extra_repr(self) -> str:
        """The weights: a run with others does not continue."""
        return f"distance={self.distance}, weight={self.weight}, ranking={self.ranking}"

    def forward(self, sentence: Tensor, labels: Tensor) -> Tensor:
        student, teacher = F.normalize(sentence.float(), dim=1), F.normalize(labels.float(), dim=1)
        ours, theirs = student @ student.T, teacher @ teacher.T  # (rows, rows)
        distance = 1 - F.cosine_similarity(student, teacher[:, : student.shape[1]]).mean()
        itself = torch.eye(len(ours), dtype=torch.bool, device=ours.device)
        found, expected = ((scores / TEMPERATURE).masked_fill(itself, -1e4).log_softmax(1) for scores in (ours, theirs))
        rank = F.kl_div(found, expected, log_target=True, reduction="batchmean")
        return self.distance * distance + self.weight * (ours - theirs).square().mean() + self.ranking * rank


def pruned(
    teacher: SentenceEncoder,
    texts: Sequence[str],
    layers: Sequence[int],
    inner: int,
    pieces: int,
    longest: int,
) -> SentenceEncoder:
    """The student at its start: some layers of a BERT, with the neurons and the tokens that the texts use most.

    Args:
        teacher: A SentenceEncoder of a BERT, with mean pooling.
        texts: Texts, which the tokens are counted in.
        layers: Numbers of the layers that the student keeps.
        inner: Number of neurons of each feed-forward layer that it keeps: those with the largest mean activation
            times the length of their weights.
        pieces: Size of the vocabulary; all single characters are in it, but for those of other scripts.
        longest: Maximum number of tokens.
    """
    tokenizer, kept = vocabulary(teacher.tokenizer, texts, pieces, longest)
    bert = deepcopy(teacher[0].auto_model).float()
    table = bert.get_input_embeddings().weight.detach()[kept].clone()
    bert.set_input_embeddings(nn.Embedding.from_pretrained(table, freeze=False, padding_idx=0))
    bert.encoder.layer = nn.ModuleList(bert.encoder.layer[i] for i in layers)
    config = bert.config
    config.vocab_size, config.num_hidden_layers, config.intermediate_size = len(kept), len(layers), inner
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0  # Each text is seen only a few times.
    for part in bert.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    cut_neurons(bert, tokenizer(list(texts[:512]), padding=True, truncation=True, return_tensors="pt"), inner)
    transformer = Transformer(bert, tokenizer)
    transformer.max_seq_length = longest
    return SentenceEncoder(transformer, Pooling("mean"), device=teacher.device)


def fit(student: SentenceEncoder, texts: list[str], targets: np.ndarray) -> SentenceEncoder:
    """The student with a new linear layer, from its pooled vectors to the targets: the one with the least squares."""
    pooled = SentenceEncoder(student[0], student[1], device=student.device).encode(texts, on_truncate="ignore")
    dense = Dense(pooled.shape[1], targets.shape[1], activation="Identity", bias=True)
    # The last LayerNorm leaves one direction without any variance: rcond keeps its weights from becoming huge.
    weight, bias = least_squares(pooled, targets.astype(np.float32), rcond=1e-3)
    dense.linear.load_state_dict({"weight": weight, "bias": bias})
    return SentenceEncoder(student[0], student[1], dense, Normalize(), device=student.device)


def least_squares(vectors: np.ndarray, targets: np.ndarray, rcond: float | None = None) -> tuple[Tensor, Tensor]:
    """The weight, (target dim, dim), and the bias, (target dim,), of the linear layer from vectors to targets."""
    ones = np.ones((len(vectors), 1), np.float32)
    solved = torch.from_numpy(np.linalg.lstsq(np.hstack([vectors, ones]), targets, rcond=rcond)[0])
    return solved[:-1].T, solved[-1]


def smoothed(student: SentenceEncoder, teacher: SentenceEncoder, texts: list[str], prior: int) -> SentenceEncoder:
    """The student with embeddings of rare tokens that come from the teacher's.

    A linear map is fitted from the teacher's embeddings to the student's, of the tokens that at least ``prior`` texts
    have. The new embedding of a token that n texts have is n / (n + prior) of its own, and the rest what the map gives
    for it: from a few texts, a token learns what these are about more than what it means.

    Args:
        student: A SentenceEncoder whose tokens the teacher has, too; it is changed.
        teacher: The one whose embeddings the student's started from.
        texts: Texts, which the tokens are counted in.
        prior: A token that so many texts have keeps half of its own embedding.
    """
    tokenizer, table = student.tokenizer, student[0].auto_model.get_input_embeddings().weight
    counts: Counter[int] = Counter()
    for start in range(0, len(texts), 10_000):
        for ids in tokenizer(texts[start : start + 10_000], verbose=False)["input_ids"]:
            counts.update(set(ids))
    number = np.array([counts[token] for token in range(len(table))])[:, None]  # (tokens, 1)
    names = tokenizer.convert_ids_to_tokens(list(range(len(table))))
    source = teacher[0].auto_model.get_input_embeddings().weight.detach()
    source = source[teacher.tokenizer.convert_tokens_to_ids(names)].numpy()
    learned, often = table.detach().numpy(), number[:, 0] >= prior
    weight, bias = least_squares(source[often], learned[often])
    share = (number / (number + prior)).astype(np.float32)
    with torch.no_grad():
        table.copy_(torch.from_numpy(share * learned + (1 - share) * (source @ weight.numpy().T + bias.numpy())))
    return student


def averaged(models: Sequence[SentenceEncoder], texts: list[str]) -> SentenceEncoder:
    """The last of the models with the mean of the weights of all. Their trainings started from the same model.

    Before, the linear layer of each is mapped to the vectors of the last, by least squares.

    References:
        Wortsman et al., 2022, Model soups: averaging weights of multiple fine-tuned models improves accuracy without
        increasing inference time. https://arxiv.org/abs/2203.05482
    """
    last, parts = models[-1], []
    vectors = [SentenceEncoder(*list(model)[:3], device="cpu").encode(texts, on_truncate="ignore") for model in models]
    for model, own in zip(models, vectors, strict=True):
        weight, bias = least_squares(own, vectors[-1])
        linear = model[2].linear
        mapped = {"weight": weight @ linear.weight, "bias": weight @ linear.bias + bias}
        parts.append((model[0].state_dict(), mapped))
    with torch.no_grad():
        for layer, weights in zip((last[0], last[2].linear), zip(*parts, strict=True), strict=True):
            layer.load_state_dict({name: sum(each[name] for each in weights) / len(models) for name in weights[0]})
    return last


def refined(
    student: SentenceEncoder, texts: list[str], targets: np.ndarray, loss: Imitation, added: float
) -> SentenceEncoder:
    """The student after a training of its linear layer alone, which gets the mean of its weights before and after it.

    The other layers do not change, so that their vectors are computed once, and each epoch takes seconds. At the end,
    a share of the mean of all vectors is added to each, which raises low similarities: they agree better with people's.

    Args:
        student: A SentenceEncoder with a linear layer after its pooling; it is changed.
        texts: The texts to learn from.
        targets: (texts, teacher dim), the teachers' vectors.
        loss: The loss of the training.
        added: Share of the mean of the vectors that is added to each.
    """
    pooled = torch.from_numpy(SentenceEncoder(*list(student)[:2], device="cpu").encode(texts, on_truncate="ignore"))
    labels, linear = torch.from_numpy(targets), student[2].linear
    before = deepcopy(linear.state_dict())
    batches = [torch.randperm(len(texts)).split(REFINED_BATCH) for _ in range(REFINED_EPOCHS)]
    optimizer = torch.optim.Adam(linear.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0, sum(map(len, batches)))
    for rows in chain.from_iterable(batches):
        optimizer.zero_grad()
        loss(linear(pooled[rows]), labels[rows]).backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        for name, weight in linear.named_parameters():
            weight.add_(before[name]).div_(2)
        vectors = linear(pooled)
        linear.bias += added * vectors.norm(dim=1).mean() * F.normalize(vectors, dim=1).mean(0)
    return student


def cut_neurons(bert: BertModel, inputs: dict[str, Tensor], inner: int) -> None:
    """Keep the neurons of each feed-forward layer that change its output most, in place."""
    sizes: list[Tensor] = []
    hooks = [
        layer.intermediate.register_forward_hook(lambda _, __, output: sizes.append(output.abs().mean((0, 1))))
        for layer in bert.encoder.layer
    ]
    with torch.no_grad():
        bert(**{name: value.to(bert.device) for name, value in inputs.items()})
        for layer, size, hook in zip(bert.encoder.layer, sizes, hooks, strict=True):
            hook.remove()
            into, out = layer.intermediate.dense, layer.output.dense
            kept = (size * out.weight.norm(dim=0)).topk(inner).indices.sort().values
            into.weight, into.bias = nn.Parameter(into.weight[kept].clone()), nn.Parameter(into.bias[kept].clone())
            out.weight = nn.Parameter(out.weight[:, kept].clone())
            into.out_features = out.in_features = inner


def vocabulary(
    old: BertTokenizerFast, texts: Sequence[str], size: int, longest: int
) -> tuple[BertTokenizerFast, list[int]]:
    """A tokenizer with the tokens that the texts use most, and their ids in the old one.

    A word of letters of other scripts is unknown, and not a sequence of letters: texts of languages that the student
    has not learned do not get vectors that look like those of others.
    """
    counts: Counter[int] = Counter()
    for start in range(0, len(texts), 10_000):
        for ids in old(list(texts[start : start + 10_000]), add_special_tokens=False, verbose=False)["input_ids"]:
            counts.update(ids)
    names = old.convert_ids_to_tokens(list(range(len(old))))
    usable = [number for number, piece in enumerate(names) if not of_other_script(piece)]
    always = {
        number for number in usable if number in old.all_special_ids or len(names[number].removeprefix("##")) == 1
    }
    most = sorted(set(usable) - always, key=lambda number: -counts[number])
    kept = sorted(always.union(most[: size - len(always)]))
    made = {names[number]: place for place, number in enumerate(kept)}
    return BertTokenizerFast(vocab=made, do_lower_case=True, model_max_length=longest), kept


def of_other_script(piece: str) -> bool:
    """Whether a piece of a vocabulary is a single letter that English does not use, of a word or alone."""
    letter = piece.removeprefix("##")
    if len(letter) != 1 or unicodedata.category(letter)[0] not in "LM":
        return False
    return letter in GREEK or unicodedata.name(letter, "").split(" ")[0] in SCRIPTS


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
    """A sampler: each batch has sentences and pairs, among them some hard to tell apart.

    Args:
        sentences: Sentences that come in the same batch, as indices; each is in one group.
        pairs: Pairs that do. The rows are the sentences, the titles, the queries and the passages.
    """

    def __init__(self, sentences: list[np.ndarray], pairs: list[np.ndarray]) -> None:
        self.sentences, self.pairs = sentences, pairs

    def __call__(self, _: object, batch_size: int, generator: np.random.Generator) -> list[RowIndices]:
        singles, pairs = (
            np.concatenate([groups[i] for i in generator.permutation(len(groups))])
            for groups in (self.sentences, self.pairs)
        )
        number = -(-(len(singles) + 3 * len(pairs)) // batch_size)
        texts = len(singles) + pairs[:, None] + len(pairs) * np.arange(3)  # (pairs, 3)
        return [
            np.concatenate([some, several.ravel()])
            for some, several in zip(np.array_split(singles, number), np.array_split(texts, number), strict=True)
        ]
