"""Random number generators: their states, and seeds that depend on the step alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor


def get_random_state(device: torch.device) -> list[Tensor]:
    """The state of torch's generator on the host and, if there is another device, on that device."""
    states = [torch.get_rng_state()]
    if device.type != "cpu":
        module: Any = torch.get_device_module(device)
        states.append(module.get_rng_state() if device.type == "mps" else module.get_rng_state(device))
    return states


def set_random_state(states: list[Tensor], device: torch.device) -> None:
    """Restore the states that ``get_random_state`` returned."""
    torch.set_rng_state(states[0])
    for state in states[1:]:
        module: Any = torch.get_device_module(device)
        module.set_rng_state(state) if device.type == "mps" else module.set_rng_state(state, device)


@contextmanager
def preserved(device: torch.device) -> Iterator[None]:
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
        if generators:
            generators[device.index].manual_seed(number)
        else:
            module.manual_seed(number)
    np.random.seed(words[0])
    random.seed(int(words[1]))
