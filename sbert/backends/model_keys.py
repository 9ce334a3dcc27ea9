"""By what measurements of a model on a GPU are stored: what its times depend on, and samples of its weights."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import Tensor

from sbert.backends.architectures import POSITION_BIAS, Backbone, describe


def shape_of(network: Any, dtype: torch.dtype) -> list[object]:
    """All that times depend on: GPU, versions, dtype, and shapes of the model."""
    device, backbone = network.device, backbone_of(network)
    weights = [[*weight.shape, str(weight.dtype)] for weight in _weights(network)]
    model = [backbone.heads, *backbone.activation.pointwise, digest(weights)]
    versions = [str(torch.__version__), str(torch.version.cuda)]
    for package in ("sbert", "triton"):
        with suppress(PackageNotFoundError):  # Where it runs from its source alone, or is not installed.
            versions.append(version(package))
    gpu = [torch.cuda.get_device_name(device), *torch.cuda.get_device_capability(device)]
    return [*gpu, *versions, str(dtype), *model]


def backbone_of(network: Any) -> Backbone:
    """The layers of a network that the fused forward supports."""
    backbone = describe(network, known={POSITION_BIAS})
    if isinstance(backbone, str):
        raise ValueError(backbone)
    return backbone


def _weights(network: Any) -> list[Tensor]:
    """The weights in use; others, such as those of a pooler, may be random in each process."""
    return [weight.detach() for module in backbone_of(network).modules() for weight in module.parameters()]


def fingerprint(network: Any) -> str:
    """A digest of samples of all weights."""
    samples = [weight.reshape(-1)[:: max(1, weight.numel() // 16)][:16] for weight in _weights(network)]
    return digest(torch.cat(samples).double().tolist())


def digest(value: object) -> str:
    """A name for a value of JSON."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]
