"""How a model runs on this machine, and why; and on a GPU, whether all backends agree, and how fast it is.

A report of ``sbert doctor --gpu`` has four parts, all ready for JSON: the ``model``, ``facts`` in words, ``parity`` by
backend, and ``figures``. What fails is there with its reason, so that one fault does not hide the rest.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sbert.backends.attention import has_kernel, kernel_failure
from sbert.backends.fused import Fused
from sbert.backends.half_precision import cast_weights
from sbert.backends.packed import Packed
from sbert.backends.padded import Padded
from sbert.backends.parity import copy_without_hooks, max_relative_error, probe_of, tolerance
from sbert.backends.state import explain
from sbert.encoder import SentenceEncoder
from sbert.inputs.devices import SLOW_BFLOAT16, default_batch_tokens, inference_dtype, multiplies_bfloat16
from sbert.modules.transformer import Transformer
from sbert.saving.verification import versions
from sbert.storage.atomic import write_text
from sbert.storage.files import one_line

_SIDE = 8192  # Of the matrix products.
_TEXTS, _SINGLES = 4096, 200  # Of a measurement of encode, and those that are encoded one by one.
_WORDS = "the a cat dog man woman plays sleeps eats reads house garden street car book old new red two on in".split()


# --------------------------------------------------------------------------------------------------- in words


def diagnose(model: SentenceEncoder) -> dict[str, str]:
    """Explain how ``encode`` runs a model here: device, dtype, forward, attention, threads, batches, versions.

    Args:
        model: The model, on the device where it will run.

    Returns:
        For each of these, the selected value and the reason; and why each backend that is not used cannot run.

    Example:
        >>> sorted(diagnose(model))
        ['attention', 'batches', 'device', 'dtype', 'forward', 'threads', 'versions']
    """
    device = model.device
    dtype, why = inference_dtype(model.dtype, model.automatic_dtype, device)
    facts = {
        "device": _describe_device(device),
        "dtype": f"{str(dtype).removeprefix('torch.')}: {why}",
        "forward": "no transformer",
        "attention": "none",
        "threads": f"{torch.get_num_threads()} of torch; OMP_NUM_THREADS or torch.set_num_threads changes it",
        "batches": f"{default_batch_tokens(device)} tokens at most, texts of similar length; batch_tokens= changes it",
        "versions": ", ".join(f"{name} {number}" for name, number in versions().items()),
    }
    model.encode("a", prompt="")  # Backends are tried at their first use.
    for module in model:
        if isinstance(module, Transformer) and device in module.plain_devices:
            facts["forward"] = "plain: the Hugging Face module alone, as the check of its first use has warned"
        elif isinstance(module, Transformer) and module.backend == "plain":
            facts["forward"] = "plain: the Hugging Face module alone; leave out backend= and SBERT_BACKEND to undo it"
        elif isinstance(module, Transformer):
            facts["forward"], reasons = explain(module.materialize(), dtype)  # Materialized as for training.
            facts |= {f"no {name}": reason for name, reason in reasons.items()}
            facts |= _explain_attention(module, facts["forward"].startswith("fused"), dtype)
    return facts


def _describe_device(device: torch.device) -> str:
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        return f"{device}: {torch.cuda.get_device_name(device)}, compute capability {major}.{minor}"
    if device.type == "cpu":
        bfloat16 = "bfloat16 is fast" if multiplies_bfloat16() else SLOW_BFLOAT16
        absent = "" if torch.accelerator.is_available() else "; no accelerator was found"
        return f"cpu: {torch.backends.cpu.get_cpu_capability()}, {bfloat16}{absent}"
    return str(device)


def _explain_attention(module: Transformer, fused: bool, dtype: torch.dtype) -> dict[str, str]:
    """How attention is computed in ``encode``, and why training does without torch's kernel, if it was tried."""
    if not fused and module.padding_reason is not None:
        means = "that of the Hugging Face module, on padded batches of similar length"
        return {"attention": f"{means}: {module.padding_reason}"}
    config, device = module.network.config, module.network.device
    dim = int(getattr(config, "head_dim", None) or module.dim // config.num_attention_heads)
    half = torch.bfloat16 if dtype == torch.float32 else dtype
    facts = {"attention": "without padding, one kernel for texts of any length (torch's varlen_attn)"}
    has_kernel(half, device, dim, training=True)  # It is tried at its first use.
    if (failure := kernel_failure(half, device, dim, training=True)) is not None:
        facts["no training kernel"] = f"torch's _flash_attention_forward {failure}"
    if not has_kernel(dtype, device, dim):
        failure = kernel_failure(dtype, device, dim)
        because = "" if failure is None else f", as torch's kernel for any length {failure}"
        how = (
            "padded, in one call" if module.network.device.type == "cuda" else "without padding, in one call per length"
        )
        facts["attention"] = f"{how} of scaled_dot_product_attention{because}"
    return facts


# -------------------------------------------------------------------------------------------------- in figures


def measure(model: SentenceEncoder, name: str) -> dict[str, Any]:
    """Compare all backends of a model on its GPU, and measure how fast it is.

    Args:
        model: On a CUDA device.
        name: Of the model; of a folder, only the last part is kept.
    """
    dtype = inference_dtype(model.dtype, model.automatic_dtype, model.device)[0]
    transformer = next((module for module in model if isinstance(module, Transformer)), None)
    kinds = (Padded, Packed, Fused) if transformer else ()
    with torch.cuda.device(model.device):
        return {
            "model": Path(name).resolve().name if Path(name).is_dir() else name,
            "facts": {**_attempt(diagnose, model), "cuda": f"torch is built for CUDA {torch.version.cuda}"},
            "parity": {kind.name: _attempt(_compare, kind, transformer, dtype) for kind in kinds},
            "figures": {
                "matrix product": _attempt(_multiply, dtype, model.device),
                "encode, 17 tokens": _attempt(_encode_many, model, 15),
                "encode, 256 tokens": _attempt(_encode_many, model, 254),
                "one text": _attempt(_encode_singly, model),
            },
        }


def rows(report: dict[str, Any]) -> dict[str, str]:
    """What a report says, by line of its table."""
    lines = {"model": report["model"], **report["facts"]}
    for backend, result in report["parity"].items():
        error = "same vectors: {error:.1e} of a row's norm from float32, {allowed:.1e} are allowed"
        lines[f"parity: {backend}"] = result.get("reason") or error.format(**result)
    for name, figures in report["figures"].items():
        lines[name] = figures.get("reason") or ", ".join(f"{value:,.4g} {unit}" for unit, value in figures.items())
    return lines


def write(report: dict[str, Any], folder: Path) -> None:
    """Write gpu.json, and gpu.md with a table to paste into an issue; each file is complete or not there."""
    cells = [("", "result"), ("---", "---"), *rows(report).items()]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in cells]
    write_text(folder / "gpu.json", json.dumps(report, ensure_ascii=False, indent=2, allow_nan=False) + "\n")
    write_text(folder / "gpu.md", "".join(lines))


def _attempt(run: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """What ``run`` returns, or the ``reason`` if it raises."""
    try:
        return run(*arguments)
    except Exception as error:
        reason = one_line(error)
    torch.cuda.empty_cache()  # Outside of the except clause, whose traceback holds memory.
    return {"reason": f"failed: {reason}"}


def _compare(kind: Any, transformer: Transformer, dtype: torch.dtype) -> dict[str, Any]:
    """Compare a backend with the padded module in float32: the largest ``error`` of a row, relative to its norm.

    The rows have one token, the longest input, none, and all lengths between. Twice the error of the padded module in
    the same dtype is allowed.
    """
    network = transformer.materialize()
    refusal = kind.supports(network, network.device, dtype)
    if refusal is not None:
        return {"reason": f"not used: {refusal}"}
    backend = Fused(copy_without_hooks(network), dtype) if kind is Fused else kind(cast_weights(network, dtype))
    exact, padded = (Padded(cast_weights(network, each)) for each in (torch.float32, dtype))
    longest = transformer.max_seq_length or 512
    errors = []  # Of the backend and of the padded module.
    for lengths in ((longest, 1, longest // 3, 0, 1), (longest,), (1,), tuple(range(2, min(longest, 512), 8))):
        batch = probe_of(lengths, transformer.vocab_size or 100, network.device)
        with torch.no_grad():
            expected = exact.forward(batch)
            errors.append([max_relative_error(each.forward(batch), expected, batch) for each in (backend, padded)])
    error, own = (float(value) for value in np.max(errors, 0))  # NaN if one is.
    allowed = 2 * own or tolerance(dtype, network.device)
    same = {"error": error, "allowed": allowed}
    return same if error <= allowed else {"reason": f"DIFFERENT vectors: {error:.1e} of a row's norm from float32"}


def _multiply(dtype: torch.dtype, device: torch.device) -> dict[str, float]:
    """TFLOP/s of a product of squares, which has 2 side^3 operations."""
    a, b = (torch.randn(_SIDE, _SIDE, device=device).to(dtype) for _ in range(2))
    for count in (1, 10):  # The first call prepares.
        start = time.perf_counter()
        product = [a @ b for _ in range(count)][-1]
        float(product[0, 0])  # Waits for the device.
    return {"TFLOP/s": 2e-12 * _SIDE**3 * count / (time.perf_counter() - start)}


def _draw_texts(count: int, words: int, seed: int) -> list[str]:
    return [" ".join(text) for text in np.random.default_rng(seed).choice(_WORDS, (count, words))]


def _time(model: SentenceEncoder, texts: str | list[str]) -> float:
    start = time.perf_counter()
    model.encode(texts, on_truncate="ignore", prompt="")
    return time.perf_counter() - start


def _encode_many(model: SentenceEncoder, words: int) -> dict[str, float]:
    """Texts per second, of new texts in a second call."""
    return {"texts/s": _TEXTS / [_time(model, _draw_texts(_TEXTS, words, seed)) for seed in range(2)][1]}


def _encode_singly(model: SentenceEncoder) -> dict[str, float]:
    """Milliseconds of one text: the median and the 95th percentile."""
    warm = [1e3 * _time(model, text) for text in _draw_texts(_SINGLES, 15, 2)][_SINGLES // 10 :]
    return {f"ms p{part}": float(np.percentile(warm, part)) for part in (50, 95)}
