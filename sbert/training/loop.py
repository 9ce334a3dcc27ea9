"""One run of training: steps, evaluations and checkpoints."""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sbert.distributed.buckets import GradientBuckets, used_last
from sbert.distributed.ranks import Ranks
from sbert.evaluation.evaluator import Evaluate, Evaluator
from sbert.inputs.arguments import warn
from sbert.modules import Transformer
from sbert.pipeline.eval_mode import evaluating
from sbert.pipeline.run import prefetch
from sbert.training import checkpoint
from sbert.training.backward import backward
from sbert.training.batches import Batches, PreparedBatch
from sbert.training.callbacks import AveragedWeights, Callback, Callbacks, Progress
from sbert.training.card import training_card
from sbert.training.config import TrainingConfig
from sbert.training.layers import prepared_layers
from sbert.training.log import Log
from sbert.training.random_state import seed_step
from sbert.training.sampling import name_of
from sbert.training.sharding import shard, whole
from sbert.training.sparse_embeddings import EmbeddingGradients
from sbert.training.weights import Weights

# Settings that may change when training resumes, since they do not change the weights.
_FREE = {
    *("output", "keep", "log_every", "checkpoint_every", "evaluate_every", "evaluate_first", "metric", "minimize"),
    *("timeout", "freeze"),  # What is frozen is compared by its weights.
}


@dataclass(eq=False, repr=False)
class Run:
    """One call of ``fit``.

    Args:
        model: The model to train, in place.
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

    model: Any
    batches: Batches
    config: TrainingConfig
    evaluator: Evaluate | Mapping[str, Evaluate] | None
    callbacks: list[Callback]
    ranks: Ranks
    resume: bool
    show_progress_bar: bool | None

    def __post_init__(self) -> None:
        self.undo: ExitStack = ExitStack()
        try:
            self._prepare()
        except BaseException:
            self.undo.close()
            raise

    def _prepare(self) -> None:
        model, batches, config, ranks = self.model, self.batches, self.config, self.ranks
        self.base: str = getattr(model, "name_or_path", "")
        self.folder: Path | None = None if config.output is None else Path(config.output)
        self.saved: Path | None = self._find_checkpoint()
        epochs = (config.epochs or 1) / config.accumulation
        self.total: int = config.steps or max(1, round(len(batches.epoch(0)) * epochs))
        for module in list(model.modules()):
            if isinstance(module, Transformer):
                module.materialize()  # First of all: the layers below must be those that will be trained.
        self.modes: list[tuple[nn.Module, bool]] = [(module, module.training) for module in model.modules()]
        self.weights: Weights = Weights(model, {name: dataset.rows.loss for name, dataset in batches.datasets.items()})
        self.undo = prepared_layers(model, config, self.weights.named())
        self.setup: dict[str, Any] = self._setup()
        # The files of a model hold whole weights.
        self.to_save: Any = copy.deepcopy(model).to("cpu") if config.sharded else model
        if config.sharded and any(isinstance(each, AveragedWeights) for each in self.callbacks):
            raise ValueError("AveragedWeights needs whole weights; leave it or sharded=True out")
        progress = Progress(self.to_save, self.total, self.setup["settings"], self.folder)
        self.told: Callbacks = Callbacks(self.callbacks, progress)
        if ranks.first:
            self.told.call("on_begin")
        self.setup["callbacks"] = self.told.names
        state, tensors = self._restore()
        # Before its weights are sharded, a transformer must choose its backend.
        output = self._first_output() if ranks.world > 1 else None
        if config.sharded:
            shard(model, ranks)
        self.replicated: list[nn.Parameter] = (
            [] if output is None or config.sharded else used_last(model.parameters(), output, ranks)
        )
        del output  # And its graph.
        self.optimizers: list[torch.optim.Optimizer] = self.weights.optimizers(config, tensors, state["optimizer"])
        for group in self._groups():
            group.setdefault("peak", group["lr"])
        # With gradient caching, the rows of all chunks would take more memory than the whole gradient.
        sparse = ranks.world == 1 and config.chunk_tokens is None
        self.embedding_gradients: EmbeddingGradients = EmbeddingGradients(model.modules() if sparse else ())
        self.step: int = int(state["step"])
        self.best: list[Any] | None = state["best"]  # The metric and its value.
        self.told.progress.step, self.told.progress.stopped = self.step, state["stopped"]
        if state["stopped"] and self.step < self.total and ranks.first:
            ended = f"{self.saved}: a callback ended this run at step {self.step} of {self.total}"
            warn(f"{ended}, so nothing is trained; to train on, load the final model and pass another output")
        self.told.restore(tensors, state["callback"])
        self.texts: int = 0
        self.truncated: int = 0
        path = self.folder / "history.jsonl" if self.folder is not None and ranks.first else None
        shown = self.show_progress_bar if ranks.first else False
        words = {name: dataset.rows.words for name, dataset in batches.datasets.items() if dataset.rows.words}
        if path is not None and words:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_name("labels.json").write_text(json.dumps(words, indent=2, ensure_ascii=False), "utf-8")
        self.log: Log = Log(path, self.total, self.step, config.log_every, state["waiting"], shown, config.metric)

    # ----------------------------------------------------------------------------------------------------- set-up

    def _find_checkpoint(self) -> Path | None:
        newest = None if self.folder is None else checkpoint.newest(self.folder / "checkpoints")
        if self.resume and self.folder is None:
            raise ValueError("resume=True, but TrainingConfig has no output; pass the folder of the checkpoints")
        if newest is not None and not self.resume:
            raise ValueError(f"{newest} exists already; pass resume=True to continue, or another output")
        return newest

    def _setup(self) -> dict[str, Any]:
        """What must be the same when training resumes, as JSON stores it."""
        settings = {name: value for name, value in asdict(self.config).items() if name not in _FREE}
        for name in ("optimizer", "schedule"):
            settings[name] = name_of(settings[name])
        samplers = self.config.sampler
        if isinstance(samplers, Mapping):
            settings["sampler"] = {name: name_of(each) for name, each in samplers.items()}
        else:
            settings["sampler"] = name_of(samplers)
        del settings["prompts"]  # Their texts are compared below.
        losses, data, prompts = {}, {}, {}
        for name, dataset in self.batches.datasets.items():
            rows = dataset.rows
            details = repr(rows.loss) if isinstance(rows.loss, nn.Module) else ""
            losses[name] = f"{rows.signature.name}({rows.signature}){details}"
            data[name] = [len(rows), rows.fingerprint]
            prompts[name] = dataset.prompts
        model = {"model": repr(self.model), "frozen weights": self.weights.frozen_digest()}
        setup = {"settings": settings, **model, "losses": losses, "data": data, "prompts": prompts}
        stored: dict[str, Any] = json.loads(json.dumps(setup))
        return stored

    def _restore(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Restore the weights from the checkpoint, if there is one; return its state and tensors."""
        tensors: dict[str, Tensor] = {}
        state: dict[str, Any] = {"step": 0, "waiting": [], "best": None, "stopped": False}
        state |= {"optimizer": {}, "callback": {}}
        if self.saved is not None:
            tensors, state = checkpoint.read(self.saved)
            for what, expected in self.setup.items():
                checkpoint.check_same(self.saved, what, state.get(what), expected)
            self.weights.restore(self.saved, tensors)
        step, device = int(state["step"]), self.model.device
        if self.ranks.all_max(step, device) != -self.ranks.all_max(-step, device):
            raise ValueError("the processes found different checkpoints; give them the same output folder on one disk")
        self.ranks.broadcast([*self.model.parameters(), *self.model.buffers(), *self.weights.heads.parameters()])
        return state, tensors

    def _first_output(self) -> Tensor:
        """The output of the model for the first text of the data, in eval mode. Shape: (1, dim)."""
        with evaluating(self.model), torch.enable_grad():
            row = next(iter(self.batches.datasets.values())).rows.inputs(0)
            output: Tensor = self.model(self.model.tokens(row).batch(np.arange(1)).to(self.model.device))
        return output

    # ----------------------------------------------------------------------------------------------------- steps

    def train(self) -> list[dict[str, Any]]:
        """Take all steps, with evaluations and checkpoints in between, and return the history."""
        config = self.config
        evaluate_every = config.evaluate_every or self.batches.epoch_steps
        checkpoint_every = config.checkpoint_every or self.batches.epoch_steps
        self.model.train()
        first = self.step * config.accumulation
        batches = self.batches.prepared(first, self.total * config.accumulation, self.ranks)
        with closing(prefetch(batches)) as coming:
            if config.evaluate_first and self.step == 0:
                self._evaluate()
            ended = self._ended()
            while not ended:
                started = time.perf_counter()
                with self.ranks.at(self.step + 1):
                    self._step(list(islice(coming, config.accumulation)), started)
                if self._ended() or self.step % evaluate_every == 0:
                    self._evaluate()
                ended = self._ended()  # What ``on_save`` stops ends after one more step, which is evaluated and saved.
                if ended:
                    self.log.flush()
                if self.folder is not None and (ended or self.step % checkpoint_every == 0):
                    self._save_checkpoint(self.folder / "checkpoints")
        self._describe()
        if self.folder is not None:
            self._gather()
            self.ranks.run_on_main(lambda: self._save_model("final"))
        self._tell("on_end", path=None if self.folder is None else self.folder / "final")
        if self.truncated:
            own = "max_lengths or " if self.config.max_lengths else ""
            warn(
                f"{self.truncated} of {self.texts} texts were truncated to {own}"
                f"max_seq_length={self.model.max_seq_length} tokens; raise max_seq_length, or split long texts"
            )
        return self.log.history

    def _ended(self) -> bool:
        """Whether all steps are done, or a callback has ended the run."""
        stopped = int(self.told.progress.stopped)
        if self.told and self.ranks.world > 1:
            stopped = self.ranks.all_max(stopped, self.model.device)
        return self.step == self.total or bool(stopped)

    def _tell(self, event: str, **news: Any) -> None:
        self.told.progress.step = self.step
        if self.told:
            self.ranks.run_on_main(lambda: self.told.call(event, **news))

    def _groups(self) -> Iterator[dict[str, Any]]:
        return (group for optimizer in self.optimizers for group in optimizer.param_groups)

    def _step(self, batches: list[PreparedBatch], started: float) -> None:
        config = self.config
        seed_step(config.seed, self.step, self.ranks.rank, self.model.device)
        buckets = GradientBuckets(self.replicated, self.ranks)
        with self.embedding_gradients.sparse():
            value, sentences = self._accumulate(batches, buckets)
        buckets.finish()
        self.ranks.reduce([p for p in self.weights.heads.parameters() if p.requires_grad], mean=True)
        norm = self._clip()
        if not math.isfinite(value + norm):
            raise FloatingPointError(self._not_finite(batches, value, norm))
        factor, rate = config.factor(self.step, self.total), config.rate(self.step, self.total)
        for group in self._groups():
            group["lr"] = group["peak"] * factor
        for optimizer in self.optimizers:
            optimizer.step()
        for parameter in self.weights.trained().values():  # An optimizer of the caller's may leave some out.
            parameter.grad = None
        self.step += 1
        seconds = time.perf_counter() - started
        figures = {"loss": value, "learning_rate": rate, "gradient_norm": norm}
        self._tell("on_step", figures={**figures, "sentences_per_second": sentences / seconds})
        with checkpoint.naming_last_good(self.log.path or Path(), self.saved):
            self.log.step(self.step, value, rate, norm, sentences, seconds, last=self._ended())

    def _accumulate(self, batches: list[PreparedBatch], buckets: GradientBuckets) -> tuple[float, int]:
        """Add up the gradients of the batches; return the mean loss and the number of sentences."""
        config, value, sentences = self.config, 0.0, 0
        rows = sum(len(batch.rows) for batch in batches)
        for batch in batches:
            inputs = self.batches.with_guide(batch, self.ranks)
            weight = inputs.rows / rows  # By rows, as in one large batch: the last batch of an epoch may be smaller.
            sentences += inputs.rows * inputs.columns.shape[1]
            self.texts += len(inputs.tokens.truncated)
            self.truncated += int(inputs.tokens.truncated.sum())
            loss = backward(
                self.model,
                batch.dataset.rows.loss,
                inputs,
                chunk_tokens=config.chunk_tokens,
                cached=config.chunk_tokens is not None,
                dtype=getattr(torch, config.dtype),
                weight=weight,
                ranks=self.ranks,
                replicated=not config.sharded,
                last_pass=buckets.overlapping() if batch is batches[-1] else None,
            )
            value += float(loss) * weight
        return value, sentences

    def _clip(self) -> float:
        """Scale the gradients down to the maximum norm; return the norm before that."""
        modules = (self.model, self.weights.heads)
        both = [[p.grad for p in module.parameters() if p.grad is not None] for module in modules]
        if self.model.device.type == "cpu" and not self.config.sharded:
            total = self.embedding_gradients.norm([p for module in modules for p in module.parameters()])
        else:
            norms = [nn.utils.get_total_norm(gradients) for gradients in both]
            total = math.hypot(*(float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm) for norm in norms))
        limit = self.config.max_gradient_norm
        if limit is not None and total > limit:
            for gradients in filter(None, both):
                torch._foreach_mul_(gradients, limit / total)
        return total

    def _not_finite(self, batches: list[PreparedBatch], value: float, norm: float) -> str:
        what = f"the loss is {value}" if not math.isfinite(value) else f"the gradient norm is {norm}"
        rows = [f"{batch.dataset.rows.name}, rows {str(batch.rows[:20].tolist())[1:-1]}" for batch in batches]
        return (
            f"{what} at step {self.step + 1} ({'; '.join(rows)}), and the weights are those of the previous step;"
            f" {checkpoint.last_good(self.saved)}; check these rows, lower learning_rate, or compute in float32"
        )

    # ------------------------------------------------------------------------------------- evaluations, checkpoints

    def _gather(self) -> None:
        """Bring the model that is saved and evaluated up to date, if it is a whole copy of sharded weights."""
        if self.config.sharded:
            self.to_save.load_state_dict({name: whole(value) for name, value in self.model.state_dict().items()})

    def _evaluate(self) -> None:
        """Run the evaluators, if there are any."""
        if self.evaluator is None:
            return
        self._gather()
        several = self.evaluator if isinstance(self.evaluator, Mapping) else {"": self.evaluator}
        scores: dict[str, float] = {}
        for name, evaluator in several.items():
            measure = partial(self._measure, evaluator, self.to_save.to(self.model.device))
            result = self.ranks.together(measure)
            found = dict(result) if isinstance(result, Mapping) else {"score": float(result)}
            named = {f"{name}_{metric}" if name else metric: float(score) for metric, score in found.items()}
            if twice := scores.keys() & named.keys():
                raise ValueError(f"several evaluators give {', '.join(sorted(twice))}; give them other names")
            scores |= named
        self.ranks.run_on_main(lambda: self._record(scores))

    def _measure(self, evaluator: Evaluate, model: Any) -> float | Mapping[str, float]:
        with evaluating(model):
            if isinstance(evaluator, Evaluator):
                return evaluator(model, ranks=self.ranks)
            return evaluator(model) if self.ranks.first else {}  # A plain function knows nothing of ranks.

    def _record(self, scores: dict[str, float]) -> None:
        """Log the scores of an evaluation, and save the model if it is the best so far."""
        metric = self.config.metric or next(iter(scores), "")
        if metric not in scores:
            raise ValueError(f"metric={metric!r} is not among the evaluator's {', '.join(scores) or 'scores: none'}")
        with checkpoint.naming_last_good(self.log.path or Path(), self.saved):
            self.log.add({"step": self.step, "evaluation": scores})
        sign = -1 if self.config.lower_is_better(metric) else 1
        best = sign * self.best[1] if self.best is not None and self.best[0] == metric else -math.inf
        improved = sign * scores[metric] > best  # False for NaN.
        if improved:
            self.best = [metric, scores[metric]]
            self._save_model("best")
        self.told.progress.step = self.step
        self.told.call("on_evaluate", figures=scores, improved=improved)

    def _save_model(self, name: str) -> None:
        if self.folder is not None:
            self._describe()
            with checkpoint.naming_last_good(self.folder / name, self.saved):
                self.to_save.save(self.folder / name)

    def _describe(self) -> None:
        about = self.base, self.batches.datasets, self.config, self.log.history
        self.to_save.trained = training_card(*about, self.model.device, self.ranks.world)

    def _save_checkpoint(self, folder: Path) -> None:
        self._gather()
        tensors, numbers = self.weights.optimizer_state(self.optimizers)
        tensors |= self.weights.tensors()
        state = {**self.setup, "step": self.step, "waiting": self.log.waiting, "best": self.best}
        state |= {"stopped": self.told.progress.stopped, "optimizer": numbers}

        def write() -> None:
            self._describe()
            more, state["callback"] = self.told.state()
            self.saved = checkpoint.write(folder, self.step, self.to_save, tensors | more, state, self.config.keep)

        self.ranks.run_on_main(write)
        self._tell("on_save", path=self.saved)

    def close(self) -> None:
        """Restore the state of the model before the run, except for its weights."""
        self.log.close()
        self.undo.close()
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        for module, mode in self.modes:
            module.training = mode
