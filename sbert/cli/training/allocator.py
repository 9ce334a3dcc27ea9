"""The memory allocator of glibc, told to keep the memory that a training step frees for the next one."""

from __future__ import annotations

import ctypes
import os
import sys

# Parameters of mallopt(3).
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4


def keep_freed_memory() -> bool:
    """Keep freed memory in the process, and take none by mmap; return whether glibc does so.

    By default, each large tensor is a mapping of its own that is given back when it is freed, so the kernel clears its
    pages again in every step. MALLOC_ variables that the user has set are left as they are.

    References:
        mallopt(3), https://man7.org/linux/man-pages/man3/mallopt.3.html

    Example:
        >>> keep_freed_memory() in (True, False)
        True
    """
    if not sys.platform.startswith("linux") or any(name.startswith("MALLOC_") for name in os.environ):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_MMAP_MAX, 0) and mallopt(_TRIM_THRESHOLD, 2**31 - 1))
