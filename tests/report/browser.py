"""Headless Chromium over its debugging pipe: no driver, no port, no Python package.

Every command is a JSON object that ends in a zero byte, written to the browser's file descriptor 3; answers and events
come from its file descriptor 4 (Chrome DevTools Protocol).
"""

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--disable-domain-reliability",
    "--disable-features=OptimizationHints,MediaRouter,Translate",
    "--metrics-recording-only",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
SECONDS = 120


class Browser:
    """One page of one browser, which keeps what the page said and what it asked the network for.

    Attributes:
      console: errors, warnings and exceptions of the page.
      requests: addresses that it asked for, its own left out; data: addresses too.
    """

    def __init__(self, profile: Path):
        assert CHROMIUM is not None
        read_commands, self._to = os.pipe()
        self._from, write_answers = os.pipe()
        # The shell moves the pipes to 3 and 4, where Chromium looks for them.
        script = f'exec "$0" "$@" 3<&{read_commands} 4>&{write_answers}'
        arguments = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._log = open(profile.with_suffix(".log"), "wb")  # noqa: SIM115
        self._process = subprocess.Popen(
            ["bash", "-c", script, *arguments],
            pass_fds=(read_commands, write_answers),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        os.close(read_commands)
        os.close(write_answers)
        self._buffer = b""
        self._number = 0
        self.console: list[str] = []
        self.requests: list[str] = []
        self._events: list[dict] = []
        target = self._send("Target.createTarget", {"url": "about:blank"}, session=None)["targetId"]
        attached = self._send("Target.attachToTarget", {"targetId": target, "flatten": True}, session=None)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._send(f"{domain}.enable")

    def open(self, page: Path, width: int, height: int = 900, dark: bool = False, phone: bool = False) -> None:
        """Shows a file in a window of `width` x `height` CSS pixels and waits until it has loaded."""
        self._send(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._send("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.console.clear()
        self.requests.clear()
        self._events.clear()
        self._send("Page.navigate", {"url": page.resolve().as_uri()})
        self._wait(lambda: any(event["method"] == "Page.loadEventFired" for event in self._events))
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression; promises are awaited."""
        options = {"expression": script, "awaitPromise": True, "returnByValue": True}
        result = self._send("Runtime.evaluate", options)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def screenshot(self, path: Path, top: float = 0, height: float | None = None) -> Path:
        """A PNG of the page, `top` to `top + height` CSS pixels of it; None: to its end."""
        size = self.run("({width: innerWidth, height: document.documentElement.scrollHeight})")
        clip = {"x": 0, "y": top, "width": size["width"], "height": height or size["height"] - top, "scale": 1}
        image = self._send("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
        path.write_bytes(base64.b64decode(image["data"]))
        return path

    def close(self) -> None:
        """Ends the browser and its processes."""
        os.close(self._to)
        os.close(self._from)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)  # the session of its own that __init__ gave it
            self._process.wait(10)
        self._log.close()

    def _send(self, method: str, parameters: dict | None = None, session: str | None = "") -> dict:
        self._number += 1
        message: dict = {"id": self._number, "method": method, "params": parameters or {}}
        if session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        answers: list[dict] = []
        self._wait(lambda: bool(answers), answers, self._number)
        assert "error" not in answers[0], (method, answers[0]["error"])
        return answers[0]["result"]

    def _wait(self, done, answers: list[dict] | None = None, number: int = 0) -> None:
        deadline = time.monotonic() + SECONDS
        while not done():
            ready, _, _ = select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"Chromium did not answer within {SECONDS} s; its log is {self._log.name}"
            data = os.read(self._from, 1 << 20)
            assert data, f"Chromium has ended; its log is {self._log.name}"
            *messages, self._buffer = (self._buffer + data).split(b"\0")
            for message in map(json.loads, messages):
                if answers is not None and message.get("id") == number:
                    answers.append(message)
                elif "method" in message:
                    self._note(message)

    def _note(self, event: dict) -> None:
        self._events.append(event)
        method, parameters = event["method"], event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.console.append(str(parameters["exceptionDetails"].get("text")))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.console.append(str([argument.get("value") for argument in parameters["args"]]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.console.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent" and parameters.get("type") != "Document":
            self.requests.append(parameters["request"]["url"][:200])
