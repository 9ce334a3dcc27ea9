"""``sbert doctor``: the device, dtype and backend selected for a model on this machine, and the reasons."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from sbert.cli.options import add_dtype, add_model, load
from sbert.cli.output import facts_table

if TYPE_CHECKING:
    import torch

    from sbert.encoder import SentenceEncoder
    from sbert.modules.transformer import Transformer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sbert doctor``."""
    add_model(parser)
    add_dtype(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    about = (
        "compare all ways to run the model on a CUDA device with float32, and measure how fast the device and they are"
    )
    parser.add_argument("--gpu", action="store_true", help=about)
    about = "with --gpu: also write gpu.json, and gpu.md, a table to paste into an issue"
    parser.add_argument("--report", metavar="FOLDER", help=about)


def run(arguments: argparse.Namespace) -> None:
    """Run ``sbert doctor``.

    Raises:
        ValueError: If ``--gpu`` is asked for without a CUDA device, or ``--report`` without ``--gpu``.
    """
    if arguments.gpu:
        _check_gpu(arguments.device)
    elif arguments.report is not None:
        raise ValueError("--report writes what --gpu measures; pass --gpu as well")
    folder = None if arguments.report is None else Path(arguments.report)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)  # Before the long measurement.
    model = load(arguments)
    if not arguments.gpu:
        found = facts = diagnose(model)
    else:
        from sbert.cli import gpu_report

        found = gpu_report.measure(model, arguments.model)
        facts = gpu_report.rows(found)
        if folder is not None:
            gpu_report.write(found, folder)
    print(json.dumps(found, ensure_ascii=False, indent=2) if arguments.json else facts_table(facts))


def _check_gpu(device: str | None) -> None:
    import torch

    if not torch.cuda.is_available():
        raise ValueError(
            f"--gpu needs a CUDA device, and torch {torch.__version__} finds none; install the driver of the GPU and a"
            " build of torch with CUDA (pytorch.org/get-started), or leave --gpu out"
        )
    if device is not None and torch.device(device).type != "cuda":
        raise ValueError(f"--gpu measures a CUDA device, not --device {device}; pass --device cuda, or leave it out")


def diagnose(model: SentenceEncoder) -> dict[str, str]:
    """Explain how ``encode`` runs a model here: device, dtype, forward, attention, threads, batches, versions.

    Args:
        model: The model, on the device where it will run.

    Returns:
        For each of these, the selected value and the reason; and why each backend that is not used cannot run.

    Example:
        >>> sorted(diagnose(model))
        ['attention', 'batches', 'device', 'dtype', 'forward', 'no cuda_graphs', 'threads', 'versions']
    """
    import torch

    from sbert.inputs.devices import default_batch_tokens, inference_dtype
    from sbert.modules.transformer import Transformer
    from sbert.saving.verification import versions

    device = model.device
    dtype, why = inference_dtype(model.dtype, model.automatic_dtype, device)
    facts = {
        "device": _device(device),
        "dtype": f"{_name(dtype)}: {why}",
        "forward": "no transformer",
        "attention": "none",
        "threads": f"{torch.get_num_threads()} of torch; OMP_NUM_THREADS or torch.set_num_threads changes it",
        "batches": f"{default_batch_tokens(device)} tokens at most, texts of similar length; batch_tokens= changes it",
        "versions": ", ".join(f"{name} {number}" for name, number in versions().items()),
    }
    for _ in range(3):  # Some backends are tried at their first use, CUDA graphs at a later one.
        model.encode("a", prompt="")
    for module in model:
        if isinstance(module, Transformer):
            facts.update(_transformer(module, dtype, device))
    return facts


def _transformer(module: Transformer, dtype: torch.dtype, device: torch.device) -> dict[str, str]:
    """How a transformer runs, why faster ways do not, and what the check at its first use on a GPU has found."""
    from sbert.backends import choose, reasons
    from sbert.backends.choice import halved
    from sbert.backends.fused import Fused
    from sbert.backends.self_check import check

    network = module.materialize()  # As for training.
    chosen = choose(network, dtype)
    if isinstance(chosen, str):
        copies = halved(network, dtype)
        facts = {"forward": f"plain{'' if copies is None else f', {copies.why}'}: {chosen}"}
    else:
        facts = {"forward": f"fused: {chosen.why}"}
    facts["attention"] = _attention(module, not isinstance(chosen, str), dtype, device)
    facts.update({f"no {name}": reason for name, reason in reasons(network, device, dtype).items()})
    if device.type == "cuda":
        facts.update(_training_kernel(module, dtype, device))
        if Fused.supports(network, device, dtype) is None:
            found = check(network, dtype)
            facts["chosen on this GPU"] = found.why
            facts.update({f"no {way}": reason for way, reason in found.refusals.items()})
    return facts


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _device(device: torch.device) -> str:
    import torch

    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        return f"{device}: {torch.cuda.get_device_name(device)}, compute capability {major}.{minor}"
    if device.type == "cpu":
        bfloat16 = "fast" if torch.ops.mkldnn._is_mkldnn_bf16_supported() else "slow"
        absent = "" if torch.accelerator.is_available() else "; no accelerator was found"
        return f"cpu: {torch.backends.cpu.get_cpu_capability()}, bfloat16 is {bfloat16}{absent}"
    return str(device)


def _attention(module: Transformer, fused: bool, dtype: torch.dtype, device: torch.device) -> str:
    from sbert.backends.attention import kernel_failures, one_kernel

    if not fused and module.padding_reason is not None:
        return f"that of the Hugging Face module, on padded batches of similar length: {module.padding_reason}"
    dim = _head(module)
    if one_kernel(dtype, device, dim):
        return "without padding, one kernel for texts of any length (torch's varlen_attn)"
    failure = kernel_failures.get((dtype, device, dim))
    because = f", as varlen_attn {failure}" if failure else ""
    return f"without padding, one call of scaled_dot_product_attention per length{because}"


def _training_kernel(module: Transformer, dtype: torch.dtype, device: torch.device) -> dict[str, str]:
    """Why training in half precision does without torch's kernel, if that was tried and does not work."""
    import torch

    from sbert.backends.attention import one_training_kernel, training_failures

    kind = dtype if dtype != torch.float32 else torch.bfloat16, device, _head(module)
    one_training_kernel(*kind)  # It is tried at its first use.
    failure = training_failures.get(kind)
    return {} if failure is None else {"no training kernel": f"torch's _flash_attention_forward {failure}"}


def _head(module: Transformer) -> int:
    """Dimension of a head."""
    config = module.network.config
    return int(getattr(config, "head_dim", None) or module.dim // config.num_attention_heads)
