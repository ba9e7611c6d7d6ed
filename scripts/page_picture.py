"""Takes docs/page.png: the page at `/` in Chromium while `blink serve demo` answers others as well.

python scripts/page_picture.py [FILE]        needs playwright and chromium (Debian: apt-get install
chromium)
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

from playwright.sync_api import sync_playwright
from served_demo import ROOT, load, served_demo

SIZE = {"width": 1400, "height": 800}
OTHERS = ("--concurrency=5", "--input=160", "--output=96", "--duration=40", "--warmup=0")
QUESTIONS = ("Hello, who are you?", "Tell me a story about a fox named Mia.")


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
    with served_demo() as url, load(url, *OTHERS):
        take(url, path)


if __name__ == "__main__":
    main()
