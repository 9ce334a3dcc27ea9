"""Hard negatives that are mined anew while a model trains, with its current weights, in a thread of their own."""

from __future__ import annotations

import copy
import hashlib
import warnings
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sbert.distributed.ranks import Ranks
from sbert.inputs.arguments import check_count
from sbert.inputs.texts import texts_of
from sbert.search import mine_hard_negatives
from sbert.training.callbacks import Callback, CallbackState, Progress
from sbert.training.training_data import TrainingData

Negatives = Mapping[str, list[str]]  # By anchor.


class RefreshNegatives(Callback):
    """Replaces the negatives of the training rows by harder ones, which the model in training finds itself.

    After every ``every`` steps, a thread encodes all anchors and texts with a copy of the weights at that step, and
    mines negatives as ``sbert.search.mine_hard_negatives`` does, while training goes on. They take effect ``lag`` steps
    later, however long the mining takes: training waits for them if they are not ready, so that equal runs have equal
    results. A checkpoint holds them or, while they are being mined, the copied weights: a resumed run ends with the
    same weights, bit by bit on a CPU, as an uninterrupted one.

    Until the first refresh, and where a mining leaves an anchor without negatives, rows have the negatives of the data.
    Of the mined ones, as many as the data has columns of them, or ``TrainingConfig.negatives``, are drawn for each
    batch.

    Args:
        corpus: Texts that may be negatives. The positives of other anchors always may.
        every: Steps between two minings.
        lag: Steps after which the mined negatives take effect. Default: ``every``.
        conditions: Arguments of ``mine_hard_negatives``: ``negatives`` (their number for each anchor), ``range_min``,
            ``range_max``, ``max_score``, ``min_score``, ``margin``, ``relative_margin``, ``similarity``, ``seed``.

    Raises:
        TypeError: If the corpus is not a list of texts; or, when training begins, for an unknown condition.
        ValueError: If ``lag`` is longer than ``every``; if there is not one data set with negatives that have no
            labels of their own; if several processes train; or if a run is resumed with another corpus or settings.

    References:
        Xiong et al., 2021, section 4 (ANCE). https://arxiv.org/abs/2007.00808

    Example:
        >>> from sbert.losses import MultipleNegativesRankingLoss
        >>> from sbert.training import RefreshNegatives
        >>> rows = [("Who naps?", "A cat naps.", "It rains."), ("What rises?", "Taxes rise.", "It snows.")]
        >>> refresh = RefreshNegatives(["A dog naps.", "The sun rises."], every=2, lag=1, negatives=2)
        >>> config = TrainingConfig(steps=4)
        >>> trainer = Trainer(SentenceEncoder(), rows, MultipleNegativesRankingLoss(), config, callbacks=refresh)
        >>> trainer.fit(show_progress_bar=False)[-1]["step"]
        4
    """

    def __init__(self, corpus: Iterable[str], every: int = 1000, lag: int | None = None, **conditions: Any) -> None:
        self.every: int = check_count("every", every)
        self.lag: int = check_count("lag", every if lag is None else lag)
        if self.lag > every:
            raise ValueError(f"lag={lag} is longer than every={every}; pass at most as many steps")
        self._corpus, self._conditions = list(texts_of(corpus, "corpus")), conditions
        self.rows: TrainingData  # Of ``attach``.
        self._results: dict[int, Future[Negatives]] = {}  # By the step of the weights.
        self._snapshots: dict[int, Any] = {}

    def attach(self, rows: Iterable[TrainingData]) -> None:
        """Choose the data set whose negatives are mined, as a ``Trainer`` does with all of its data sets."""
        texts = [each for each in rows if not each.is_stream and each.head.form == "texts" and each.head.labels is None]
        suited = [each for each in texts if len(each.names) > 2]
        if len(suited) != 1:
            given = f"{len(suited)} data sets have an anchor, a positive and negatives, and no labels"
            raise ValueError(f"RefreshNegatives: {given}; pass one, such as rows of mine_hard_negatives(), no stream")
        self.rows = suited[0]

    def wait(self, step: int) -> Negatives | None:
        """The negatives of a step, counted from 0, by anchor, when they are mined; None for those of the data."""
        source = (step - self.lag) // self.every * self.every
        return self._results[source].result() if source > 0 else None

    def on_begin(self, progress: Progress) -> None:
        """Check the conditions, and forget an earlier run."""
        if progress.settings["sharded"] or Ranks.join().world > 1:
            raise ValueError("RefreshNegatives trains in one process, and without sharded=True; leave it out here")
        self._model = progress.model
        self._pairs = [row[:2] for row in self.rows.texts_of(np.arange(len(self.rows)))]
        self._anchors = list(dict.fromkeys(anchor for anchor, _ in self._pairs))
        self._texts = list(dict.fromkeys([*self._corpus, *(positive for _, positive in self._pairs)]))
        settings = repr((self.every, self.lag, sorted(self._conditions.items())))
        digest = hashlib.blake2b("\0".join([settings, *self._texts]).encode("utf-8", "surrogatepass"), digest_size=16)
        self._digest = digest.hexdigest()
        self._results, self._snapshots = {}, {}
        self._pool = ThreadPoolExecutor(1, "sbert-negatives")
        with warnings.catch_warnings():  # What the backends choose once per process, they choose in this thread.
            warnings.simplefilter("ignore")
            self._mine(self._model, self._pairs[:1], self._corpus[:1])

    def on_step(self, progress: Progress) -> None:
        """Begin to mine with a copy of the weights, if it is time and the run is long enough."""
        if progress.step % self.every == 0 and progress.step + self.lag < progress.total:
            self._results.pop(progress.step - 2 * self.every, None)
            self._start(progress.step, {})

    def _start(self, step: int, weights: CallbackState) -> None:
        frozen = {id(weight): weight for weight in self._model.parameters() if not weight.requires_grad}
        snapshot = copy.deepcopy(self._model, frozen).eval()  # What is frozen, such as the base of adapters, is shared.
        snapshot.load_state_dict(weights, strict=False)
        own = self._snapshots  # A later run has others.
        own[step] = snapshot
        self._results[step] = self._pool.submit(self._mine, snapshot, self._pairs, self._corpus)
        self._results[step].add_done_callback(lambda _: own.pop(step))

    def _mine(self, model: Any, pairs: list[tuple[str, ...]], corpus: list[str]) -> Negatives:
        options = {"as_lists": True, "show_progress_bar": False, **self._conditions}
        lists = mine_hard_negatives(model, pairs, corpus, **options)
        return {row["query"]: row["documents"][sum(row["labels"]) :] for row in lists}  # Positives are first.

    def on_end(self, progress: Progress) -> None:  # noqa: ARG002
        """End the thread."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def state(self) -> CallbackState:
        """The mined negatives, as indices of texts; while they are being mined, the copied weights."""
        state: CallbackState = {"digest": self._digest}
        index = {text: number for number, text in enumerate(self._texts)}
        for step, result in self._results.items():
            snapshot: Any = self._snapshots.get(step)  # Before the question whether it is still needed.
            if snapshot is None or result.done():
                mined = result.result()
                rows = [torch.tensor([index[text] for text in mined.get(anchor, [])]) for anchor in self._anchors]
                state[f"mined.{step}"] = torch.nn.utils.rnn.pad_sequence(rows, True, -1).long()  # (anchors, most)
            else:
                weights = {name: weight for name, weight in snapshot.named_parameters() if weight.requires_grad}
                weights |= dict(snapshot.named_buffers())
                state |= {f"weights.{step}.{name}": weight for name, weight in weights.items()}
        return state

    def restore(self, state: CallbackState) -> None:
        """Set the negatives, and mine again with the weights that were copied."""
        if state["digest"] != self._digest:
            raise ValueError("RefreshNegatives had another corpus or settings in the checkpoint; pass the same")
        for step in sorted({int(key.split(".")[1]) for key in state if "." in key}):
            if (mined := state.get(f"mined.{step}")) is not None:
                self._results[step] = self._pool.submit(self._unpack, mined)
                continue
            prefix = f"weights.{step}."
            self._start(step, {key.removeprefix(prefix): state[key] for key in state if key.startswith(prefix)})

    def _unpack(self, mined: Tensor) -> Negatives:
        rows = zip(self._anchors, mined.tolist(), strict=True)
        return {anchor: [self._texts[each] for each in row if each >= 0] for anchor, row in rows}
