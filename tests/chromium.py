"""A headless Chromium to look at pages with, spoken to in the DevTools protocol over two pipes."""

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
LIMIT = 30.0
"""Seconds that any answer may take: far more than it does, so that only a browser that hangs is given up."""

FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-breakpad",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--lang=en-GB",
]

KEYS = {"Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


def find() -> str | None:
    """The path of a Chromium on this machine."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One browser process with its profile in a folder of its own; `close` leaves nothing of it behind."""

    def __init__(self, profile: Path):
        program = find()
        if program is None:
            raise FileNotFoundError(f"no Chromium: none of {', '.join(NAMES)} is on the path")
        profile.mkdir(parents=True, exist_ok=True)
        self._events: list[dict] = []
        self._buffer, self._number = b"", 0
        # The browser reads commands from its descriptor 3 and writes answers to 4. Ours are moved well above these
        # first, so that copying one of them there cannot overwrite the other.
        ends = [self._lift(end) for pair in (os.pipe(), os.pipe()) for end in pair]
        commands, self._write, self._read, answers = ends
        environment = os.environ | {name: str(profile) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")}
        log = str(profile / "stderr.txt")
        try:
            self._process = os.posix_spawn(
                program,
                [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
                environment,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, commands, 3),
                    (os.POSIX_SPAWN_DUP2, answers, 4),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 2, log, os.O_WRONLY | os.O_CREAT, 0o600),
                ],
                setpgroup=0,  # a group of its own, which is ended as a whole
            )
        except BaseException:
            os.close(self._write)
            os.close(self._read)
            raise
        finally:
            os.close(commands)
            os.close(answers)

    @staticmethod
    def _lift(descriptor: int) -> int:
        lifted = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
        os.close(descriptor)
        return lifted

    def call(self, method: str, session: str | None = None, **parameters) -> dict:
        """The answer to one command."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        os.write(self._write, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        deadline = time.monotonic() + LIMIT
        while (answer := self._receive(deadline, method)).get("id") != self._number:
            if "method" in answer:
                self._events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def events(self, session: str, *methods: str) -> list[dict]:
        """Parameters of what a page has reported so far."""
        return [e["params"] for e in self._events if e.get("sessionId") == session and e["method"] in methods]

    def wait(self, session: str, method: str) -> None:
        """Until a page reports something that it has not reported before."""
        deadline = time.monotonic() + LIMIT
        while not self.events(session, method):
            self._events.append(self._receive(deadline, method))

    def forget(self, session: str) -> None:
        self._events = [e for e in self._events if e.get("sessionId") != session]

    def _receive(self, deadline: float, what: str) -> dict:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(self._read, 1 << 20) if ready else None
            if not chunk:
                raise TimeoutError(f"Chromium {'ended' if ready else 'gave no answer'} while waiting for {what}")
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def page(self) -> "Page":
        """A new, empty tab."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        return Page(self, target, self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])

    def close(self) -> None:
        """End the browser and all of its processes, politely for three seconds and then by force."""
        with contextlib.suppress(OSError, RuntimeError, TimeoutError):
            self.call("Browser.close")
        os.close(self._write)
        os.close(self._read)
        deadline = time.monotonic() + 3
        while (ended := os.waitpid(self._process, os.WNOHANG)[0]) == 0 and time.monotonic() < deadline:
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):  # also what the first process has left behind
            os.killpg(self._process, signal.SIGKILL)
        if not ended:
            os.waitpid(self._process, 0)

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_) -> None:
        self.close()


class Page:
    """One tab: opens a file, runs JavaScript, moves the mouse, takes pictures, and keeps what went wrong."""

    def __init__(self, browser: Browser, target: str, session: str):
        self._browser, self._target, self._session = browser, target, session
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters) -> dict:
        return self._browser.call(method, self._session, **parameters)

    def open(self, path: Path) -> None:
        """Load a file and wait until it is there; what an earlier file has reported is forgotten."""
        self._browser.forget(self._session)
        answer = self.call("Page.navigate", url=path.resolve().as_uri())
        if "errorText" in answer:
            raise RuntimeError(f"{path}: {answer['errorText']}")
        self._browser.wait(self._session, "Page.loadEventFired")

    def evaluate(self, expression: str):
        """The value of a JavaScript expression; promises are awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(f"{details.get('exception', {}).get('description', details['text'])}\nin: {expression}")
        return answer["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait for a JavaScript condition."""
        deadline = time.monotonic() + LIMIT
        while not self.evaluate(condition):
            if time.monotonic() > deadline:
                raise TimeoutError(f"still not true: {condition}")
            time.sleep(0.02)

    def settle(self) -> None:
        """Let two frames be drawn, after which sizes and observers are up to date."""
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done())))")

    def problems(self) -> list[str]:
        """Everything the page has complained about: console errors and warnings, exceptions, the browser's log."""
        messages = [
            " ".join(str(a.get("value", a.get("description"))) for a in event["args"])
            for event in self._browser.events(self._session, "Runtime.consoleAPICalled")
            if event["type"] in ("error", "warning", "assert")
        ]
        for event in self._browser.events(self._session, "Runtime.exceptionThrown"):
            details = event["exceptionDetails"]
            messages.append(details.get("exception", {}).get("description", details["text"]))
        entries = self._browser.events(self._session, "Log.entryAdded")
        return messages + [e["entry"]["text"] for e in entries if e["entry"]["level"] in ("error", "warning")]

    def requests(self) -> list[str]:
        """The address of everything the page has asked for, itself included."""
        return [e["request"]["url"] for e in self._browser.events(self._session, "Network.requestWillBeSent")]

    def size(self, width: int, height: int, phone: bool = False) -> None:
        scale = 2 if phone else 1
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone
        )
        self.settle()

    def media(self, kind: str = "", **features: str) -> None:
        """Pretend, for example, `media("print")` or `media(prefers_color_scheme="dark")`."""
        wanted = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", media=kind, features=wanted)
        self.settle()

    def move(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str, index: int = 0) -> None:
        """Scroll to an element and press the mouse in its middle."""
        x, y = self.middle(selector, index)
        self.move(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def middle(self, selector: str, index: int = 0) -> tuple[float, float]:
        """The middle of an element, in the coordinates of the mouse, after scrolling it into view."""
        box = self.evaluate(
            f"(() => {{ const node = document.querySelectorAll({json.dumps(selector)})[{index}];"
            "node.scrollIntoView({block: 'center', behavior: 'instant'}); const b = node.getBoundingClientRect();"
            "return [b.x + b.width / 2, b.y + b.height / 2] })()"
        )
        return box[0], box[1]

    def key(self, key: str) -> None:
        """Press and release one of `KEYS` where the focus is."""
        code = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
        self.call("Input.dispatchKeyEvent", type="keyDown", **code, **({"text": "\r"} if key == "Enter" else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **code)

    def screenshot(self, path: Path, whole: bool = False) -> None:
        """What is to be seen, or the whole length of the page."""
        area = {}
        if whole:
            content = self.call("Page.getLayoutMetrics")["cssContentSize"]
            area = {"captureBeyondViewport": True, "clip": content | {"scale": 1}}
        picture = self.call("Page.captureScreenshot", format="png", **area)
        path.write_bytes(base64.b64decode(picture["data"]))

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)
