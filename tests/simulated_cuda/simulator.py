"""A simulated CUDA device: its tensors say ``cuda:0``, compute on the CPU, and obey the rules of a GPU.

``device.cpp`` holds the device: memory, operations and rules. This file compiles it, and gives
``torch.cuda`` streams and events that belong to it (or ``torch.xpu``, ``torch.mps`` what they have)::

    with simulated(capability=(8, 0)) as gpu:
        model = SentenceEncoder(device="cuda")
        model.encode(texts)
        assert gpu.count("kernel _flash_attention_forward") == 6
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils import cpp_extension

Capability = tuple[int, int]
SOURCE = Path(__file__).parent / "device.cpp"
_lock = threading.Lock()


def compiled(kind: str = "cuda") -> Path:
    """The library for a type of devices, compiled once for each version of torch and of the source."""
    key = hashlib.sha256(f"{torch.__version__}{SOURCE.read_text(encoding='utf-8')}".encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"sbert-simulated-{kind}-{key}"
    library = folder / f"{kind}.so"
    if not library.exists():
        if shutil.which("g++") is None:
            pytest.skip("the simulated device is compiled with g++, which this machine does not have")
        folder.mkdir(exist_ok=True)
        root = Path(torch.__file__).parent
        made = folder / f"device-{os.getpid()}.so"
        command = ["g++", "-O1", "-std=c++20", "-fPIC", "-shared", str(SOURCE), "-o", str(made)]
        command += [
            f"-DSIMULATED={kind.upper()}",
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
            f"-L{root / 'lib'}",
        ]
        command += [f"-I{folder}" for folder in cpp_extension.include_paths()]
        command += ["-lc10", "-ltorch_cpu", "-ltorch_python"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        made.replace(library)
    return library


@cache  # The source may change while a process runs, which cannot load the device twice.
def _loaded(kind: str) -> ctypes.CDLL:
    library = compiled(kind)
    torch.ops.load_library(str(library))
    made = ctypes.CDLL(str(library))
    made.simulated_new_event.restype = ctypes.c_void_p
    for name in ("stream", "new_stream", "used", "most_used"):
        getattr(made, f"simulated_{name}").restype = ctypes.c_long
    made.simulated_report.restype = ctypes.c_char_p
    return made


class Simulator:
    """What the simulated devices have done, and what they are to do."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def call(self, name: str, *arguments: Any) -> Any:
        kinds = {int: ctypes.c_long, ctypes.c_void_p: ctypes.c_void_p}
        return getattr(self._library, f"simulated_{name}")(*(kinds.get(type(a), lambda x: x)(a) for a in arguments))

    def count(self, name: str) -> int:
        """How often something happened, such as ``kernel mm``."""
        return self.counts().get(name, 0)

    def counts(self) -> dict[str, int]:
        """Every count by its name."""
        lines = self._library.simulated_report().decode().splitlines()
        return {name: int(number) for name, _, number in (line.rpartition("\t") for line in lines)}

    def problems(self) -> list[str]:
        """What would have been undefined on a GPU."""
        return [name[1:] for name in self.counts() if name.startswith("!")]

    def memory(self, limit: int = -1, failing: int = -1) -> None:
        """Refuse memory beyond a limit in bytes, or the allocation of this number from now on."""
        self._library.simulated_memory(ctypes.c_long(limit), ctypes.c_long(failing))


class RealGpu:
    """In the place of the simulated devices, where there is one that is not simulated."""

    def __getattr__(self, name: str) -> Any:
        pytest.skip(f"only simulated devices have {name}()")


@contextmanager
def _real(capability: Capability | list[Capability]) -> Iterator[Any]:
    wanted = capability if isinstance(capability, list) else [capability]
    # The same side of 8.0, from which on torch has its kernel for rows of any length.
    own = [torch.cuda.get_device_capability(index) >= (8, 0) for index in range(torch.cuda.device_count())]
    if own[: len(wanted)] != [each >= (8, 0) for each in wanted]:
        pytest.skip(f"needs GPUs of capability {wanted}")
    try:
        yield RealGpu()
    except (RuntimeError, ValueError) as error:
        if "invalid device ordinal" in str(error):
            pytest.skip(str(error))
        raise


def nothing() -> Callable[..., None]:
    """A function that does nothing, each time another one: torch's compiler knows functions by their identity."""
    return lambda *args, **options: None


def _patches(library: ctypes.CDLL, capabilities: list[Capability], kind: str) -> dict[str, Any]:
    """What ``torch.cuda`` has while the devices are simulated."""
    long, devices = ctypes.c_long, len(capabilities)

    def _index(device: Any) -> int:
        index = device if isinstance(device, int) else None if device is None else torch.device(device).index
        return int(library.simulated_device()) if index is None else index

    class Stream:
        def __init__(self, device: Any = None, priority: int = 0, stream_id: int | None = None) -> None:
            self.device = torch.device(kind, _index(device))
            self.stream_id = library.simulated_new_stream() if stream_id is None else stream_id

        def wait_stream(self, stream: Stream) -> None:
            event = Event()
            event.record(stream)
            library.simulated_wait_event(event.handle, self.device.index, long(self.stream_id))

    class Event:
        def __init__(self) -> None:
            self.handle = ctypes.c_void_p(library.simulated_new_event())

        def record(self, stream: Stream | None = None) -> None:
            stream = stream or current_stream()
            library.simulated_record(self.handle, stream.device.index, long(stream.stream_id))

        def synchronize(self) -> None:
            library.simulated_synchronize_event(self.handle)

        def __del__(self) -> None:
            library.simulated_free_event(self.handle)

    class use:
        def __init__(self, stream: Stream | None) -> None:
            self.stream = stream

        def __enter__(self) -> None:
            if self.stream is not None:
                self.before = (library.simulated_device(), current_stream(self.stream.device))
                library.simulated_set_device(self.stream.device.index)
                library.simulated_set_stream(self.stream.device.index, long(self.stream.stream_id))

        def __exit__(self, *error: Any) -> None:
            if self.stream is not None:
                device, stream = self.before
                library.simulated_set_stream(stream.device.index, long(stream.stream_id))
                library.simulated_set_device(device)

    def current_stream(device: Any = None) -> Stream:
        index = _index(device)
        return Stream(torch.device(kind, index), stream_id=library.simulated_stream(index))

    def exchange(index: int) -> int:
        before = library.simulated_device()
        if index >= 0:
            library.simulated_set_device(index)
        return before

    def synchronize(device: Any = None) -> None:
        library.simulated_synchronize(_index(device), long(-1))

    generators = tuple(torch.Generator() for _ in range(devices))
    for number, generator in enumerate(generators):
        getattr(torch.ops, f"simulated_{kind.upper()}").set_generator(generator, number)

    def properties(device: Any = None) -> SimpleNamespace:
        major, minor = capabilities[_index(device)]
        size = {"total_memory": 80 << 30, "multi_processor_count": 132, "has_fp64": True}
        return SimpleNamespace(name="Simulated", major=major, minor=minor, **size)

    return {
        "Stream": Stream, "Event": Event, "stream": use,
        "current_stream": current_stream,
        "default_stream": lambda device=None: Stream(torch.device(kind, _index(device)), stream_id=0),
        "set_stream": lambda stream: use(stream).__enter__(), "synchronize": synchronize,
        "set_device": lambda device: library.simulated_set_device(_index(device)),
        "current_device": lambda: library.simulated_device(), "_exchange_device": exchange,
        "_maybe_exchange_device": lambda index: exchange(index),
        "device_count": lambda: devices, "is_available": lambda: True, "is_initialized": lambda: True,
        "_is_compiled": lambda: True, "_lazy_init": nothing(), "init": nothing(), "empty_cache": nothing(),
        "default_generators": generators, "_get_default_mps_generator": lambda: generators[0],
        "manual_seed": lambda seed: generators[_index(None)].manual_seed(seed),
        "manual_seed_all": lambda seed: [generator.manual_seed(seed) for generator in generators],
        "get_device_properties": properties, "get_device_name": lambda device=None: "Simulated",
        "get_device_capability": lambda device=None: capabilities[_index(device)],
        "is_bf16_supported": lambda including_emulation=True: capabilities[_index(None)][0] >= 8 or including_emulation,
        "is_current_stream_capturing": lambda: False,
        "get_arch_list": lambda: [f"sm_{major}{minor}" for major, minor in capabilities],
        "memory_allocated": lambda device=None: library.simulated_used(),
        "max_memory_allocated": lambda device=None: library.simulated_most_used(),
        "reset_peak_memory_stats": nothing(), "mem_get_info": lambda device=None: (80 << 30, 80 << 30),
    }  # fmt: skip


@contextmanager
def without_fusion() -> Iterator[None]:
    """TorchScript, in which transformers has functions, without kernels that a compiler for CUDA would have to make."""
    before = torch._C._jit_can_fuse_on_gpu(), torch._C._jit_texpr_fuser_enabled()
    torch._C._jit_override_can_fuse_on_gpu(False)
    torch._C._jit_set_texpr_fuser_enabled(False)
    try:
        yield
    finally:
        torch._C._jit_override_can_fuse_on_gpu(before[0])
        torch._C._jit_set_texpr_fuser_enabled(before[1])


@contextmanager
def simulated(
    capability: Capability | list[Capability] = (9, 0), devices: int = 2, kind: str = "cuda"
) -> Iterator[Any]:
    """CUDA devices of one compute capability, or of one each; or devices of the kind ``"xpu"`` or ``"mps"``.

    Where there is a CUDA device, nothing is simulated: what compares vectors runs there, and the test is skipped where
    it counts, or asks for a device that is not there.

    Raises:
        AssertionError: At the end, if something was done whose result would be undefined on a GPU.
    """
    if kind == "cuda" and torch.cuda.is_available():
        with _real(capability) as gpu:
            yield gpu
        return
    with _lock, without_fusion():
        library, module = _loaded(kind), getattr(torch, kind)
        capabilities = capability if isinstance(capability, list) else [capability] * devices
        library.simulated_reset(len(capabilities))
        library.simulated_start()
        missing = object()
        patches = _patches(library, capabilities, kind)
        before = {name: getattr(module, name, missing) for name in patches}
        if kind != "cuda":  # What it does not have, it must not be asked for.
            before = {name: value for name, value in before.items() if value is not missing}
        for name in before:
            setattr(module, name, patches[name])
        # torch's custom operations look for this.
        setattr(torch._C, f"_{kind}_getCurrentRawStream", lambda device: library.simulated_stream(device))
        simulator, has_flash = Simulator(library), torch.backends.cuda.is_flash_attention_available
        torch.backends.cuda.is_flash_attention_available = lambda: True
        try:
            yield simulator
            module.synchronize()
            assert not simulator.problems(), simulator.problems()
        finally:
            for name, value in before.items():
                delattr(module, name) if value is missing else setattr(module, name, value)
            torch.backends.cuda.is_flash_attention_available = has_flash
            library.simulated_stop()
