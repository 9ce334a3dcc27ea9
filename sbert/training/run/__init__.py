"""One run of training: its set-up and its steps."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sbert.distributed.buckets import GradientBuckets, sort_unused_first
from sbert.distributed.ranks import Ranks
from sbert.evaluation.evaluator import Evaluate
from sbert.inputs.arguments import warn
from sbert.pipeline.encode import evaluating
from sbert.pipeline.run import prefetch
from sbert.training.backward import backward, get_random_state, set_random_state
from sbert.training.callbacks import Callback, Callbacks, Progress
from sbert.training.config import TrainingConfig
from sbert.training.optimizers import EmbeddingGradients
from sbert.training.rows.batches import Batches, PreparedBatch
from sbert.training.run.checkpoint import Output, last_good
from sbert.training.run.evaluation import Evaluation
from sbert.training.run.weights import Weights, shard


@dataclass(eq=False, repr=False)
class Run:
    """One call of ``fit``.

    Args:
        weights: The weights of the model, which is trained in place, and of the losses.
        batches: The batches of all epochs.
        config: The settings of the training.
        evaluator: Measures the model, or several evaluators by name; None for no evaluation.
        given_callbacks: What is called after steps, evaluations and checkpoints.
        ranks: The processes that train together.
        resume: Whether to continue from the newest checkpoint, if there is one.
        show_progress_bar: Whether to show a progress bar; None to decide by the terminal.

    Raises:
        ValueError: If there is a checkpoint and ``resume`` is false, or the checkpoint belongs to a different training.
    """

    weights: Weights
    batches: Batches
    config: TrainingConfig
    evaluator: Evaluate | Mapping[str, Evaluate] | None
    given_callbacks: list[Callback]
    ranks: Ranks
    resume: bool
    show_progress_bar: bool | None

    def __post_init__(self) -> None:
        config, ranks, weights = self.config, self.ranks, self.weights
        self.model: Any = weights.model
        epochs = (config.epochs or 1) / config.accumulation
        self.total: int = config.steps or max(1, round(len(self.batches.epoch(0)) * epochs))
        self.callbacks: Callbacks = Callbacks(self.given_callbacks, ranks)
        self.output: Output = Output(weights, self.batches, config, self.callbacks.names, ranks, self.resume)
        state, tensors = self.output.restore()
        self.step: int = int(state["step"])
        about = self.output.model, self.total, self.output.setup["settings"], self.output.folder
        progress = Progress(*about, self.step, stopped=state["stopped"])
        self.callbacks.begin(progress, tensors, state["callback"])
        if progress.stopped and self.step < self.total and ranks.first:
            what = f"{self.output.resumed}: a callback ended this run at step {self.step} of {self.total}"
            warn(f"{what}, so nothing is trained; load the final model and pass another output to train on")
        self.replicated: list[nn.Parameter] = self._distribute()
        self.optimizers: list[torch.optim.Optimizer] = weights.optimizers(config, tensors, state["optimizer"])
        # With gradient caching, the rows of all chunks would take more memory than the whole gradient.
        sparse = ranks.world == 1 and config.chunk_tokens is None
        self.embedding_gradients: EmbeddingGradients = EmbeddingGradients(self.model.modules() if sparse else ())
        self.evaluation: Evaluation = Evaluation(self.evaluator, config, ranks, state["best"])
        self.log = self.output.open_log(self.total, state, self.show_progress_bar if ranks.first else False)
        self.texts: int = 0
        self.truncated: int = 0
        self.options: dict[str, Any] = {  # Of ``backward``.
            "chunk_tokens": config.chunk_tokens,
            "cached": config.chunk_tokens is not None,
            "dtype": getattr(torch, config.dtype),
            "ranks": ranks,
            "replicated": not config.sharded,
        }

    def _distribute(self) -> list[nn.Parameter]:
        """Shard the weights over the ranks; or return the parameters in the order in which gradients are summed.

        A transformer chooses its backend for whole weights, so the model runs once before they are sharded.
        """
        if self.ranks.world > 1:
            with evaluating(self.model), torch.enable_grad():
                row = next(iter(self.batches.datasets.values())).rows.head.inputs(0)
                output: Tensor = self.model(self.model.tokens(row).batch(np.arange(1)).to(self.model.device))
            if not self.config.sharded:
                return sort_unused_first(self.model.parameters(), output, self.ranks)
        if self.config.sharded:
            shard(self.model, self.ranks)
        return []

    def train(self) -> list[dict[str, Any]]:
        """Take all steps, with evaluations and checkpoints in between, and return the history."""
        config = self.config
        evaluate_every = config.evaluate_every or self.batches.epoch_steps
        checkpoint_every = config.checkpoint_every or self.batches.epoch_steps
        self.model.train()
        first, last = self.step * config.accumulation, self.total * config.accumulation
        with closing(self.log), closing(prefetch(self.batches.prepare(first, last, self.ranks))) as batches:
            if config.evaluate_first and self.step == 0:
                self._evaluate()
            ended = self._has_ended()
            while not ended:
                self._take_step(batches)
                if self._has_ended() or self.step % evaluate_every == 0:
                    self._evaluate()
                ended = self._has_ended()  # What ``on_save`` stops ends after one more step.
                if ended:
                    self.log.flush()
                if ended or self.step % checkpoint_every == 0:
                    self._save_checkpoint()
            path = self.output.save_final(self.log.history)
            self.callbacks.notify("on_end", self.step, path=path)
        if self.truncated:
            limit = (
                f"{'max_lengths or ' if config.max_lengths else ''}max_seq_length={self.model.max_seq_length} tokens"
            )
            what = f"{self.truncated} of {self.texts} texts were truncated to {limit}"
            warn(f"{what}; raise max_seq_length, or split long texts")
        return self.log.history

    def _has_ended(self) -> bool:
        """Whether all steps are done, or a callback has ended the run."""
        return self.step == self.total or self.callbacks.have_stopped(self.model.device)

    def _take_step(self, batches: Iterator[PreparedBatch]) -> None:
        started, config = time.perf_counter(), self.config
        step_batches = list(islice(batches, config.accumulation))
        seed_step(config.seed, self.step, self.ranks.rank, self.model.device)
        buckets = GradientBuckets(self.replicated, self.ranks)
        with self.embedding_gradients.sparse():
            value, sentences = self._accumulate(step_batches, buckets)
        buckets.finish()
        if self.ranks.world > 1:
            heads = [parameter for parameter in self.weights.heads.parameters() if parameter.requires_grad]
            GradientBuckets(heads, self.ranks).finish(mean=True)
        norm = self._clip()
        if not math.isfinite(value + norm):
            raise FloatingPointError(self._describe_failure(step_batches, value, norm))
        factor = config.factor(self.step, self.total)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * factor
            optimizer.step()
        for parameter in self.weights.trained:  # An optimizer of the caller's may leave some out.
            parameter.grad = None
        self.step += 1
        seconds = time.perf_counter() - started
        figures = {"loss": value, "learning_rate": config.learning_rate * factor, "gradient_norm": norm}
        self.callbacks.notify("on_step", self.step, figures={**figures, "sentences_per_second": sentences / seconds})
        with self.output.explain_failure("history.jsonl"):
            self.log.add_step(self.step, figures, sentences, seconds, last=self._has_ended())

    def _accumulate(self, batches: list[PreparedBatch], buckets: GradientBuckets) -> tuple[float, int]:
        """Add up the gradients of the batches; return the mean loss and the number of sentences."""
        value, sentences = 0.0, 0
        rows = sum([len(batch.rows) for batch in batches])
        for batch in batches:
            inputs = self.batches.move(batch, self.ranks)
            weight = inputs.rows / rows  # By rows, as in one large batch: the last batch of an epoch may be smaller.
            sentences += inputs.rows * inputs.columns.shape[1]
            self.texts += len(inputs.tokens.truncated)
            self.truncated += int(inputs.tokens.truncated.sum())
            last_pass = buckets.overlap() if batch is batches[-1] else None
            loss = batch.dataset.rows.loss
            result = backward(self.model, loss, inputs, weight=weight, last_pass=last_pass, **self.options)
            value += float(result) * weight
        return value, sentences

    def _clip(self) -> float:
        """Scale the gradients down to the maximum norm; return the norm before that."""
        modules = (self.model, self.weights.heads)
        gradients = [[p.grad for p in module.parameters() if p.grad is not None] for module in modules]
        if self.model.device.type == "cpu" and not self.config.sharded:
            total = self.embedding_gradients.norm([p for module in modules for p in module.parameters()])
        else:
            norms = [nn.utils.get_total_norm(each) for each in gradients]
            total = math.hypot(*(float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm) for norm in norms))
        limit = self.config.max_gradient_norm
        if limit is not None and total > limit:
            for each in filter(None, gradients):
                torch._foreach_mul_(each, limit / total)
        return total

    def _describe_failure(self, batches: list[PreparedBatch], value: float, norm: float) -> str:
        what = f"the loss is {value}" if not math.isfinite(value) else f"the gradient norm is {norm}"
        rows = [f"{batch.dataset.rows.name}, rows {str(batch.rows[:20].tolist())[1:-1]}" for batch in batches]
        return (
            f"{what} at step {self.step + 1} ({'; '.join(rows)}), and the weights are those of the previous step;"
            f" {last_good(self.output.folder)}; check these rows, lower learning_rate, or compute in float32"
        )

    def _evaluate(self) -> None:
        """Run the evaluators, if there are any, and save the model if it is the best so far."""
        if not self.evaluation:
            return
        scores = self.evaluation.measure(self.output.update_model().to(self.model.device))

        def record() -> None:
            improved = self.evaluation.rank(scores)
            with self.output.explain_failure("history.jsonl"):
                self.log.add({"step": self.step, "evaluation": scores})
            if improved:
                self.output.save_model("best", self.log.history)
            self.callbacks.call("on_evaluate", self.step, figures=scores, improved=improved)

        self.ranks.run_on_main(record)

    def _save_checkpoint(self) -> None:
        if self.output.folder is not None:
            state = {"step": self.step, "waiting": self.log.waiting, "best": self.evaluation.best}
            path = self.output.save_checkpoint(state, self.optimizers, self.callbacks, self.log.history)
            self.callbacks.notify("on_save", self.step, path=path)


@contextmanager
def preserve_random_state(device: torch.device) -> Iterator[None]:
    """Restore the generators of Python, NumPy and torch at the end, so that the caller's numbers do not change."""
    python, numpy, states = random.getstate(), np.random.get_state(), get_random_state(device)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        set_random_state(states, device)


def seed_step(seed: int, step: int, rank: int, device: torch.device) -> None:
    """Seed the generators for one step, so that a checkpoint need not store their states.

    Those of other devices are left alone: another thread may train on them.
    """
    words = np.random.SeedSequence([seed, step, rank]).generate_state(2)
    number = int(words[0]) << 32 | int(words[1])
    torch.default_generator.manual_seed(number)
    if device.type != "cpu":
        module: Any = torch.get_device_module(device)
        generators = getattr(module, "default_generators", None)
        (generators[device.index] if generators else module).manual_seed(number)
    np.random.seed(words[0])
    random.seed(int(words[1]))
