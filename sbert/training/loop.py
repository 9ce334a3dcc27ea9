"""One run of a trainer: steps, evaluations, checkpoints."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import random
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from sbert.evaluation.evaluator import Evaluator
from sbert.modules import Transformer
from sbert.pipeline.devices import parse_dtype
from sbert.pipeline.eval_mode import evaluating
from sbert.pipeline.ranks import Ranks
from sbert.pipeline.run import ahead
from sbert.training import checkpoint
from sbert.training.backward import backward, random_state, set_random_state
from sbert.training.log import Log
from sbert.training.sampling import name_of
from sbert.training.sparse_embeddings import Tables

if TYPE_CHECKING:
    from sbert.training.trainer import Evaluate, Piece, Trainer

# Settings that may change before training goes on: they do not change what is trained.
_FREE = ("output", "keep", "log_every", "checkpoint_every", "evaluate_every", "metric", "timeout")


class Run:
    """One call of ``fit``."""

    def __init__(self, trainer: Trainer, ranks: Ranks, resume: bool, show: bool | None) -> None:
        self.trainer, self.config, self.ranks = trainer, trainer.config, ranks
        self.model = trainer.model
        self.folder = None if self.config.output is None else Path(self.config.output)
        found = None if self.folder is None else checkpoint.newest(self.folder / "checkpoints")
        if resume and self.folder is None:
            raise ValueError("resume=True, but TrainingConfig has no output; name the folder of the checkpoints")
        if found is not None and not resume:
            raise ValueError(f"{found} is there already; pass resume=True to go on, or name another output")
        self.total, self.epoch_steps = self._steps()
        for module in list(self.model.modules()):
            if isinstance(module, Transformer):
                module.materialize()  # Modes are kept by module, and layers are sharded: those that will learn.
        self.modes = [(module, module.training) for module in self.model.modules()]
        self.heads = self._heads()
        self.facts = self._facts()
        self.template = copy.deepcopy(self.model).to("cpu") if self.config.sharded else None
        tensors: dict[str, Tensor] = {}
        state: dict[str, Any] = {"step": 0, "waiting": [], "best": None}
        if found is not None:
            tensors, state = checkpoint.read(found)
            self._check(found, state)
            self._restore(found, tensors)
        step, device = int(state["step"]), self.model.device
        if ranks.all_max(step, device) != -ranks.all_max(-step, device):
            raise ValueError("the processes have found different checkpoints; give them one output folder on one disk")
        ranks.broadcast([*self.model.parameters(), *self.model.buffers(), *self.heads.parameters()])
        if self.config.sharded:
            self._shard()
        self.names = {parameter: name for name, parameter in self._parameters() if parameter.requires_grad}
        # Of a large batch in chunks, the rows that are reached would take more memory than the whole table.
        alone = ranks.world == 1 and self.config.chunk_tokens is None
        self.tables = Tables([self.model] if alone else [])
        self.optimizer = self._optimizer()
        checkpoint.restore_optimizer(self.optimizer, self.names, tensors)
        self.step, self.saved, self.best = step, found, state["best"]
        self.texts = self.cut = 0
        path = self.folder / "history.jsonl" if self.folder is not None and ranks.first else None
        shown = show if ranks.first else False
        self.log = Log(
            path, self.total, self.step, self.config.log_every, state["waiting"], shown, metric=self.config.metric
        )

    def _steps(self) -> tuple[int, int]:
        """Steps in all, and in an epoch."""
        batches = len(self.trainer.epoch(0))
        an_epoch = max(1, round(batches / self.config.accumulation))
        total = self.config.steps
        if total is None:
            total = max(1, round(batches * (self.config.epochs or 1) / self.config.accumulation))
        return total, an_epoch

    def _heads(self) -> nn.ModuleDict:
        """The losses that are modules, for their weights; one that serves several datasets once."""
        kept: dict[int, str] = {}
        heads = nn.ModuleDict()
        for name, loss in self.trainer.losses.items():
            if isinstance(loss, nn.Module) and kept.setdefault(id(loss), name) == name:
                heads["of_" + name.replace(".", "_")] = loss  # "train" and others would be names of methods.
        return heads.to(self.model.device)

    def _weights(self) -> dict[str, Tensor]:
        """What training changes: weights that are not frozen, each once, and buffers, by name."""
        weights: dict[str, Tensor] = {name: value for name, value in self._parameters() if value.requires_grad}
        for prefix, module in (("model", self.model), ("loss", self.heads)):
            kept = module.state_dict()
            for name, value in module.named_buffers():
                if name in kept:
                    weights[f"{prefix}.{name}"] = value
        return weights

    def _parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        for prefix, module in (("model", self.model), ("loss", self.heads)):
            for name, parameter in module.named_parameters():
                yield f"{prefix}.{name}", parameter

    def _shard(self) -> None:
        from torch.distributed.fsdp import fully_shard

        if self.ranks.world == 1:
            raise ValueError("sharded=True spreads the weights over several processes; start the program with torchrun")
        with evaluating(
            self.model
        ):  # What a transformer finds out at its first batch, it could not find out in pieces.
            first = next(iter(self.trainer.rows.values())).inputs(0)
            self.model(self.model.tokens(first).batch(np.arange(1)).to(self.model.device))
        for module in self.model.modules():
            if isinstance(module, nn.ModuleList):
                for layer in module:
                    fully_shard(layer)
        fully_shard(self.model)

    def _optimizer(self) -> torch.optim.Optimizer:
        if not self.names:
            raise ValueError("nothing is trained: no weight of the model or the loss has requires_grad=True")
        groups: dict[tuple[str, float], list[nn.Parameter]] = {}
        for parameter, name in self.names.items():
            decay = self.config.weight_decay if parameter.ndim > 1 else 0.0
            groups.setdefault((name.partition(".")[0], decay), []).append(parameter)
        listed = [{"params": group, "weight_decay": decay} for (_, decay), group in groups.items()]
        return torch.optim.AdamW(listed, fused=True)

    # ----------------------------------------------------------------------------------------------------- steps

    def go(self) -> list[dict[str, Any]]:
        config = self.config
        evaluate_every = config.evaluate_every or self.epoch_steps
        checkpoint_every = config.checkpoint_every or self.epoch_steps
        self.model.train()
        first = self.step * config.accumulation
        pieces = self.trainer.pieces(first, self.total * config.accumulation, self.ranks)
        with closing(ahead(pieces)) as coming:
            while self.step < self.total:
                started = time.perf_counter()
                with self.ranks.at(self.step + 1):
                    self._step(list(islice(coming, config.accumulation)), started)
                last = self.step == self.total
                if self.trainer.evaluator is not None and (last or self.step % evaluate_every == 0):
                    self._evaluate(self.trainer.evaluator)
                if self.folder is not None and (last or self.step % checkpoint_every == 0):
                    self._save(self.folder / "checkpoints")
        if self.folder is not None:
            model = self._whole_model()
            self.ranks.run_on_main(lambda: self._write(model, "final"))
        if self.cut:
            warnings.warn(
                f"{self.cut} of {self.texts} texts were cut to max_seq_length={self.model.max_seq_length} tokens;"
                " raise max_seq_length, or split what is too long",
                stacklevel=4,
            )
        return self.log.history

    def _step(self, pieces: list[Piece], started: float) -> None:
        config = self.config
        _seed(config.seed, self.step, self.ranks.rank)
        dtype = parse_dtype(config.dtype) or torch.float32
        value, sentences, rows = 0.0, 0, sum(len(piece.rows) for piece in pieces)
        with self.tables.sparse():
            for piece in pieces:
                batch = self.trainer.guided(piece, self.ranks)
                weight = batch.rows / rows  # As in one batch of all: the last one of an epoch may be short.
                sentences += batch.rows * batch.columns.shape[1]
                self.texts += len(batch.tokens.truncated)
                self.cut += int(batch.tokens.truncated.sum())
                found = backward(
                    self.model,
                    self.trainer.losses[piece.dataset],
                    batch,
                    chunk_tokens=config.chunk_tokens,
                    cached=config.chunk_tokens is not None,
                    dtype=dtype,
                    weight=weight,
                    ranks=self.ranks,
                    replicated=not config.sharded,
                )
                value += float(found) * weight
        if not config.sharded:
            self.ranks.reduce([p for p in self.model.parameters() if p.requires_grad], mean=False)
        self.ranks.reduce([p for p in self.heads.parameters() if p.requires_grad], mean=True)
        norm = self._clip()
        if not math.isfinite(value + norm):
            raise FloatingPointError(self._not_finite(pieces, value, norm))
        rate = config.rate(self.step, self.total)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        seconds = time.perf_counter() - started
        with checkpoint.naming(self.log.path or Path(), self.saved):
            self.log.step(self.step, value, rate, norm, sentences, seconds, last=self.step == self.total)

    def _clip(self) -> float:
        """Scale the gradients down to the greatest norm that is allowed; return the norm they had."""
        both = [[p.grad for p in module.parameters() if p.grad is not None] for module in (self.model, self.heads)]
        if self.model.device.type == "cpu" and not self.config.sharded:
            total = self.tables.norm([*self.model.parameters(), *self.heads.parameters()])
        else:
            norms = [nn.utils.get_total_norm(gradients) for gradients in both]
            total = math.hypot(*(float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm) for norm in norms))
        limit = self.config.max_gradient_norm
        if limit is not None and total > limit:
            for gradients in filter(None, both):
                torch._foreach_mul_(gradients, limit / total)
        return total

    def _not_finite(self, pieces: list[Piece], value: float, norm: float) -> str:
        what = f"the loss is {value}" if not math.isfinite(value) else f"the gradient's norm is {norm}"
        rows = "; ".join(f"{piece.dataset}, rows {', '.join(map(str, piece.rows[:20].tolist()))}" for piece in pieces)
        good = f"the last good checkpoint is {self.saved}" if self.saved is not None else "there is no checkpoint"
        return (
            f"{what} at step {self.step + 1} ({rows}), and the weights are those of the step before; {good};"
            " look at these rows, lower learning_rate, or compute in float32"
        )

    # ------------------------------------------------------------------------------------- evaluations, checkpoints

    def _evaluate(self, evaluator: Evaluate) -> None:
        model, device = self._whole_model(), self.model.device
        found = self.ranks.together(lambda: self._figures(evaluator, model.to(device)))
        self.ranks.run_on_main(lambda: self._judge(found, model))

    def _figures(self, evaluator: Evaluate, model: Any) -> float | Mapping[str, float]:
        with evaluating(model):
            if isinstance(evaluator, Evaluator):
                return evaluator(model, ranks=self.ranks)
            return evaluator(model) if self.ranks.first else {}  # Others wait: it may be anything.

    def _judge(self, found: float | Mapping[str, float], model: Any) -> None:
        scores = dict(found) if isinstance(found, Mapping) else {"score": float(found)}
        metric = self.config.metric or next(iter(scores))
        if metric not in scores:
            raise ValueError(f"metric={metric!r} is not among the evaluator's {', '.join(scores)}")
        with checkpoint.naming(self.log.path or Path(), self.saved):
            self.log.add({"step": self.step, "evaluation": {name: float(score) for name, score in scores.items()}})
        known = self.best if self.best is not None and self.best[0] == metric else None
        if not math.isnan(scores[metric]) and (known is None or scores[metric] > known[1]):
            self.best = [metric, float(scores[metric])]
            self._write(model, "best")

    def _write(self, model: Any, name: str) -> None:
        if self.folder is not None:
            with checkpoint.naming(self.folder / name, self.saved):
                model.save(self.folder / name)

    def _save(self, folder: Path) -> None:
        model = self._whole_model()
        tensors = checkpoint.optimizer_tensors(self.optimizer, self.names)
        tensors |= {name: checkpoint.whole(value) for name, value in self._weights().items()}
        state = {**self.facts, "step": self.step, "waiting": self.log.waiting, "best": self.best}

        def write() -> None:
            self.saved = checkpoint.write(folder, self.step, model, tensors, state, self.config.keep)

        self.ranks.run_on_main(write)

    def _whole_model(self) -> Any:
        """The model, or where its weights are spread over the ranks, a copy in one piece."""
        if self.template is None:
            return self.model
        weights = {name: checkpoint.whole(value) for name, value in self.model.state_dict().items()}
        self.template.load_state_dict(weights)
        return self.template

    def _facts(self) -> dict[str, Any]:
        """What has to be the same where training goes on, as JSON keeps it."""
        config = {name: value for name, value in asdict(self.config).items() if name not in _FREE}
        config["sampler"] = name_of(self.config.sampler)
        del config["prompts"]  # Names, of which what they stand for is kept.
        losses = {
            name: f"{rows.signature.name}({rows.signature})"
            + (repr(self.trainer.losses[name]) if isinstance(self.trainer.losses[name], nn.Module) else "")
            for name, rows in self.trainer.rows.items()
        }
        data = {name: [len(rows), rows.fingerprint] for name, rows in self.trainer.rows.items()}
        frozen = hashlib.blake2b(digest_size=16)
        for name, parameter in self._parameters():
            if not parameter.requires_grad:
                frozen.update(name.encode() + parameter.detach().flatten()[:64].float().cpu().numpy().tobytes())
        facts = {"settings": config, "model": repr(self.model), "frozen weights": frozen.hexdigest()}
        kept: dict[str, Any] = json.loads(
            json.dumps({**facts, "losses": losses, "data": data, "prompts": self.trainer.prompts})
        )
        return kept

    def _check(self, path: Path, state: dict[str, Any]) -> None:
        for what, expected in self.facts.items():
            checkpoint.check_same(path, what, state.get(what), expected)

    def _restore(self, path: Path, tensors: dict[str, Tensor]) -> None:
        """Put the weights of a checkpoint into the model and the losses."""
        live = self._weights()
        found = {name: value for name, value in tensors.items() if not name.startswith("optimizer.")}
        shapes = [{name: list(value.shape) for name, value in weights.items()} for weights in (found, live)]
        checkpoint.check_same(path, "weight", *shapes)
        for name, value in live.items():
            checkpoint.assign(value, found[name])

    def close(self) -> None:
        """Leave the model as it was found, but for its weights."""
        self.log.close()
        self.optimizer.zero_grad()
        for module, mode in self.modes:
            module.training = mode


def _seed(seed: int, step: int, rank: int) -> None:
    """Random numbers that depend on the step alone, so that nothing about them need be stored."""
    numbers = np.random.SeedSequence([seed, step, rank]).generate_state(2)
    torch.manual_seed(int(numbers[0]) << 32 | int(numbers[1]))
    np.random.seed(numbers[0])
    random.seed(int(numbers[1]))


@contextmanager
def own_randomness(device: torch.device) -> Iterator[None]:
    """Give back the random numbers of whoever called."""
    python, numpy, states = random.getstate(), np.random.get_state(), random_state(device)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        set_random_state(states, device)
