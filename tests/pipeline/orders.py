"""Orders for workers of a pool: functions of the model that its processes can import."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any


def pid(model: Any, seconds: float = 0.0) -> int:
    """The worker's process, after a while."""
    time.sleep(seconds)
    return os.getpid()


def slow_for_one(model: Any, path: str) -> int:
    """The worker's process; the first worker to come takes a second."""
    try:
        Path(path).touch(exist_ok=False)
        time.sleep(1)
    except FileExistsError:
        time.sleep(0.01)
    return os.getpid()


def die(model: Any, path: str = "", deaths: int = 1 << 30) -> int:
    """The end of the worker as by a lack of memory, the first ``deaths`` times."""
    if path:
        with open(path, "ab") as file:
            file.write(b"1")
        if os.path.getsize(path) > deaths:
            return os.getpid()
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def private_bytes_of(model: Any, path: str = "/proc/self/smaps_rollup") -> int:
    """Memory of the worker that it shares with no process."""
    lines = Path(path).read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_"))


def threads(model: Any) -> int:
    """Number of threads of the worker."""
    import torch

    return torch.get_num_threads()


def not_picklable(_model: Any) -> Any:
    return lambda: None
