"""MultipleNegativesRankingLoss: in-batch negatives (InfoNCE)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sbert.functional import SIMILARITIES, check_similarity, cos_sim
from sbert.inputs.arguments import check_choice
from sbert.losses.checks import check_columns, check_margin, check_several, check_temperature
from sbert.losses.module import Data, LossModule

# Rows scored at a time: with thousands of rows, all scores at once would take more memory than the model.
_ROWS = 512


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

    Shape:
        Each column: (rows, dim). texts: (rows, columns), integer ids, equal for equal texts.
        guide: (rows, columns, guide_dim). Output: scalar.

    Raises:
        ValueError: If a setting is unknown or out of range, or the shapes do not match.
        TypeError: If ``texts`` are not integers.

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
        >>> anchor = torch.eye(2)
        >>> MultipleNegativesRankingLoss(temperature=1.0)(anchor, anchor).round(decimals=4)
        tensor(0.3133)
    """

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
    ) -> None:
        super().__init__()
        if not math.isfinite(guide_margin):
            raise ValueError(f"guide_margin={guide_margin} is not finite; pass a difference of cosines such as 0.1")
        if isinstance(contrast, str) or set(contrast) - set(_CONTRASTS) or len(set(contrast)) < len(contrast):
            raise ValueError(f"contrast={contrast!r}; pass a tuple of some of {', '.join(_CONTRASTS)}, each once")
        check_choice("hardness_mode", hardness_mode, ("all", "in_batch", "hard"))
        self.temperature: float = check_temperature(temperature)
        self.similarity: str = check_similarity(similarity)
        self.symmetric: bool = symmetric
        self.guide_margin: float = guide_margin
        self.relative_margin: bool = relative_margin
        self.contrast: tuple[str, ...] = tuple(contrast)
        self.hardness: float = check_margin(hardness, "hardness")
        self.hardness_mode: str = hardness_mode

    def forward(
        self,
        anchor: Tensor,
        positive: Tensor,
        *negatives: Tensor,
        texts: Tensor | None = None,
        guide: Tensor | None = None,
    ) -> Tensor:
        columns = check_columns(self, anchor, positive, *negatives)
        self._check_extras(texts, guide, (len(anchor), len(columns)))
        if guide is not None:
            # In bfloat16, the cosines of equal texts would differ by up to 0.01.
            guide = guide.detach().to(torch.promote_types(guide.dtype, torch.float32))
        blocks = [(0, column) for column in range(1, len(columns))]
        for name in self.contrast:
            query, column = _CONTRASTS[name]
            blocks += [(query, each) for each in ([column] if column < 2 else range(2, len(columns)))]
        loss = self._compare(blocks, columns, texts, guide)
        return (loss + self._compare([(1, 0)], columns, texts, guide)) / 2 if self.symmetric else loss

    def _compare(
        self, blocks: list[tuple[int, int]], columns: list[Tensor], texts: Tensor | None, guide: Tensor | None
    ) -> Tensor:
        """The mean cross-entropy of all rows; each block compares two columns, the first block has the positives."""
        rows = len(columns[0])
        parts = [slice(start, min(start + _ROWS, rows)) for start in range(0, rows, _ROWS)]
        sum_of: Callable[..., Tensor] = self._sum
        if len(parts) > 1:  # The backward pass computes the scores again: only those of one part are in memory.
            sum_of = partial(checkpoint, self._sum, use_reentrant=False, preserve_rng_state=False)
        return torch.stack([sum_of(blocks, columns, part, texts, guide) for part in parts]).sum() / rows

    def _sum(
        self,
        blocks: list[tuple[int, int]],
        columns: list[Tensor],
        part: slice,
        texts: Tensor | None,
        guide: Tensor | None,
    ) -> Tensor:
        """The sum of the losses of the rows in ``part``."""
        rows = torch.arange(len(columns[0]), device=columns[0].device)
        own = rows[part, None] == rows  # (part rows, rows)
        limit = None if guide is None else self._limit(guide, part)
        scores = []
        for query, column in blocks:
            similarities: Tensor = SIMILARITIES[self.similarity](columns[query][part], columns[column])
            block = similarities / self.temperature  # (part rows, rows)
            if self.hardness and query == 0 and column > 0:
                block = block + self.hardness * similarities.detach() * self._weigh(column, own)
            masks = [own] if query == column or (query == 1 and column > 1) else []
            if texts is not None:
                masks.append(_same_text(texts, column, part))
            if guide is not None and limit is not None:
                masks.append(cos_sim(guide[part, query], guide[:, column]) > limit)
            if masks:
                out = torch.stack(masks).any(0)  # (part rows, rows): no candidates
                block = block.masked_fill(out & ~own if query + column == 1 else out, -torch.inf)
            scores.append(block)
        return F.cross_entropy(torch.cat(scores, 1), rows[part], reduction="sum")

    def _limit(self, guide: Tensor, part: slice) -> Tensor:
        """The guide's cosine above which a candidate is left out, (part rows, 1)."""
        # The diagonal of all: a candidate with the text of the positive has the same cosine, to the last bit.
        positive = cos_sim(guide[part, 0], guide[:, 1]).diagonal(part.start)[:, None]
        return positive - self.guide_margin * (positive.abs() if self.relative_margin else 1)

    def _weigh(self, column: int, own: Tensor) -> Tensor:
        """Mask of the candidates of a column that are weighted by their hardness, (part rows, rows)."""
        if self.hardness_mode == "hard":
            return own & (column > 1)
        return ~own if self.hardness_mode == "in_batch" or column == 1 else torch.ones_like(own)

    def check_data(self, data: Data) -> None:
        """Raise unless a row has a candidate other than its positive."""
        if data.columns < 3:
            check_several(self, data)

    def _check_extras(self, texts: Tensor | None, guide: Tensor | None, shape: tuple[int, int]) -> None:
        if texts is not None and (texts.is_floating_point() or tuple(texts.shape) != shape):
            kind = TypeError if texts.is_floating_point() else ValueError
            raise kind(f"texts are {texts.dtype} of shape {tuple(texts.shape)}; pass integer ids of shape {shape}")
        if guide is not None and (guide.ndim != 3 or tuple(guide.shape[:2]) != shape):
            raise ValueError(f"guide has shape {tuple(guide.shape)}; pass vectors of shape {(*shape, 'guide_dim')}")
