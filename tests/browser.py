"""A headless Chromium, driven over WebDriver: plain JSON over HTTP, so that no driver library is needed."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

FLAGS = (
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1400,900",
)
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key under which WebDriver gives an element's id


def missing():
    """What is not on this machine, or an empty text."""
    wanted = {"chromedriver": ("chromedriver",), "chromium": ("chromium", "google-chrome", "chromium-browser")}
    return ", ".join(name for name, programs in wanted.items() if not any(map(shutil.which, programs)))


class Browser:
    """One window, in a profile of its own."""

    def __enter__(self):
        self._profile = tempfile.TemporaryDirectory(prefix="outrider-browser-", ignore_cleanup_errors=True)
        self._driver = subprocess.Popen(
            [shutil.which("chromedriver"), "--port=0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            process_group=0,
        )
        try:
            started = next(line for line in self._driver.stdout if "successfully on port" in line)
            port = started.split("port")[-1].strip(" .\n")
            self._url = f"http://127.0.0.1:{port}/session"
            arguments = [*FLAGS, f"--user-data-dir={self._profile.name}"]
            arguments += ["--no-sandbox"] if os.geteuid() == 0 else []
            wanted = {"browserName": "chrome", "goog:chromeOptions": {"args": arguments}}
            self._url += "/" + self._ask("POST", "", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_):
        try:
            self._ask("DELETE", "")
        finally:
            self._end()

    def _end(self):
        self._driver.terminate()
        self._driver.wait()
        self._driver.stdout.close()
        self._profile.cleanup()

    def _ask(self, method, path, body=None):
        data = None if method != "POST" else json.dumps(body or {}).encode()
        request = urllib.request.Request(self._url + path, data, {"Content-Type": "application/json"}, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310 chromedriver's
                return json.load(reply)["value"]
        except urllib.error.HTTPError as error:
            with error:
                raise LookupError(json.load(error)["value"]["message"].splitlines()[0]) from None

    def open(self, url):
        self._ask("POST", "/url", {"url": url})

    def text(self, css="body"):
        """The text that a person sees there; `LookupError` where there is no such element."""
        return self._ask("GET", f"/element/{self._find(css)}/text")

    def click(self, css):
        self._ask("POST", f"/element/{self._find(css)}/click")

    def run(self, script, *arguments):
        """What an async function of JavaScript gives."""
        call = "const done = arguments[arguments.length - 1]; (async (...arguments) => {%s})(...arguments).then(done)"
        return self._ask("POST", "/execute/async", {"script": call % script, "args": list(arguments)})

    def picture(self, path):
        Path(path).write_bytes(base64.b64decode(self._ask("GET", "/screenshot")))

    def _find(self, css):
        return self._ask("POST", "/element", {"using": "css selector", "value": css})[ELEMENT]
