"""Losses whose negatives are other rows of the batch: MultipleNegativesRankingLoss and others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sbert.functional import ALL_SIMILARITIES, SIMILARITIES, check_similarity, cos_sim, pairwise_cosines
from sbert.inputs.arguments import check_choice
from sbert.losses.checks import Data, check_columns, check_margin, check_temperature
from sbert.losses.module import LossModule

# Rows scored at a time: with thousands of rows, all scores together would take more memory than the model.
_ROWS = 512

_Blocks = list[tuple[int, int]]  # Pairs of columns whose rows are compared.
# For each name in ``contrast``, the columns whose rows are compared: 0 the anchor, 1 the positive, 2 all negatives.
_CONTRASTS = {
    "anchor-anchor": (0, 0),
    "positive-anchor": (1, 0),
    "positive-positive": (1, 1),
    "positive-negative": (1, 2),
}


def _same_text(texts: Tensor, column: int, part: slice) -> Tensor:
    """Mask of the texts of a column that are a row's anchor or positive, or belong to a row with one of them.

    Shape:
        texts: (rows, columns), equal ids for equal texts. Output: (part rows, rows), boolean.
    """
    anchor, positive = texts[part, :1], texts[part, 1:2]  # each (part rows, 1)
    same = (texts[:, column] == anchor) | (texts[:, column] == positive)
    if column < 2:
        same |= (positive, anchor)[column] == texts[:, 1 - column]
    return same


class MultipleNegativesRankingLoss(LossModule):
    """Cross-entropy of each anchor's positive against all candidates in the batch (in-batch negatives).

        loss = mean_i -log( exp(s(a_i, c_i) / t) / sum_j exp(s(a_i, c_j) / t) )

    The candidates c are the positives of all rows, followed by the negatives of all rows. For a single row without
    negatives, the loss is 0.

    False negatives are removed from the sum, but never the row's own positive:

    - with ``texts``: candidates with the same text as the row's positive or anchor, the positives of rows with the
      same anchor, and the anchors of rows with the same positive;
    - with ``guide``: candidates whose similarity, by the cosine of the guide model's vectors, is above that of the
      row's anchor and positive minus ``guide_margin``.

    | loss in the literature | settings |
    |---|---|
    | GISTEmbed, with ``guide`` | ``contrast=("anchor-anchor", "positive-positive")`` |
    | bidirectional, of Jina v2 | ``symmetric=True`` |
    | improved contrastive loss, of GTE | ``contrast`` with all four names |
    | hardness-weighted, of LLaVE | ``hardness=9, hardness_mode="in_batch"`` |
    | hardness-weighted, of EmbeddingGemma | ``hardness=5, hardness_mode="hard"`` |

    Args:
        temperature: t, divides the similarity. Smaller values give hard candidates more weight.
        similarity: s, ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``; the last two are negative distances.
            With ``"maxsim"``, the columns are ``TokenEmbeddings``; s is then a sum over the query's tokens, so that a
            temperature near 1 suits it.
        symmetric: Whether to average with the loss in the other direction: each positive's anchor against all anchors
            in the batch.
        guide_margin: Subtracted from the guide's cosine of the positive. Greater values remove more candidates.
        relative_margin: Whether ``guide_margin`` is a share of that cosine: cos - abs(cos) * margin.
        contrast: Further similarities in the sum below the fraction: ``"anchor-anchor"``, ``"positive-positive"`` and
            ``"positive-negative"`` of different rows, and ``"positive-anchor"`` of all rows.
        hardness: a; for a candidate c_j that is weighted, s(a_i, c_j) / t + a s(a_i, c_j) stands in the sum, without a
            gradient in the second term.
        hardness_mode: Which candidates are weighted: ``"in_batch"``, those of other rows; ``"hard"``, the row's own
            negatives; or ``"all"`` of them.
        in_batch: Whether the texts of other rows are candidates, too. If not, each row needs negatives of its own.

    Shape:
        Each column: (rows, dim). texts: (rows, columns), integer ids, equal for equal texts.
        guide: (rows, columns, guide_dim). Output: scalar.

    Raises:
        ValueError: If a setting is unknown or out of range, or the shapes do not match.

    References:
        Henderson et al., 2017, section 4.4. https://arxiv.org/abs/1705.00652
        van den Oord et al., 2018, section 2.3 (InfoNCE). https://arxiv.org/abs/1807.03748
        Solatorio, 2024 (GISTEmbed). https://arxiv.org/abs/2402.16829
        de Souza P. Moreira et al., 2024 (both kinds of margins). https://arxiv.org/abs/2407.15831
        Günther et al., 2024 (bidirectional). https://arxiv.org/abs/2310.19923
        Li et al., 2023 (GTE). https://arxiv.org/abs/2308.03281
        Lan et al., 2025, equation 5 (LLaVE). https://arxiv.org/abs/2503.04812
        Schechter Vera et al., 2025 (EmbeddingGemma). https://arxiv.org/abs/2509.20354

    Example:
        >>> import torch
        >>> from sbert.losses import MultipleNegativesRankingLoss
        >>> anchor = torch.eye(2)
        >>> MultipleNegativesRankingLoss(temperature=1.0)(anchor, anchor).round(decimals=4)
        tensor(0.3133)
    """

    least_rows = 2

    def __init__(
        self,
        temperature: float = 0.05,
        similarity: str = "cosine",
        symmetric: bool = False,
        guide_margin: float = 0.0,
        relative_margin: bool = False,
        contrast: Sequence[str] = (),
        hardness: float = 0.0,
        hardness_mode: str = "all",
        in_batch: bool = True,
    ) -> None:
        super().__init__()
        if not in_batch and (symmetric or contrast):
            raise ValueError("in_batch=False leaves a row's own negatives alone; leave symmetric and contrast out")
        if isinstance(contrast, str) or set(contrast) - set(_CONTRASTS) or len(set(contrast)) < len(contrast):
            raise ValueError(f"contrast={contrast!r}; pass a tuple of some of {', '.join(_CONTRASTS)}, each once")
        check_choice("hardness_mode", hardness_mode, ("all", "in_batch", "hard"))
        self.temperature: float = check_temperature(temperature)
        self.similarity: str = check_similarity(similarity, ALL_SIMILARITIES)
        self.symmetric: bool = symmetric
        self.guide_margin: float = guide_margin
        self.relative_margin: bool = relative_margin
        self.contrast: tuple[str, ...] = tuple(contrast)
        self.hardness: float = check_margin(hardness, "hardness")
        self.hardness_mode: str = hardness_mode
        self.in_batch: bool = in_batch

    def forward(
        self,
        anchor: Tensor,
        positive: Tensor,
        *negatives: Tensor,
        texts: Tensor | None = None,
        guide: Tensor | None = None,
    ) -> Tensor:
        columns = check_columns(self, anchor, positive, *negatives)
        if guide is not None:
            # In bfloat16, the cosines of equal texts would differ by up to 0.01.
            guide = guide.detach().to(torch.promote_types(guide.dtype, torch.float32))
        blocks = [(0, column) for column in range(1, len(columns))]
        for name in self.contrast:
            query, column = _CONTRASTS[name]
            blocks += [(query, other) for other in ([column] if column < 2 else range(2, len(columns)))]
        loss = self._compare(blocks, columns, texts, guide)
        return (loss + self._compare([(1, 0)], columns, texts, guide)) / 2 if self.symmetric else loss

    def _compare(self, blocks: _Blocks, columns: list[Tensor], texts: Tensor | None, guide: Tensor | None) -> Tensor:
        """The mean cross-entropy of all rows; each block compares two columns, the first block has the positives."""
        rows = len(columns[0])
        parts = [slice(start, min(start + _ROWS, rows)) for start in range(0, rows, _ROWS)]
        sum_of: Callable[..., Tensor] = self._sum
        if len(parts) > 1:  # The backward pass computes the scores again: only those of one part are in memory.
            sum_of = partial(checkpoint, self._sum, use_reentrant=False, preserve_rng_state=False)
        return torch.stack([sum_of(blocks, columns, part, texts, guide) for part in parts]).sum() / rows

    def _sum(
        self, blocks: _Blocks, columns: list[Tensor], part: slice, texts: Tensor | None, guide: Tensor | None
    ) -> Tensor:
        """The sum of the losses of the rows in ``part``."""
        rows = torch.arange(len(columns[0]), device=columns[0].device)
        same_row = rows[part, None] == rows  # (part rows, rows)
        limit = None if guide is None else self._limit(guide, part)
        scores = []
        for query, column in blocks:
            similarities: Tensor = ALL_SIMILARITIES[self.similarity](columns[query][part], columns[column])
            block = similarities / self.temperature  # (part rows, rows)
            if self.hardness and query == 0 and column > 0:
                block = block + self.hardness * similarities.detach() * self._weigh(column, same_row)
            masks = [same_row] if query == column or (query == 1 and column > 1) else []
            if not self.in_batch:
                masks.append(~same_row)
            if texts is not None:
                masks.append(_same_text(texts, column, part))
            if guide is not None and limit is not None:
                masks.append(cos_sim(guide[part, query], guide[:, column]) > limit)
            if masks:
                out = torch.stack(masks).any(0)  # (part rows, rows): no candidates
                block = block.masked_fill(out & ~same_row if query + column == 1 else out, -torch.inf)
            scores.append(block)
        return F.cross_entropy(torch.cat(scores, 1), rows[part], reduction="sum")

    def _limit(self, guide: Tensor, part: slice) -> Tensor:
        """The guide's cosine above which a candidate is left out, (part rows, 1)."""
        # The diagonal of all: a candidate with the text of the positive has the same cosine, to the last bit.
        positive = cos_sim(guide[part, 0], guide[:, 1]).diagonal(part.start)[:, None]
        return positive - self.guide_margin * (positive.abs() if self.relative_margin else 1)

    def _weigh(self, column: int, same_row: Tensor) -> Tensor:
        """Mask of the candidates of a column that are weighted by their hardness, (part rows, rows)."""
        if self.hardness_mode == "hard":
            return same_row & (column > 1)
        return ~same_row if self.hardness_mode == "in_batch" or column == 1 else torch.ones_like(same_row)

    def check_data(self, data: Data) -> None:
        """Raise unless a row has a candidate other than its positive."""
        if data.columns < 3 and not self.in_batch:
            raise ValueError("in_batch=False compares with a row's own negatives, and the data has none; add a column")
        if data.columns < 3:
            super().check_data(data)


class ContrastiveTensionLoss(LossModule):
    """Each text's vector by one model should be most similar to the same text's vector by the other.

        loss = (mean_i -log softmax_j(s(u_i, v_j) / t)_i + mean_i -log softmax_j(s(u_j, v_i) / t)_i) / 2

    The model returns the vectors u and v of both copies side by side, because a loss sees vectors only: see
    ``sbert.losses``. The negatives are the other rows of the batch. t is trained, too. For a single row, the loss is 0.

    Args:
        temperature: t, at the start.
        similarity: s, ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``; the last two are negative distances.

    Shape:
        sentence: (rows, 2 * dim), first u, then v. Output: scalar.

    Raises:
        ValueError: If a setting is invalid.

    References:
        Carlsson et al., 2021 (with sampled pairs). https://openreview.net/forum?id=Ov_sMNau-PF
        Radford et al., 2021, figure 3 (both directions in the batch, t trained). https://arxiv.org/abs/2103.00020

    Example:
        >>> import torch
        >>> from sbert.losses import ContrastiveTensionLoss
        >>> loss = ContrastiveTensionLoss(temperature=1.0)
        >>> loss(torch.cat([torch.eye(2), torch.eye(2)], 1)).round(decimals=4).detach()
        tensor(0.3133)
    """

    takes_several_vectors = True
    least_rows = 2

    def __init__(self, temperature: float = 0.05, similarity: str = "cosine") -> None:
        super().__init__()
        self.similarity: str = check_similarity(similarity)
        self.log_scale: nn.Parameter = nn.Parameter(torch.tensor(-math.log(check_temperature(temperature))))

    def forward(self, sentence: Tensor) -> Tensor:
        (sentence,) = check_columns(self, sentence)
        first, second = sentence.chunk(2, 1)
        scores: Tensor = SIMILARITIES[self.similarity](first, second) * self.log_scale.exp()  # (rows, rows)
        diagonal = torch.arange(len(scores), device=scores.device)
        return (F.cross_entropy(scores, diagonal) + F.cross_entropy(scores.T, diagonal)) / 2


class MegaBatchMarginLoss(LossModule):
    """A pair should be more similar than one margin, its anchor and the hardest negative less similar than another.

        loss = mean_i max(m_p - cos(a_i, p_i), 0) + max(max_{j != i} cos(a_i, p_j) - m_n, 0)

    The larger the batch, the harder its negatives: 500 rows or more, with ``chunk_tokens`` of ``TrainingConfig`` where
    memory is short. For a single row, the second term is 0.

    Args:
        positive_margin: m_p, a cosine.
        negative_margin: m_n, a cosine below ``positive_margin``.

    Shape:
        anchor, positive: (rows, dim). Output: scalar.

    Raises:
        ValueError: If the margins are not in order, or the shapes do not match.

    References:
        Wieting and Gimpel, 2018 (mega-batches; there with one margin, between both cosines).
        https://aclanthology.org/P18-1042

    Example:
        >>> import torch
        >>> from sbert.losses import MegaBatchMarginLoss
        >>> MegaBatchMarginLoss()(torch.eye(2), torch.eye(2))
        tensor(0.)
        >>> MegaBatchMarginLoss()(torch.eye(2), torch.ones(2, 2)).round(decimals=4)
        tensor(0.5000)
    """

    def __init__(self, positive_margin: float = 0.8, negative_margin: float = 0.3) -> None:
        super().__init__()
        if not -1 <= negative_margin < positive_margin <= 1:
            raise ValueError(f"margins {positive_margin}, {negative_margin}; pass cosines, the first greater")
        self.positive_margin: float = positive_margin
        self.negative_margin: float = negative_margin

    def forward(self, anchor: Tensor, positive: Tensor) -> Tensor:
        anchor, positive = check_columns(self, anchor, positive)
        near = F.relu(self.positive_margin - pairwise_cosines(anchor, positive))  # (rows,)
        if len(anchor) == 1:
            return near.mean()
        far = pairwise_cosines(anchor, positive[self._hardest(anchor, positive)])  # (rows,)
        return (near + F.relu(far - self.negative_margin)).mean()

    @staticmethod
    @torch.no_grad()
    def _hardest(anchor: Tensor, positive: Tensor) -> Tensor:
        """The row of each anchor's most similar positive of another row."""
        hardest = []
        for start in range(0, len(anchor), _ROWS):
            cosines = cos_sim(anchor[start : start + _ROWS], positive)
            cosines.diagonal(start).fill_(-math.inf)
            hardest.append(cosines.argmax(1))
        return torch.cat(hardest)
