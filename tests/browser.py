"""Chromium without a window, spoken to in its DevTools protocol through a pair of pipes."""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions")
# The browser reads its commands from descriptor 3 and answers on 4.
LAUNCH = "import os, sys; os.dup2({0}, 3); os.dup2({1}, 4); os.execv(sys.argv[1], sys.argv[1:])"

LOADED = """
    new Promise((done) =>
        document.readyState === "complete" ? done() : addEventListener("load", done))
"""


class Browser:
    """One page; what the console said as an error is in `errors`."""

    def __init__(self, profile: Path) -> None:
        # Far above 3 and 4, so that neither end is overwritten on the way there.
        theirs_in, ours_out = _high(os.pipe())
        ours_in, theirs_out = _high(os.pipe())
        launch = LAUNCH.format(theirs_in, theirs_out)
        flags = (*FLAGS, "--remote-debugging-pipe", f"--user-data-dir={profile}")
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", launch, CHROMIUM, *flags, "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.to, self.back = os.fdopen(ours_out, "wb"), os.fdopen(ours_in, "rb")
        self.number, self.session, self.rest = 0, None, b""
        self.errors: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> dict:
        """Send a command and wait for its answer."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.to.write(json.dumps(message).encode() + b"\0")
        self.to.flush()
        while True:
            answer = self._read()
            if answer.get("id") == self.number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def show(
        self,
        path: Path,
        *,
        width: int = 1200,
        height: int = 900,
        dark: bool = False,
        motion: bool = False,
    ) -> None:
        """Open a file in a window of a size, for somebody with these wishes."""
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **screen)
        self.call("Emulation.setTouchEmulationEnabled", enabled=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "no-preference" if motion else "reduce"}
        self.call("Emulation.setEmulatedMedia", features=[scheme, still])
        self.errors.clear()
        self.call("Page.navigate", url=path.as_uri())
        self.evaluate(LOADED)
        self.settle()

    def settle(self) -> None:
        """Wait until what waits for a frame has been drawn."""
        self.evaluate(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )

    def evaluate(self, expression: str) -> object:
        """The value of a JavaScript expression in the page, awaited if it is a promise."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def page_width(self) -> int:
        """How wide the page is; wider than what was asked for, it is scrolled across.

        `innerWidth` does not tell: on a phone it grows with the page.
        """
        return self.evaluate("document.documentElement.scrollWidth")

    def brightness(self) -> float:
        """Of the ground of the page, from 0 to 255."""
        ground = self.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", ground)[:3])) / 3

    def press(self, key: str, *, shift: bool = False, alt: bool = False) -> None:
        """Press and release a key where the focus is."""
        modifiers = 8 * shift + alt
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                modifiers=modifiers,
                windowsVirtualKeyCode=VIRTUAL_KEYS[key],
            )

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Press the mouse at one place, move it, and let go at another."""
        for kind, (x, y) in (("mousePressed", start), ("mouseMoved", end), ("mouseReleased", end)):
            self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=x,
                y=y,
                button="left",
                buttons=1,
                clickCount=1,
            )

    def swipe(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """The same with a finger."""
        for kind, points in (("touchStart", [start]), ("touchMove", [end]), ("touchEnd", [])):
            touched = [{"x": x, "y": y} for x, y in points]
            self.call("Input.dispatchTouchEvent", type=kind, touchPoints=touched)

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """A picture of the page."""
        picture = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(picture["data"]))

    def close(self) -> None:
        """End the browser and wait until it is gone."""
        self.session = None
        self.call("Browser.close")
        self.process.wait(timeout=20)
        self.to.close()
        self.back.close()

    def _read(self) -> dict:
        while b"\0" not in self.rest:
            chunk = os.read(self.back.fileno(), 1 << 20)
            assert chunk, "the browser has gone"
            self.rest += chunk
        message, _, self.rest = self.rest.partition(b"\0")
        answer = json.loads(message)
        if answer.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(answer["params"]["exceptionDetails"]))
        if (
            answer.get("method") == "Log.entryAdded"
            and answer["params"]["entry"]["level"] == "error"
        ):
            self.errors.append(answer["params"]["entry"]["text"])
        return answer


VIRTUAL_KEYS = {
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
    "Tab": 9,
    "Home": 36,
    "End": 35,
    "[": 219,
    "]": 221,
}


def _high(pipe: tuple[int, int]) -> list[int]:
    import fcntl

    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 50) for end in pipe]
    for end in pipe:
        os.close(end)
    return moved
