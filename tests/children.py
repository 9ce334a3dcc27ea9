"""Processes that tests start: forks of the test itself, and of a server that has imported the library.

A new interpreter takes seconds to import torch, a fork none: tests start one only where it shows something more.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer
from tempfile import TemporaryFile, mkdtemp
from types import ModuleType
from typing import Any

# Asks a server from a program of any kind; its arguments are those of `python`.
CLIENT = """
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect(sys.argv[1])
    request = {"words": sys.argv[2:], "folder": os.getcwd(), "environment": None}
    socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
    sys.exit(int(server.recv(9)))
"""


def in_child(work: Callable[[], object]) -> int:
    """The id of a forked process that does this; it ends with 0 if that went well."""
    child = os.fork()
    if not child:
        signal.alarm(300)  # A fork of a process with threads can wait for ever: then the test fails, with its name.
        sys.modules["torch"].set_num_threads(1)  # Threads of OpenMP do not outlive a fork.
        try:
            work()
            os._exit(0)
        except KeyboardInterrupt:
            os._exit(130)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return child


def run_in_child(work: Callable[[], object]) -> int:
    """Run in a forked process; its wait status."""
    return os.waitpid(in_child(work), 0)[1]


class Server:
    """A process that has imported the library, and runs each command in a fork.

    Args:
        environment: Its variables, if not those of this process.
    """

    def __init__(self, environment: dict[str, str] | None = None) -> None:
        self._owner = os.getpid()
        self.address = f"{mkdtemp()}/socket"  # A short name, as sockets need.
        command = [sys.executable, "-m", "tests.children", self.address]
        self._process = subprocess.Popen(
            command, env=environment, cwd=Path(__file__).parent.parent, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"
        atexit.register(self.close)

    def run(
        self, *words: object, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """What ``python *words`` does: ``-c code`` or ``-m module``, and arguments."""
        request = {"words": list(map(str, words)), "folder": str(cwd or Path.cwd()), "environment": env}
        with TemporaryFile("w+") as out, TemporaryFile("w+") as error, socket.socket(socket.AF_UNIX) as server:
            server.connect(self.address)
            with open(os.devnull) as nothing:
                files = [nothing.fileno(), out.fileno(), error.fileno()]
                socket.send_fds(server, [json.dumps(request).encode()], files)
            code = int(server.recv(9))
            out.seek(0)
            error.seek(0)
            return subprocess.CompletedProcess(request["words"], code, out.read(), error.read())

    def close(self) -> None:
        """End it; in a fork of the process that started it, nothing: it ends with that one."""
        if os.getpid() == self._owner:
            with self._process:
                self._process.kill()
            shutil.rmtree(Path(self.address).parent, ignore_errors=True)


@cache
def server(process: int) -> Server:
    """That of a process."""
    return Server()


def python(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """What ``python *words`` does, without its imports: see ``Server.run``."""
    return server(os.getpid()).run(*words, **options)


class _Command(StreamRequestHandler):
    def handle(self) -> None:
        request, files, *_ = socket.recv_fds(self.request, 1 << 20, 3)
        child = os.fork()
        if not child:
            self._run(files, **json.loads(request))
        for file in files:
            os.close(file)
        self.wfile.write(b"%d" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    def _run(self, files: list[int], words: list[str], folder: str, environment: dict[str, str] | None) -> None:
        code: Any = 1
        try:
            signal.alarm(600)
            for number, file in enumerate(files):
                os.dup2(file, number)
            os.chdir(folder)
            os.environ.update(environment or {})
            kind, name, *arguments = words
            sys.argv = [kind, *arguments]
            if kind == "-c":
                sys.modules["__main__"] = ModuleType("__main__")
                exec(compile(name, "<string>", "exec"), vars(sys.modules["__main__"]))
            else:
                runpy.run_module(name, run_name="__main__", alter_sys=True)
            code = 0
        except SystemExit as error:
            code = error.code
        except BaseException:
            traceback.print_exc()
        finally:
            if isinstance(code, str):
                print(code, file=sys.stderr)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def main() -> None:
    import gc

    import torch

    import sbert.cli.main
    import sbert.encoder  # noqa: F401

    torch.set_num_threads(1)  # Threads of OpenMP do not outlive a fork.
    gc.freeze()
    with ThreadingUnixStreamServer(sys.argv[1], _Command) as commands:
        print("ready", flush=True)
        commands.serve_forever()


if __name__ == "__main__":
    main()
