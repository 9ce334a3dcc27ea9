"""How a model runs on this machine, and why: what ``sbert doctor`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from sbert.encoder import SentenceEncoder
    from sbert.modules.transformer import Transformer


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
    import torch

    from sbert.inputs.devices import default_batch_tokens, inference_dtype
    from sbert.modules.transformer import Transformer
    from sbert.saving.verification import versions

    device = model.device
    dtype, why = inference_dtype(model.dtype, model.automatic_dtype, device)
    facts = {
        "device": _device(device),
        "dtype": f"{str(dtype).removeprefix('torch.')}: {why}",
        "forward": "no transformer",
        "attention": "none",
        "threads": f"{torch.get_num_threads()} of torch; OMP_NUM_THREADS or torch.set_num_threads changes it",
        "batches": f"{default_batch_tokens(device)} tokens at most, texts of similar length; batch_tokens= changes it",
        "versions": ", ".join(f"{name} {number}" for name, number in versions().items()),
    }
    model.encode("a", prompt="")  # Backends are tried at their first use.
    for module in model:
        if isinstance(module, Transformer):
            facts.update(_transformer(module, dtype, device))
    return facts


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


def _transformer(module: Transformer, dtype: torch.dtype, device: torch.device) -> dict[str, str]:
    """How a transformer runs, and why faster ways do not."""
    from sbert.backends.state import explain

    network = module.materialize()  # As for training.
    chosen, reasons = explain(network, dtype)
    attention, training = _attention(module, chosen.startswith("fused"), dtype, device)
    refusals = {f"no {name}": reason for name, reason in reasons.items()}
    return {"forward": chosen, "attention": attention, **refusals, **training}


def _attention(
    module: Transformer, fused: bool, dtype: torch.dtype, device: torch.device
) -> tuple[str, dict[str, str]]:
    """How attention is computed in ``encode``, and why training does without torch's kernel, if it was tried."""
    import torch

    from sbert.backends.attention import has_kernel, kernel_failure

    if not fused and module.padding_reason is not None:
        reason = module.padding_reason
        return f"that of the Hugging Face module, on padded batches of similar length: {reason}", {}
    config = module.network.config
    dim = int(getattr(config, "head_dim", None) or module.dim // config.num_attention_heads)
    half = torch.bfloat16 if dtype == torch.float32 else dtype
    has_kernel(half, device, dim, training=True)  # It is tried at its first use.
    failure = kernel_failure(half, device, dim, training=True)
    training = {} if failure is None else {"no training kernel": f"torch's _flash_attention_forward {failure}"}
    if has_kernel(dtype, device, dim):
        return "without padding, one kernel for texts of any length (torch's varlen_attn)", training
    failure = kernel_failure(dtype, device, dim)
    because = "" if failure is None else f", as torch's kernel for any length {failure}"
    return f"without padding, one call of scaled_dot_product_attention per length{because}", training
