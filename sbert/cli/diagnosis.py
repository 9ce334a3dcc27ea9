"""How a model runs on this machine, in words, and why."""

from __future__ import annotations

import torch

from sbert.backends import explain, has_kernel
from sbert.encoder import SentenceEncoder
from sbert.inputs.devices import SLOW_BFLOAT16, build_hint, default_batch_tokens, inference_dtype, multiplies_bfloat16
from sbert.modules.transformer import Transformer
from sbert.saving.verification import versions


def diagnose(model: SentenceEncoder) -> dict[str, str]:
    """Explain how ``encode`` runs a model here: device, dtype, forward, attention, threads, batches, versions.

    Args:
        model: The model, on the device where it will run.

    Returns:
        For each of these, the selected value and the reason; and why each backend that is not used cannot run.

    Example:
        >>> from sbert import SentenceEncoder
        >>> from sbert.cli.diagnosis import diagnose
        >>> model = SentenceEncoder()
        >>> sorted(diagnose(model))
        ['attention', 'backend', 'batches', 'device', 'dtype', 'forward', 'threads', 'versions']
    """
    device = model.device
    dtype, why = inference_dtype(model.dtype, model.automatic_dtype, device)
    tokens = default_batch_tokens(device, dtype)
    facts = {
        "device": _describe_device(device),
        "dtype": f"{str(dtype).removeprefix('torch.')}: {why}",
        "forward": "no transformer",
        "attention": "none",
        "threads": f"{torch.get_num_threads()} of torch; OMP_NUM_THREADS or torch.set_num_threads changes it",
        "batches": f"{tokens} tokens at most, texts of similar length; batch_tokens= changes it",
        "versions": ", ".join(f"{name} {number}" for name, number in versions().items()),
    }
    model.encode("a", prompt="")  # Backends are tried at their first use.
    for module in model:
        if isinstance(module, Transformer) and device in module.plain_devices:
            facts["forward"] = "plain: the Hugging Face module alone, as the check of its first use has warned"
        elif isinstance(module, Transformer) and module.backend == "plain":
            facts["forward"] = "plain: the Hugging Face module alone; leave out backend= and SBERT_BACKEND to undo it"
        elif isinstance(module, Transformer):
            facts["forward"], reasons = explain(module.materialize(), dtype, module.engine)  # Materialized to train.
            facts |= {f"no {name}": reason for name, reason in reasons.items()}
            # An engine is not chosen by itself: it takes packages, a file as large as the weights, and time to load.
            others = "backend='onnx' or 'openvino' encodes single texts faster on a CPU, once installed"
            facts["backend"] = f"{module.engine.name if module.engine else 'auto'}; {others}; 'plain' is the module"
            if "in int8" in facts["forward"]:
                facts["dtype"] = f"int8, whose similarities have a rank correlation of {model.check_int8():.3f}"
            facts |= _explain_attention(module, not facts["forward"].startswith("plain"), dtype)
    return facts


def _describe_device(device: torch.device) -> str:
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        return f"{device}: {torch.cuda.get_device_name(device)}, compute capability {major}.{minor}"
    if device.type == "cpu":
        bfloat16 = "bfloat16 is fast" if multiplies_bfloat16() else SLOW_BFLOAT16
        absent = "" if torch.accelerator.is_available() else f"; {build_hint() or 'no accelerator was found'}"
        return f"cpu: {torch.backends.cpu.get_cpu_capability()}, {bfloat16}{absent}"
    return str(device)


def _explain_attention(module: Transformer, fused: bool, dtype: torch.dtype) -> dict[str, str]:
    """How attention is computed in ``encode``."""
    if not fused and module.padding_reason is not None:
        means = "that of the Hugging Face module, on padded batches of similar length"
        return {"attention": f"{means}: {module.padding_reason}"}
    config, device = module.network.config, module.network.device
    dim = int(getattr(config, "head_dim", None) or module.dim // config.num_attention_heads)
    if has_kernel(dtype, device, dim):
        return {"attention": "without padding, one kernel for texts of any length (torch's varlen_attn)"}
    how = "padded, in one call" if device.type == "cuda" else "without padding, in one call per length"
    return {"attention": f"{how} of scaled_dot_product_attention"}
