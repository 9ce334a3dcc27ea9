"""How much memory a piece of code takes, whatever allocates it: NumPy, torch, or a map of a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.children import python

STATUS = Path("/proc/self/status")

_AROUND = """
def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))

{before}
resident = status("VmRSS")
{code}
print(status("VmHWM") - resident)
"""


def grown(before: str, code: str) -> int:
    """By how many bytes a process grows at most while it runs the code.

    Args:
        before: What it runs before; something like the code on little data, since what is done for the first time
            takes memory that is kept.
        code: What is measured.
    """
    if not STATUS.exists():
        pytest.skip("the system does not say how much of a process is in memory")
    result = python("-c", _AROUND.format(before=before, code=code))
    assert result.returncode == 0, result.stderr
    return int(result.stdout.split()[-1])
