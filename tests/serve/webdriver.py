"""webdriver.py - drives Chromium through chromedriver: just what the test of the live page needs."""
import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
         "--force-color-profile=srgb", "--no-first-run", "--disable-extensions", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--lang=en-US"]


def find():
    """The driver and the browser; None where one is missing."""
    driver = shutil.which("chromedriver")
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    return (driver, browser) if driver and browser else None


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Browser:
    def __init__(self, scratch):
        driver, browser = find()
        port = free_port()
        self.root = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen([driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.await_driver()
        options = {"binary": browser, "args": FLAGS + [f"--user-data-dir={scratch}/profile", "--window-size=1360,900"]}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        answer = self.call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.session = "/session/" + answer["sessionId"]

    def await_driver(self):
        end = time.monotonic() + 60
        while True:
            try:
                self.call("GET", "/status")
                return
            except (OSError, urllib.error.URLError):
                if time.monotonic() > end:
                    raise
                time.sleep(.1)

    def call(self, method, path, body=None):
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.root + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{path}: {error.read().decode()[:600]}") from None

    def open(self, address):
        self.call("POST", self.session + "/url", {"url": address})

    def script(self, text, *args):
        """The value of a JavaScript expression."""
        return self.call("POST", self.session + "/execute/sync", {"script": "return " + text, "args": list(args)})

    def command(self, name, **params):
        """A command of the DevTools protocol."""
        return self.call("POST", self.session + "/goog/cdp/execute", {"cmd": name, "params": params})

    def errors(self):
        """Errors in the console, since the last call."""
        log = self.call("POST", self.session + "/se/log", {"type": "browser"})
        return [entry["message"] for entry in log if entry["level"] == "SEVERE"]

    def colors(self, scheme):
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def size(self, width, height, phone=False):
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height,
                     deviceScaleFactor=2 if phone else 1, mobile=phone)

    def picture(self, path, whole=False):
        data = self.command("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def close(self):
        try:
            self.call("DELETE", self.session)
        except (OSError, RuntimeError, AttributeError):
            pass
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
