"""A headless chromium, spoken to through a pipe: what a person does to a page, and what the page says."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

# A busy machine takes long to start a browser.
SECONDS = 240.0


def find() -> str | None:
    """The browser's path, if there is one."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    return found if shutil.which("bash") else None


class Browser:
    """A page in a browser of its own. Speaks the DevTools protocol: JSON, each message ended by a zero byte.

    Args:
        program: The browser.
        profile: A folder for what it keeps.
        size: Of the window.
    """

    def __init__(self, program: str, profile: Path, size: tuple[int, int] = (1200, 800)) -> None:
        ends = [os.pipe(), os.pipe()]
        # Far from 3 and 4, which are to be the browser's own.
        theirs = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (ends[0][0], ends[1][1])]
        self._out, self._in = ends[0][1], ends[1][0]
        os.close(ends[0][0])
        os.close(ends[1][1])
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"]
        options += ["--disable-background-networking", "--force-device-scale-factor=1"]
        options += [f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}"]
        start = f'exec "$@" 3<&{theirs[0]} 4>&{theirs[1]}'
        self._process = subprocess.Popen(
            ["bash", "-c", start, "bash", program, *options, "about:blank"],
            pass_fds=theirs,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in theirs:
            os.close(end)
        self._number, self._buffer, self._session = 0, b"", ""
        self.events: list[dict[str, Any]] = []
        targets = self.send("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.send("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.resize(*size)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._out)
        os.close(self._in)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Have the browser do something, and return what it answers."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        end = time.monotonic() + SECONDS
        while b"\0" not in self._buffer:
            if not select.select([self._in], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            read = os.read(self._in, 1 << 20)
            if not read:
                raise RuntimeError("the browser has ended")
            self._buffer += read
        message, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer

    def resize(self, width: int, height: int) -> None:
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def of(self, method: str) -> list[dict[str, Any]]:
        """What the events of a kind said so far."""
        return [event["params"] for event in self.events if event.get("method") == method]

    def open(self, path: Path) -> None:
        """Load a file, and wait until it is drawn."""
        before = len(self.of("Page.loadEventFired"))
        self.send("Page.navigate", url=path.as_uri())
        end = time.monotonic() + SECONDS
        while len(self.of("Page.loadEventFired")) == before:
            if time.monotonic() > end:
                raise TimeoutError("the page does not load")
            self.events.append(self._receive())
        self.painted()

    def painted(self) -> None:
        """Wait until what was asked for is on the screen."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def run(self, script: str) -> Any:
        """The value of an expression on the page."""
        answer = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """Move, press, release or turn the wheel at a place in the window."""
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        self.mouse("mousePressed", *start, button="left", clickCount=1)
        self.mouse("mouseMoved", *end, button="left", buttons=1)
        self.mouse("mouseReleased", *end, button="left", clickCount=1)

    def click(self, x: float, y: float) -> None:
        self.drag((x, y), (x, y))

    def key(self, name: str) -> None:
        """Press a key, by the name that pages know it by."""
        text = {"Enter": "\r"}.get(name, name if len(name) == 1 else "")
        codes = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowLeft": 37}
        self.send(
            "Input.dispatchKeyEvent", type="keyDown", key=name, text=text, windowsVirtualKeyCode=codes.get(name, 0)
        )
        self.send("Input.dispatchKeyEvent", type="keyUp", key=name, windowsVirtualKeyCode=codes.get(name, 0))

    def write(self, text: str) -> None:
        """Type into what has the focus."""
        self.send("Input.insertText", text=text)
