"""Chromium without a window, led through the pipe of its DevTools: what a reader of a page would see."""

import base64
import contextlib
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PROGRAM = next(filter(None, map(shutil.which, NAMES)), None)
SECONDS = 60
TROUBLE = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Network.loadingFailed")


class Browser:
    """One page of a browser.

    Attributes:
        events: what the browser has told about the page that is open, by and by.
    """

    def __init__(self, commands, answers):
        self._commands, self._answers = commands, answers
        self._numbers, self._left, self._session = itertools.count(1), b"", {}
        self.events = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self._ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")

    def open(self, path, *, width, height=900, scheme="light"):
        """Open a file as a screen of this width shows it, and return when it is loaded."""
        self._ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=True
        )
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._ask("Emulation.setEmulatedMedia", features=[feature])
        self.events.clear()
        self._ask("Page.navigate", url=path.as_uri())
        while not self._told("Page.loadEventFired"):
            self._read(time.monotonic() + SECONDS)

    def trouble(self):
        """Return what would stand in the console, and what could not be loaded."""
        return [event for event in self.events if event["method"] in TROUBLE]

    def asked_for(self):
        """Return the addresses that the page had the browser ask for."""
        return [event["params"]["request"]["url"] for event in self._told("Network.requestWillBeSent")]

    def evaluate(self, expression):
        """Return what JavaScript gives in the page."""
        found = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def picture(self, path):
        """Take a picture of the whole page."""
        found = self._ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def _told(self, method):
        return [event for event in self.events if event["method"] == method]

    def _ask(self, method, **params):
        number = next(self._numbers)
        command = {"id": number, "method": method, "params": params, **self._session}
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        until = time.monotonic() + SECONDS
        while (answer := self._read(until)).get("id") != number:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def _read(self, until):
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._answers], [], [], max(0, until - time.monotonic()))
            assert ready, f"the browser was silent for {SECONDS} s"
            found = os.read(self._answers, 1 << 20)
            assert found, "the browser has ended"
            self._left += found
        line, _, self._left = self._left.partition(b"\0")
        message = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message


@contextlib.contextmanager
def browser(directory):
    """Start a browser whose profile is in a directory, and end it."""
    (its_input, commands), (answers, its_output) = map(_high, os.pipe()), map(_high, os.pipe())
    # The browser reads from descriptor 3 and writes to 4, which a shell can give it and `pass_fds` cannot.
    line = f'exec "$0" "$@" 3<&{its_input} 4>&{its_output}'
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
               f"--user-data-dir={directory}", "--remote-debugging-pipe", "about:blank")  # fmt: skip
    process = subprocess.Popen(
        ["/bin/bash", "-c", line, PROGRAM, *options],
        pass_fds=(its_input, its_output),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(its_input)
    os.close(its_output)
    try:
        yield Browser(commands, answers)
    finally:
        os.close(commands)  # which ends it
        os.close(answers)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _high(descriptor):
    """Move a descriptor beyond those that the browser's ends take."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return moved
