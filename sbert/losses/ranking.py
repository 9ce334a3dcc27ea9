"""MultipleNegativesRankingLoss: each anchor's positive among the batch's candidates."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sbert.functional import SIMILARITIES, check_similarity, cos_sim
from sbert.losses.checks import Data, check_several, check_temperature, same_shape, without_model

# Rows whose scores are there at once: of thousands of rows, all scores would take more memory than the model.
_ROWS = 512


def _same_text(texts: Tensor, part: slice) -> Tensor:
    """Candidates that say what a row's positive or anchor says, or that are the positive of an equal anchor.

    Shape:
        texts: (rows, columns), equal numbers for equal texts. Output: (rows of the part, candidates), boolean.
    """
    anchor, positive = texts[part, :1], texts[part, 1:2]  # each (rows of the part, 1)
    candidates = texts[:, 1:].T.reshape(-1)  # (candidates,): the positives, then each column of negatives
    same = (candidates == positive) | (candidates == anchor)
    same[:, : len(texts)] |= anchor == texts[:, 0]
    return same


def _more_alike(guide: Tensor, margin: float, part: slice) -> Tensor:
    """Candidates that the guide finds more like the anchor than the row's positive, less the margin.

    Shape:
        guide: (rows, columns, guide_dim). Output: (rows of the part, candidates), boolean.
    """
    anchor, candidates = guide[part, 0], guide[:, 1:].transpose(0, 1).flatten(0, 1)
    scores: Tensor = cos_sim(anchor, candidates)  # (rows of the part, candidates)
    return scores > scores.diagonal(part.start)[:, None] - margin


@without_model
class MultipleNegativesRankingLoss(nn.Module):
    """Cross-entropy of each anchor's positive against every candidate in the batch.

        loss = mean_i -log( exp(s(a_i, c_i) / t) / sum_j exp(s(a_i, c_j) / t) )

    The candidates c are the positives, followed by the negatives of all rows. A row alone, without negatives, has
    nothing to tell its positive from; its loss is 0.

    Candidates that are no negatives are left out of the sum, but never the row's own positive:

    - with ``texts``, those that are the same text as the row's positive or its anchor, and the positives of rows
      with the same anchor;
    - with ``guide``, those whose cosine with the anchor is, to the guide, above that of the row's positive less
      ``guide_margin``.

    Args:
        temperature: t, divides the similarity. Smaller values weigh hard candidates more.
        similarity: s, ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``; the last two are negative distances.
        symmetric: Whether to take the mean with the loss of the other direction: each positive's anchor against
            every anchor of the batch.
        guide_margin: What the guide takes from the cosine of the positive, so that more candidates are left out.

    Shape:
        Each column: (rows, dim). texts: (rows, columns), whole numbers, equal for equal texts.
        guide: (rows, columns, guide_dim). Output: scalar.

    Raises:
        ValueError: If ``temperature`` is not positive, the similarity is unknown, or the shapes do not fit.
        TypeError: If ``texts`` are not whole numbers.

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
        self.temperature = check_temperature(temperature)
        self.similarity = check_similarity(similarity)
        self.symmetric = symmetric
        self.guide_margin = guide_margin

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
        """The loss of the first column against all others, whose first holds the positives."""
        candidates, rows = torch.cat(columns[1:]), len(columns[0])
        if rows <= _ROWS:
            return self._sum(columns[0], candidates, slice(0, rows), texts, guide) / rows
        parts = [slice(start, min(start + _ROWS, rows)) for start in range(0, rows, _ROWS)]
        again: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
        # Backward, the scores of a part are computed once more, and not kept until then.
        sums = [checkpoint(self._sum, columns[0][part], candidates, part, texts, guide, **again) for part in parts]
        return torch.stack(sums).sum() / rows

    def _sum(
        self, anchors: Tensor, candidates: Tensor, part: slice, texts: Tensor | None, guide: Tensor | None
    ) -> Tensor:
        """The sum of the losses of some rows."""
        scores: Tensor = SIMILARITIES[self.similarity](anchors, candidates)  # (rows of the part, candidates)
        scores = scores / self.temperature
        if texts is not None or guide is not None:
            scores = scores.masked_fill(self._mask(texts, guide, part), -torch.inf)
        own = torch.arange(part.start, part.stop, device=scores.device)
        return F.cross_entropy(scores, own, reduction="sum")

    @torch.no_grad()
    def _mask(self, texts: Tensor | None, guide: Tensor | None, part: slice) -> Tensor:
        """(rows of the part, candidates), boolean: which candidates are left out."""
        masks = [] if texts is None else [_same_text(texts, part)]
        if guide is not None:
            # Equal texts differ by rounding alone, which bfloat16 would make a hundredth.
            exact = guide.to(torch.promote_types(guide.dtype, torch.float32))
            masks.append(_more_alike(exact, self.guide_margin, part))
        mask = torch.stack(masks).any(0)
        mask.diagonal(part.start).fill_(False)
        return mask

    def check_data(self, data: Data) -> None:
        """Raise unless there is a candidate beside the positive."""
        if data.columns < 3:
            check_several(self, data)

    def _check_extras(self, texts: Tensor | None, guide: Tensor | None, shape: tuple[int, int]) -> None:
        if texts is not None and (texts.is_floating_point() or tuple(texts.shape) != shape):
            kind = TypeError if texts.is_floating_point() else ValueError
            raise kind(
                f"texts are {texts.dtype} of shape {tuple(texts.shape)};"
                f" pass whole numbers of shape {shape}, one for each text of each column"
            )
        if guide is not None and (guide.ndim != 3 or tuple(guide.shape[:2]) != shape):
            raise ValueError(
                f"guide has shape {tuple(guide.shape)}; pass the guide's vectors of each text of each column,"
                f" {(*shape, 'guide_dim')}"
            )

    def extra_repr(self) -> str:
        return (
            f"temperature={self.temperature}, similarity={self.similarity!r}, symmetric={self.symmetric},"
            f" guide_margin={self.guide_margin}"
        )
