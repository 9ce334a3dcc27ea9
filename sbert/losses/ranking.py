"""MultipleNegativesRankingLoss: in-batch negatives (InfoNCE)."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sbert.functional import SIMILARITIES, check_similarity, cos_sim
from sbert.losses.checks import check_several, check_temperature, same_shape
from sbert.losses.module import Data, LossModule

# Rows scored at a time: with thousands of rows, all scores at once would take more memory than the model.
_ROWS = 512


def _same_text(texts: Tensor, part: slice) -> Tensor:
    """Mask of the candidates with the same text as the row's positive or anchor, or that are positives of that anchor.

    Shape:
        texts: (rows, columns), equal ids for equal texts. Output: (part rows, candidates), boolean.
    """
    anchor, positive = texts[part, :1], texts[part, 1:2]  # each (part rows, 1)
    candidates = texts[:, 1:].T.reshape(-1)  # (candidates,): the positives, then each column of negatives
    same = (candidates == positive) | (candidates == anchor)
    same[:, : len(texts)] |= anchor == texts[:, 0]
    return same


def _more_similar(guide: Tensor, margin: float, part: slice) -> Tensor:
    """Mask of the candidates whose similarity to the anchor, by the guide, is above that of the positive minus margin.

    Shape:
        guide: (rows, columns, guide_dim). Output: (part rows, candidates), boolean.
    """
    anchor, candidates = guide[part, 0], guide[:, 1:].transpose(0, 1).flatten(0, 1)
    scores: Tensor = cos_sim(anchor, candidates)  # (part rows, candidates)
    return scores > scores.diagonal(part.start)[:, None] - margin


class MultipleNegativesRankingLoss(LossModule):
    """Cross-entropy of each anchor's positive against all candidates in the batch (in-batch negatives).

        loss = mean_i -log( exp(s(a_i, c_i) / t) / sum_j exp(s(a_i, c_j) / t) )

    The candidates c are the positives of all rows, followed by the negatives of all rows. For a single row without
    negatives, the loss is 0.

    False negatives are removed from the sum, but never the row's own positive:

    - with ``texts``: candidates with the same text as the row's positive or anchor, and the positives of rows with
      the same anchor;
    - with ``guide``: candidates whose cosine with the anchor, by the vectors of the guide model, is above that of the
      row's positive minus ``guide_margin``.

    Args:
        temperature: t, divides the similarity. Smaller values give hard candidates more weight.
        similarity: s, ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``; the last two are negative distances.
        symmetric: Whether to average with the loss in the other direction: each positive's anchor against all anchors
            in the batch.
        guide_margin: Subtracted from the guide's cosine of the positive. Greater values remove more candidates.

    Shape:
        Each column: (rows, dim). texts: (rows, columns), integer ids, equal for equal texts.
        guide: (rows, columns, guide_dim). Output: scalar.

    Raises:
        ValueError: If ``temperature`` is not positive, the similarity is unknown, or the shapes do not match.
        TypeError: If ``texts`` are not integers.

    References:
        Henderson et al., 2017, section 4.4. https://arxiv.org/abs/1705.00652
        van den Oord et al., 2018, section 2.3 (InfoNCE). https://arxiv.org/abs/1807.03748
        Solatorio, 2024 (guide). https://arxiv.org/abs/2402.16829

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
    ) -> None:
        super().__init__()
        if not math.isfinite(guide_margin):
            raise ValueError(f"guide_margin={guide_margin} is not finite; pass a difference of cosines such as 0.1")
        self.temperature: float = check_temperature(temperature)
        self.similarity: str = check_similarity(similarity)
        self.symmetric: bool = symmetric
        self.guide_margin: float = guide_margin

    def forward(
        self,
        anchor: Tensor,
        positive: Tensor,
        *negatives: Tensor,
        texts: Tensor | None = None,
        guide: Tensor | None = None,
    ) -> Tensor:
        columns = same_shape(self, anchor, positive, *negatives)
        self._check_extras(texts, guide, (len(anchor), len(columns)))
        loss = self._direction(columns, texts, guide)
        if not self.symmetric:
            return loss
        swapped = [None if extra is None else extra[:, [1, 0]] for extra in (texts, guide)]
        return (loss + self._direction([columns[1], columns[0]], *swapped)) / 2

    def _direction(self, columns: list[Tensor], texts: Tensor | None, guide: Tensor | None) -> Tensor:
        """The loss of the first column against all others; the second column has the positives."""
        candidates, rows = torch.cat(columns[1:]), len(columns[0])
        parts = [slice(start, min(start + _ROWS, rows)) for start in range(0, rows, _ROWS)]
        # With several parts, the backward pass computes the scores again: only those of one part are in memory.
        again = partial(checkpoint, self._sum, use_reentrant=False, preserve_rng_state=False)
        sum_of = self._sum if len(parts) == 1 else again
        return torch.stack([sum_of(columns[0][part], candidates, part, texts, guide) for part in parts]).sum() / rows

    def _sum(
        self, anchors: Tensor, candidates: Tensor, part: slice, texts: Tensor | None, guide: Tensor | None
    ) -> Tensor:
        """The sum of the losses of the rows in ``part``."""
        scores: Tensor = SIMILARITIES[self.similarity](anchors, candidates)  # (part rows, candidates)
        scores = scores / self.temperature
        if texts is not None or guide is not None:
            scores = scores.masked_fill(self._mask(texts, guide, part), -torch.inf)
        own = torch.arange(part.start, part.stop, device=scores.device)
        return F.cross_entropy(scores, own, reduction="sum")

    @torch.no_grad()
    def _mask(self, texts: Tensor | None, guide: Tensor | None, part: slice) -> Tensor:
        """Mask of the candidates to remove, (part rows, candidates)."""
        masks = [] if texts is None else [_same_text(texts, part)]
        if guide is not None:
            # In bfloat16, the cosines of equal texts would differ by up to 0.01.
            exact = guide.to(torch.promote_types(guide.dtype, torch.float32))
            masks.append(_more_similar(exact, self.guide_margin, part))
        mask = torch.stack(masks).any(0)
        mask.diagonal(part.start).fill_(False)
        return mask

    def check_data(self, data: Data) -> None:
        """Raise unless a row has a candidate other than its positive."""
        if data.columns < 3:
            check_several(self, data)

    def _check_extras(self, texts: Tensor | None, guide: Tensor | None, shape: tuple[int, int]) -> None:
        if texts is not None and (texts.is_floating_point() or tuple(texts.shape) != shape):
            kind = TypeError if texts.is_floating_point() else ValueError
            raise kind(
                f"texts are {texts.dtype} of shape {tuple(texts.shape)};"
                f" pass integer ids of shape {shape}, one for each text of each column"
            )
        if guide is not None and (guide.ndim != 3 or tuple(guide.shape[:2]) != shape):
            raise ValueError(
                f"guide has shape {tuple(guide.shape)}; pass the guide's vector of each text of each column,"
                f" {(*shape, 'guide_dim')}"
            )
