"""One run of training: its set-up, its steps, and when it evaluates and saves."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sbert.backends.huggingface import find_adapters
from sbert.distributed.buckets import GradientBuckets, sort_unused_first
from sbert.distributed.ranks import Ranks
from sbert.evaluation.evaluator import Evaluate, Evaluator
from sbert.inputs.arguments import check_number, warn
from sbert.pipeline.batching import prefetch
from sbert.pipeline.run import evaluating
from sbert.storage.files import is_out_of_memory, one_line
from sbert.storage.processes import keeping_freed_memory
from sbert.training import checkpoint
from sbert.training.backward import backward
from sbert.training.batches import Batches, PreparedBatch
from sbert.training.callbacks import Callback, Progress, read_states, restore_states
from sbert.training.config import SCHEDULES, TrainingConfig
from sbert.training.report import Log, training_card
from sbert.training.weights import Weights, create_optimizer, read_optimizer, restore_optimizer, training_dtype

# The number of steps after which a warning names data sets that had no gradient in any of them.
_IDLE_STEPS = 10


@dataclass(eq=False, repr=False)
class Run:
    """One call of ``fit``.

    Args:
        weights: The weights of the model, which is trained in place, and of the losses.
        batches: The batches of all epochs.
        config: The settings of the training.
        evaluator: Measures the model, or several evaluators by name; None for no evaluation.
        callbacks: What is called after steps, evaluations and checkpoints.
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
    callbacks: list[Callback]
    ranks: Ranks
    resume: bool
    show_progress_bar: bool | None

    def __post_init__(self) -> None:
        config, ranks, self.model, self.device = self.config, self.ranks, self.weights.model, self.weights.device
        self.base: str = getattr(self.model, "name_or_path", "")
        self.texts, self.truncated = 0, 0
        self.teaches: dict[str, bool] = {}  # By data set, whether a step so far had a gradient.
        self.total, self.epoch_steps = self.batches.steps(config)
        self.output: Path | None = None if config.output is None else Path(config.output)
        state, tensors = self._restore()
        self.step: int = state["step"]
        self.best: list[Any] | None = state["best"]
        self.best_weights: dict[str, Tensor] = {}
        about = self.model, self.total, checkpoint.describe_settings(config) if self.callbacks else {}
        self.progress: Progress = Progress(*about, self.output, stopped=state["stopped"])
        self._notify("on_begin")
        self.replicated: list[nn.Parameter] = self._distribute() if ranks.world > 1 else []
        self.dtype: torch.dtype = training_dtype(self.model, self.device, config)
        self.optimizer: torch.optim.Optimizer = create_optimizer(config, self.weights)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.dtype == torch.float16)
        if self.step:
            restore_states(self.callbacks, {**tensors, **state})
            restore_optimizer(self.optimizer, self.weights, {**tensors, **state})
            self.scaler.load_state_dict(state["scaler"])
            best = [name for name in tensors if name.startswith("best.")]
            self.best_weights = {name.removeprefix("best."): tensors[name] for name in best}
        output, show = (self.output, self.show_progress_bar) if ranks.rank == 0 else (None, False)
        self.log: Log = Log(output, self.total, self.step, state["waiting"], show, config)
        if self.progress.stopped and self.step < self.total and ranks.first:
            what = f"{checkpoint.name_after(self.step)}: a callback ended this run at step {self.step} of {self.total}"
            warn(f"{what}, so nothing is trained; load the final model and pass another output to train on")

    def _restore(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Set the weights to those of the newest checkpoint, if there is one; return its state and tensors."""
        state: dict[str, Any] = {"step": 0, "waiting": [], "best": None, "stopped": False}
        if self.output is None:
            if self.resume:
                raise ValueError("resume=True, but TrainingConfig has no output; pass the folder of the checkpoints")
            return state, {}
        path = checkpoint.newest(self.output / "checkpoints")
        if path is not None and not self.resume:
            raise ValueError(f"{path} exists already; pass resume=True to continue, or another output")
        self.setup = checkpoint.describe_setup(self.weights, self.batches, self.config, self.callbacks)
        about = self.output / "checkpoints", self.setup, self.weights
        saved, tensors, damaged = self.ranks.together(partial(checkpoint.restore, *about))
        self.ranks.run_on_main(partial(checkpoint.set_aside, damaged))
        return {**state, **saved}, tensors

    def _distribute(self) -> list[nn.Parameter]:
        """Make all ranks equal, and return the parameters in the order in which their gradients are summed."""
        model, ranks = self.model, self.ranks
        if ranks.all_max(self.step, self.device) != -ranks.all_max(-self.step, self.device):
            raise ValueError("the processes found different checkpoints; give them one output folder on one disk")
        ranks.broadcast([*model.parameters(), *model.buffers(), *self.weights.heads.parameters()])
        with evaluating(model), torch.enable_grad():
            (row,) = next(iter(self.batches.datasets.values())).rows.head.inputs([0])
            encoders = [model] if model.is_cross_encoder else model.encoders
            batches = [encoder.tokens(row).batch(np.arange(1)).to(self.device) for encoder in encoders]
            output = torch.cat([encoder(batch) for encoder, batch in zip(encoders, batches, strict=True)])
        return sort_unused_first(model.parameters(), output, ranks)

    def train(self) -> list[dict[str, Any]]:
        """Take all steps, with evaluations and checkpoints in between, and return the history."""
        config, begin = self.config, time.perf_counter()
        first, last = self.step * config.accumulation, self.total * config.accumulation
        coming = prefetch(self.batches.prepare(first, last, self.ranks))
        with keeping_freed_memory(), closing(self.log), closing(coming) as batches:
            evaluate_every = config.evaluate_every or self.epoch_steps
            save_every = config.checkpoint_every or self.epoch_steps
            if self.evaluator is not None and config.evaluate_first and self.step == 0:
                self._evaluate(self.evaluator)
            ended = self._has_ended()
            while not ended:
                self._take_step(batches)
                ended = self._has_ended()
                if ended or self.step % config.log_every == 0:
                    self.log.add_steps()
                if self.evaluator is not None and (ended or self.step % evaluate_every == 0):
                    self._evaluate(self.evaluator)
                if not ended and self._has_ended():  # What ``on_save`` stops ends after one more step.
                    ended = True
                    self.log.add_steps()
                if self.output is not None and (ended or self.step % save_every == 0):
                    self._save_checkpoint(self.output)
            self.ranks.run_on_main(partial(self._save_model, "final", self._save_whole))
            if config.load_best:
                self.ranks.run_on_main(self._load_best)
                self.ranks.broadcast([*self.model.parameters(), *self.model.buffers()])
            self._notify("on_end", path=None if self.output is None else self.output / "final")
        self.log.summarize(time.perf_counter() - begin)
        if self.truncated:
            limit = f"{'max_lengths or ' * bool(config.max_lengths)}max_seq_length={self.model.max_seq_length} tokens"
            what = f"{self.truncated} of {self.texts} texts were truncated to {limit}"
            warn(f"{what}; raise max_seq_length, or split long texts")
        return self.log.history

    def _has_ended(self) -> bool:
        """Whether all steps are done, or a callback has ended the run."""
        stopped = self.progress.stopped
        if self.callbacks:
            stopped = bool(self.ranks.all_max(int(stopped), self.device))
        return stopped or self.step == self.total

    def _notify(self, event: str, **news: Any) -> None:
        """Call one method of each callback, such as ``"on_step"``, on the first process, while the others wait."""
        if self.callbacks:
            self.ranks.run_on_main(partial(self._call, event, news))

    def _call(self, event: str, news: Mapping[str, Any]) -> None:
        for name, value in {"step": self.step, "metrics": {}, "path": None, "improved": False, **news}.items():
            setattr(self.progress, name, value)
        for callback in self.callbacks:
            getattr(callback, event)(self.progress)

    # --------------------------------------------------------------------------------------------------- one step

    def _take_step(self, batches: Iterator[PreparedBatch]) -> None:
        started, config, ranks = time.perf_counter(), self.config, self.ranks
        step_batches = list(islice(batches, config.accumulation))
        seed_step(config.seed, self.step, ranks.rank, self.device)
        for batch in step_batches:
            for part in getattr(batch.dataset.rows.loss, "modules", list)():
                if hasattr(part, "start_step"):  # Its weights follow a schedule.
                    part.start_step(self.step, self.total)
        try:
            losses, sentences = self._add_gradients(step_batches)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            remedy = f"chunk_tokens={(config.chunk_tokens or 8192) // 2}: the same gradients in chunks, in less memory"
            what = f"step {self.step + 1} does not fit into the memory of {self.device} ({one_line(error)})"
            raise torch.OutOfMemoryError(f"{what}; pass {remedy}") from error
        self.scaler.unscale_(self.optimizer)
        norm = self._clip()
        loss = losses["loss"]
        if not math.isfinite(loss) or not (math.isfinite(norm) or self.scaler.get_scale() > 1):
            raise FloatingPointError(self._describe_failure(step_batches, loss, norm))
        for batch in step_batches:
            name = batch.dataset.rows.name
            self.teaches[name] = norm > 0 or self.teaches.get(name, False)
        factor = rate_factor(config, self.step, self.total)
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * factor
        self._notify("on_gradients", metrics={**losses, "gradient_norm": norm})
        self.scaler.step(self.optimizer)  # Which leaves a step out whose gradients left the range of float16.
        self.scaler.update()
        self.optimizer.zero_grad()  # Without a walk over all modules, which takes a small model long.
        self.step += 1
        if self.step == min(_IDLE_STEPS, self.total) and ranks.first:
            for name in [name for name, teaches in self.teaches.items() if not teaches]:
                why = "the gradient was 0 in each of its steps so far, which teaches nothing"
                warn(f"{name}: {why}; pass rows with more differences, or check the columns and the loss's margin")
        seconds = time.perf_counter() - started
        metrics = {**losses, "learning_rate": config.learning_rate * factor, "gradient_norm": norm}
        self._notify("on_step", metrics={**metrics, "sentences_per_second": sentences / seconds})
        self.log.count_step(self.step, metrics, sentences, seconds)

    def _add_gradients(self, batches: list[PreparedBatch]) -> tuple[dict[str, float], int]:
        """Add up the gradients of the batches on all ranks; return the mean losses and the number of sentences.

        The losses are that of all batches, ``loss``; those of each of several data sets, and of each part of a loss.
        """
        sentences, config, ranks = 0, self.config, self.ranks
        terms: dict[str, list[tuple[float, int]]] = {}  # Values and their numbers of rows.
        buckets = GradientBuckets(self.replicated, ranks) if ranks.world > 1 else None
        options: dict[str, Any] = {"chunk_tokens": config.chunk_tokens, "cached": config.chunk_tokens is not None}
        options |= {"dtype": self.dtype, "ranks": ranks, "scaler": self.scaler}
        rows = sum(len(batch.rows) for batch in batches)
        for batch in batches:
            inputs = self.batches.move(batch, self.device, ranks)
            weight = inputs.rows / rows  # By rows, as in one large batch: the last batch of an epoch may be smaller.
            sentences += inputs.rows * inputs.columns.shape[1]
            self.texts += len(inputs.tokens.truncated)
            self.truncated += int(inputs.tokens.truncated.sum())
            last_pass = buckets.overlap() if buckets is not None and batch is batches[-1] else None
            values: dict[str, float] = {}
            options |= {"weight": weight, "last_pass": last_pass, "parts": values}
            value = float(backward(self.model, batch.dataset.rows.loss, inputs, **options))
            several = {batch.dataset.rows.name: value} if len(self.batches.datasets) > 1 else {}
            if both := values.keys() & self.batches.datasets.keys() if several else ():
                raise ValueError(f"{min(both)!r} is the name of a data set and of a part of a loss; rename one of them")
            for name, part in {"": value, **values, **several}.items():
                terms.setdefault(f"loss_{name}" if name else "loss", []).append((part, inputs.rows))
        if buckets is not None:
            buckets.finish()
            heads = [parameter for parameter in self.weights.heads.parameters() if parameter.requires_grad]
            GradientBuckets(heads, ranks).finish(mean=True)
        return {name: sum(v * n for v, n in both) / sum(n for _, n in both) for name, both in terms.items()}, sentences

    def _clip(self) -> float:
        """Scale the gradients down to the maximum norm; return the norm before that."""
        gradients: list[Tensor] = []
        for group in self.optimizer.param_groups:
            gradients += [parameter.grad for parameter in group["params"] if parameter.grad is not None]
        norm = float(nn.utils.get_total_norm(gradients))
        limit = self.config.max_gradient_norm
        if limit is not None and limit < norm < math.inf:
            torch._foreach_mul_(gradients, limit / norm)
        return norm

    def _describe_failure(self, batches: list[PreparedBatch], value: float, norm: float) -> str:
        what = f"the loss is {value}" if not math.isfinite(value) else f"the gradient norm is {norm}"
        rows = [f"{batch.dataset.rows.name}, rows {str(batch.rows[:20].tolist())[1:-1]}" for batch in batches]
        return (
            f"{what} at step {self.step + 1} ({'; '.join(rows)}), and the weights are those of the previous step;"
            f" {checkpoint.last_good(self.output)}; check these rows, lower learning_rate, or compute in float32"
        )

    # --------------------------------------------------------------------------------------- evaluation and saving

    def _evaluate(self, evaluator: Evaluate | Mapping[str, Evaluate]) -> None:
        """Run one evaluator or several, and save the model if it is the best so far."""
        scores = measure(evaluator, self.model, self.ranks)

        def record() -> None:
            if unusable := [name for name, score in scores.items() if not math.isfinite(score)]:
                listed = ", ".join(f"{name}={scores[name]}" for name in unusable)
                warn(f"the evaluator returned {listed}; such a score never decides which model is the best")
            best = find_best(scores, self.best, self.config)
            self.log.add({"step": self.step, "evaluation": scores}, is_best=best is not None)
            if best is not None:
                self.best = best
                self._save_model("best", self._save_whole)
                # With adapters, which the folder of the best model may have merged; or without an output folder.
                if find_adapters(self.model) or (self.config.load_best and self.output is None):
                    changing = self.weights.select_changing().items()
                    self.best_weights = {name: value.clone() for name, value in changing if name.startswith("model.")}
            self._call("on_evaluate", {"metrics": scores, "improved": best is not None})

        self.ranks.run_on_main(record)

    def _load_best(self) -> None:
        """Give the model the weights of its best evaluation, if there was one: from memory, or from its folder."""
        if self.best is not None:
            saved = self.best_weights
            if not saved and self.output is not None:
                folder = type(self.model)(self.output / "best", device="cpu")
                saved = {f"model.{name}": value for name, value in folder.state_dict().items()}
            self.weights.both.load_state_dict(saved, strict=False)

    def _save_whole(self, path: Path) -> None:
        self.model.save(path, **({} if self.config.merge_adapters else {"merge_adapters": False}))

    def _save_model(self, name: str, write: Callable[[Path], object]) -> None:
        """Give the model its card, and write it to the output folder, if there is one."""
        about = self.base, self.batches.datasets, self.config, self.log.history, self.device, self.ranks.world
        self.model.trained = training_card(*about)
        if self.output is not None:
            with checkpoint.explain_failure(self.output, name):
                write(self.output / name)

    def _save_checkpoint(self, output: Path) -> None:
        """Write a checkpoint."""
        name = checkpoint.name_after(self.step)

        def save() -> None:
            tensors, values = read_optimizer(self.optimizer, self.weights)
            more, of_callbacks = read_states(self.callbacks)
            tensors |= {**self.weights.select_changing(), **more}
            tensors |= {f"best.{name}": value for name, value in self.best_weights.items()}
            state = {"step": self.step, "waiting": self.log.waiting, "best": self.best}
            state |= {"scaler": self.scaler.state_dict(), "stopped": self.progress.stopped}
            state |= {**self.setup, **values, **of_callbacks}
            about = self.model, tensors, state, self.config.keep
            self._save_model(name, lambda path: checkpoint.write_checkpoint(path, *about))

        self.ranks.run_on_main(save)
        self._notify("on_save", path=output / name)


def measure(evaluators: Evaluate | Mapping[str, Evaluate], model: Any, ranks: Ranks) -> dict[str, float]:
    """The scores by name, on all ranks together; those of one of several evaluators are called ``name_score``."""
    scores: dict[str, float] = {}
    for name, evaluator in (evaluators if isinstance(evaluators, Mapping) else {"": evaluators}).items():
        result = ranks.together(partial(_call_evaluator, evaluator, model, ranks))
        named = dict(result) if isinstance(result, Mapping) else {"score": float(result)}
        new = {f"{name}_{metric}" if name else metric: float(score) for metric, score in named.items()}
        scores |= new
    return scores


def _call_evaluator(evaluator: Any, model: Any, ranks: Ranks) -> float | Mapping[str, float]:
    with evaluating(model):
        if isinstance(evaluator, Evaluator):
            return evaluator(model, ranks=ranks)
        result: float | Mapping[str, float] = evaluator(model) if ranks.first else {}  # It knows nothing of ranks.
        return result


def find_best(scores: Mapping[str, float], best: list[Any] | None, config: TrainingConfig) -> list[Any] | None:
    """The name and the value of the score that decides, if it is better than the best one so far; else None.

    Raises:
        ValueError: If the score that decides is not among them.
    """
    metric = config.metric or next(iter(scores), "")
    if metric not in scores:
        raise ValueError(f"metric={metric!r} is not among the evaluator's {', '.join(scores) or 'scores: none'}")
    is_lower_better = metric.endswith("loss") if config.minimize is None else config.minimize
    sign = -1 if is_lower_better else 1
    before = sign * best[1] if best is not None and best[0] == metric else -math.inf
    is_better = math.isfinite(scores[metric]) and sign * scores[metric] > before
    return [metric, scores[metric]] if is_better else None


def rate_factor(config: TrainingConfig, step: int, total: int) -> float:
    """The factor of all learning rates at a step, counted from 0, in a run of ``total`` steps.

    Example:
        >>> from sbert import TrainingConfig
        >>> from sbert.training.training_run import rate_factor
        >>> config = TrainingConfig(warmup=0.4)
        >>> [round(rate_factor(config, step, 5), 3) for step in range(5)]
        [0.5, 1.0, 1.0, 0.667, 0.333]
    """
    warm = config.warmup if isinstance(config.warmup, int) else math.ceil(config.warmup * total)
    if step < warm:
        return (step + 1) / warm
    schedule = SCHEDULES[config.schedule] if isinstance(config.schedule, str) else config.schedule
    return check_number("what schedule returned", schedule((step - warm) / max(1, total - warm)))


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
