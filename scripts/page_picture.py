"""Takes docs/page.png: the page at `/` in Chromium while `blink serve demo` answers others as well.

python scripts/page_picture.py [FILE]        needs playwright and chromium (Debian: apt-get install
chromium)
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
SIZE = {"width": 1400, "height": 800}
READY_S = 120.0
OTHERS = ("--concurrency=5", "--input=160", "--output=96", "--duration=40", "--warmup=0")
QUESTIONS = ("Hello, who are you?", "Tell me a story about a fox named Mia.")
BLINK = [sys.executable, "-m", "blink"]


def wait_for_address(log: Path) -> str:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if found := re.search(r"ready after .* at (http://\S+)/v1", log.read_text()):
            return found[1]
        time.sleep(0.1)
    raise SystemExit(f"the server did not start:\n{log.read_text()}")


def take(url: str, path: Path) -> None:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE)
        page.goto(url)
        for number, question in enumerate(QUESTIONS):
            page.fill("#question", question)
            page.press("#question", "Enter")
            page.locator(".figures").nth(number).wait_for()
            time.sleep(8)
        page.screenshot(path=path)
        browser.close()


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "page.png"
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "log"
        with log.open("w") as output:
            server = subprocess.Popen([*BLINK, "serve", "demo", "--port=0"], cwd=ROOT, stderr=output)
        url = wait_for_address(log)
        others = subprocess.Popen(
            [*BLINK, "bench", "serve", url, *OTHERS],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            take(url, path)
        finally:
            others.terminate()
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
