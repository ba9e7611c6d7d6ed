"""Markdown as the page shows it: what its renderer makes, as HTML, in a browser under the page's policy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlparse

from nic_frontend.observe.page.document import files

PLACE = "http://page.test"  # no server: the browser gets the page's files from here
# Documents, each a list of the pieces in which it arrives; the HTML of each.
RENDER = """async (documents) => {
  const { Markdown } = await import(new URL("page/markdown/blocks.js", document.baseURI));
  return documents.map((pieces) => {
    const root = document.createElement("div"), shown = new Markdown(root);
    for (const piece of pieces) shown.write(piece);
    shown.end();
    return root.innerHTML;
  });
}"""
Render = Callable[[list[list[str]]], list[str]]


def give(route: Any) -> None:
    file = files().get(urlparse(route.request.url).path)
    if file is None:
        route.fulfill(status=404, body="{}")
    else:
        headers = {name.decode(): value.decode() for name, value in file.headers}
        route.fulfill(status=200, body=file.content, headers=headers)


@contextmanager
def renderer(browser: Any) -> Iterator[Any]:
    """The page, without a server behind it."""
    page = browser.new_page()
    page.route("**/*", give)
    page.goto(PLACE)
    yield page
    page.close()


def bare(html: str) -> str:
    """Without what is the same in every link and block of code, and in which way lines are divided."""
    html = re.sub(r' (?:title|target|rel|tabindex|aria-label|type)="[^"]*"', "", html)
    return re.sub(r"<button[^>]*>Copy</button>", "", html).replace("\n", " ")
