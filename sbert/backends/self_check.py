"""At the first use of a model on a GPU, the ways to run it are compared and timed; later processes know the result.

The ways are ``plain`` (the padded module in the dtype of ``encode``), ``fused`` (the fused forward) and that with
optional kernels, such as ``fused + add_norm``. A row may be twice as far from float32 as the plain way's worst row is,
measured on this GPU with these weights. Of the ways that pass, the fastest is used. One that is wrong or raises is
switched off, with one warning.

The user's cache folder keeps the times by GPU, versions and shape of the model, and the gaps for its weights as well.
What raised is tried again by the next process. A cache that cannot be read or written is ignored.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from functools import cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from sbert.backends import limits
from sbert.backends.fused import Fused
from sbert.backends.half_precision import cast
from sbert.backends.model_keys import backbone_of, digest, fingerprint, shape_of
from sbert.backends.padded import Padded
from sbert.backends.parity import gap, probe_of, tolerance
from sbert.backends.triton import remedy, supported
from sbert.batch import TokenBatch
from sbert.storage.files import is_failure, one_line
from sbert.storage.user_cache import load, store

PLAIN, _AND = "plain", " + "
# Tokens of the rows that are compared; the first is cut to what the model takes, and 0 is filler. There are many, since
# a few rows are several times as sensitive to rounding as most.
LONGEST, _SHORT_ROWS = 512, (1, 0, 1, *range(2, 34))
# A few sequences of tokens depend on every rounding. A way is wrong if it is so for three, by their first tokens.
_STARTS = (3, 4, 5)
# Tokens of a timed batch, and lengths of its rows. A way is timed for 50 ms: half of that for each length.
_TOKENS, _LENGTHS, _SECONDS = 8192, (16, 256), 0.025
_CLEARLY = 1.1  # By how much a way must be faster than one that is preferred to it.


class Result(NamedTuple):
    """What was found about a way: the largest gap of a row from float32, and why it is not used, if it is not."""

    gap: float | None
    reason: str | None = None


class Check(NamedTuple):
    """Which way was chosen, and why."""

    parts: frozenset[str] | None = frozenset()  # Optional kernels of the fused forward; None for the plain way.
    allowed: float = math.inf  # The largest gap that a row may have.
    results: Mapping[str, Result] = MappingProxyType({})  # By way.
    seconds: Mapping[str, list[float]] = MappingProxyType({})  # Of a batch of short rows and one of long ones, by way.

    @property
    def why(self) -> str:
        """The choice and its reason in words."""
        times = [f"{way} {' and '.join(f'{1e3 * x:.3g}' for x in both)} ms" for way, both in self.seconds.items()]
        return f"{_way(self.parts)} (batches of short and of long rows: {', '.join(times) or 'nothing was timed'})"

    @property
    def refusals(self) -> dict[str, str]:
        """Why ways are switched off, by way."""
        return {way: result.reason for way, result in self.results.items() if result.reason is not None}


_checked: WeakKeyDictionary[nn.Module, tuple[object, Check]] = WeakKeyDictionary()
_of_weights: dict[str, Check] = {}  # For other networks with the same weights.


def check(network: Any, dtype: torch.dtype) -> Check:
    """How to run a network that the fused forward supports on its GPU; compared and timed at its first use.

    Nothing that fails here reaches the caller: then the fused forward without optional kernels is chosen. When weights
    change, the choice stays, and only the short comparison of ``parity`` is repeated.

    Args:
        network: A BERT-family model on a CUDA device.
        dtype: Of the arithmetic of ``encode``.
    """
    settings = network.device, network.dtype, dtype
    known = _checked.get(network)
    if known is None or known[0] != settings:
        with torch.no_grad(), torch.autocast("cuda", enabled=False), torch.cuda.device(network.device):
            kernels = supported(network.device, dtype, backbone_of(network))  # Triton may be installed later.
            shape = [*shape_of(network, dtype), *sorted(kernels)]
            key = digest([shape, fingerprint(network)])
            found = _of_weights.get(key)
            if found is None:
                try:
                    found = _of_weights[key] = _found(network, dtype, shape, key)
                    failing = found.refusals
                except Exception as error:  # Such as too little memory for the copies.
                    if not is_failure(error) and not isinstance(error, torch.OutOfMemoryError):
                        raise
                    found, failing = Check(results={"self-check": Result(None, f"it fails ({one_line(error)})")}), {}
                _warn(network, failing)
        known = _checked[network] = settings, found
    return known[1]


def _warn(network: Any, reasons: dict[str, str]) -> None:
    # Of kernels that fail together, only those are named that fail alone.
    words = "; ".join(f"{way}: {reason}" for way, reason in reasons.items() if way.count(_AND) < 2)
    if words:
        name = type(network).__name__
        warnings.warn(f"{name} does without what does not work on this GPU: {words}; {remedy(words)}", stacklevel=2)


def _found(network: Any, dtype: torch.dtype, shape: list[object], key: str) -> Check:
    verdict, times = f"gpu-{key}.json", f"gpu-{digest(shape)}.json"
    stored = load(verdict, _verdict)
    allowed, results = stored or _compared(network, dtype)
    if stored is None and all(result.gap is not None for result in results.values()):
        store(verdict, {"allowed": allowed, "results": results})
    fused = [way for way, result in results.items() if result.reason is None and way != PLAIN]
    if not fused:
        return Check(None, allowed, results)
    ways = list(dict.fromkeys([max(fused, key=lambda way: way.count(_AND)), fused[0], PLAIN]))  # By preference.
    seconds = load(times, lambda value: {way: [float(x) for x in value["seconds"][way]] for way in ways})
    if seconds is None:
        seconds = {way: _timed(network, dtype, way) for way in ways}
        store(times, {"shape": shape, "seconds": seconds})
    best = min(map(math.prod, seconds.values()))
    way = next(way for way in ways if math.prod(seconds[way]) <= _CLEARLY**2 * best)
    return Check(_parts(way), allowed, results, seconds)


def _verdict(stored: dict[str, Any]) -> tuple[float, dict[str, Result]]:
    return float(stored["allowed"]), {way: Result(*result) for way, result in stored["results"].items()}


def _compared(network: Any, dtype: torch.dtype) -> tuple[float, dict[str, Result]]:
    """The largest gap allowed, and what was found about each way; kernels that fail together are tried one by one."""
    device, reference, vocab = network.device, Padded(cast(network, torch.float32)), limits.vocab_size(network) or 100
    longest = min(LONGEST, limits.position_limit(network) or LONGEST)
    rows = (longest,), tuple(min(length, longest) for length in _SHORT_ROWS)

    @cache
    def right(start: int) -> list[tuple[Tensor, TokenBatch]]:
        batches = [probe_of(lengths, vocab, device, start) for lengths in rows]
        return [(reference.forward(batch), batch) for batch in batches]

    def distance(way: str, start: int) -> float:
        made = _made(network, dtype, way)
        pairs = [(made.forward(batch), exact, batch) for exact, batch in right(start)]
        return max(gap(*pair) if pair[0].isfinite().all() else math.inf for pair in pairs)

    own = {start: distance(PLAIN, start) for start in _STARTS[:1]}

    def result(way: str) -> Result:
        found = math.inf
        for start in _STARTS:
            found = min(found, distance(way, start))
            if start not in own:
                own[start] = distance(PLAIN, start)
            if not found > _allowed(own, dtype, device):
                return Result(found)
        words = f"by {found:.1e} of their norm, {_allowed(own, dtype, device):.1e} are allowed"
        return Result(found, f"its vectors differ from float32 {words}")

    results = {PLAIN: Result(own[_STARTS[0]])}

    def passes(parts: frozenset[str]) -> bool:
        way = _way(parts)
        if way not in results:
            try:
                results[way] = result(way)
            except Exception as error:
                if not is_failure(error):
                    raise
                results[way] = Result(None, f"it fails ({one_line(error)})")
        return results[way].reason is None

    known = supported(device, dtype, backbone_of(network)) if passes(frozenset()) else frozenset()
    if not passes(known):
        passes(frozenset(part for part in known if passes(frozenset({part}))))
    return _allowed(own, dtype, device), results


def _allowed(own: dict[int, float], dtype: torch.dtype, device: torch.device) -> float:
    """Twice the plain way's gap, if it computes in half precision; if it is not finite, it excludes nothing."""
    worst = max(own.values())
    return 2 * worst if dtype.itemsize == 2 or not math.isfinite(worst) else tolerance(dtype, device)


def _made(network: Any, dtype: torch.dtype, way: str) -> Any:
    parts = _parts(way)
    return Padded(cast(network, dtype)) if parts is None else Fused(network, dtype, parts=parts)


def _way(parts: frozenset[str] | None) -> str:
    """The name of a way."""
    return PLAIN if parts is None else _AND.join([Fused.name, *sorted(parts)])


def _parts(way: str) -> frozenset[str] | None:
    return None if way == PLAIN else frozenset(way.split(_AND)[1:])


def _timed(network: Any, dtype: torch.dtype, way: str) -> list[float]:
    """Seconds of a way on a batch of short rows, and on one of long rows."""
    made, vocab = _made(network, dtype, way), limits.vocab_size(network) or 100
    lengths = [min(length, limits.position_limit(network) or length) for length in _LENGTHS]
    batches = [probe_of((length,) * (_TOKENS // length), vocab, network.device) for length in lengths]
    return [seconds(partial(made.forward, batch)) for batch in batches]


def seconds(run: Callable[[], object], most: float = _SECONDS) -> float:
    """Seconds of a call on the current CUDA device; after two others, it is repeated for ``most`` seconds."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]

    def calls(count: int) -> float:
        start.record()
        for _ in range(count):
            run()
        end.record()
        end.synchronize()
        milliseconds: float = start.elapsed_time(end)
        return max(1e-9, milliseconds / 1e3 / count)

    calls(1)  # What compiles or is loaded at the first use.
    return calls(max(1, int(most / calls(1))))
