"""Markdown on the page: what is shown of it, however it is cut, and that nothing in it can do harm."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
from markdown_it import MarkdownIt
from rendering import RENDER, bare, renderer

pytestmark = pytest.mark.slow

SEED, N_RANDOM = 52, 2000
MARKS = ["*", "**", "***", "_", "__", "`", "``", "[", "]", "](mailto:a@b)", "(", "!", "~~", "\\", "<", "&lt;"]
WORDS = ["a", "b", " ", "c d", ".", "é", "😀"]
BEGINS = [
    "\n", "\n\n", "- ", "* ", "1. ", "2) ", "> ", "    ", "  ", "# ", "```", "~~~", "---", "|", "\r\n", "\t",
    "| a | b |\n|--|--|\n", "\n- ", "\n  - ", "\n> ", "\n```\n", "\n| x | y |", "<br>", "https://e.org/q",
    "![i](https://e.org/i.png)", "x" * 5000, "y " * 3000,
]  # fmt: skip

SHOWN = {
    "# One ##\n###### Six\n#no": "<h1>One</h1><h6>Six</h6><p>#no</p>",
    "a **b** *c* ***d*** ~~e~~ `f`": "<p>a <strong>b</strong> <em>c</em> <em><strong>d</strong></em> "
    "<del>e</del> <code>f</code></p>",
    "snake_case_name, 2 * 3 * 4, \\*no\\*": "<p>snake_case_name, 2 * 3 * 4, *no*</p>",
    "one\ntwo": "<p>one two</p>",
    "one<br>two &amp; <b>three</b>": "<p>one<br>two &amp; &lt;b&gt;three&lt;/b&gt;</p>",
    "- a\n- b\n  - c\n    more\n\n  d\n- e": "<ul><li><p>a</p></li><li><p>b</p><ul><li>"
    "<p>c more</p></li></ul><p>d</p></li><li><p>e</p></li></ul>",
    "3. a\n4. b\n\ntext\n5. no item": '<ol start="3"><li><p>a</p></li><li><p>b</p></li></ol>'
    "<p>text 5. no item</p>",
    "> a\nb\n> > c\n\nd": "<blockquote><p>a b</p><blockquote><p>c</p></blockquote></blockquote><p>d</p>",
    "***\na\n---\nb": "<hr><p>a</p><hr><p>b</p>",
    "```py\nx = '<b>'\n\n  y\n```\na": '<div class="code"><div class="head"><span>py</span></div>'
    "<pre><code>x = '&lt;b&gt;'    y</code></pre></div><p>a</p>",
    "1. a\n   ```\n   x\n   ```\n2. b": '<ol start="1"><li><p>a</p><div class="code"><div class="head">'
    "<span></span></div><pre><code>x</code></pre></div></li><li><p>b</p></li></ol>",
    "In:\n| a | b |\n|---|--:|\n| 1 | `x|y` |\n| **2** |\nend": '<p>In:</p><div class="wide"><table><thead>'
    '<tr><th>a</th><th class="end">b</th></tr></thead><tbody><tr><td>1</td><td class="end"><code>x|y</code>'
    "</td></tr><tr><td><strong>2</strong></td></tr></tbody></table></div><p>end</p>",
    "a | b\nc | d": "<p>a | b c | d</p>",
    "[a *b*](https://e.org/x_(y) 'z') <https://e.org>": '<p><a href="https://e.org/x_(y)">a <em>b</em></a> '
    '<a href="https://e.org/">https://e.org</a></p>',
    "(see https://e.org/a_b_c?d=1). https://e.org。": '<p>(see <a href="https://e.org/a_b_c?d=1">'
    'https://e.org/a_b_c?d=1</a>). <a href="https://e.org/">https://e.org</a>。</p>',
    "[m](mailto:a@b.c)": '<p><a href="mailto:a@b.c">m</a></p>',
    "![cat](https://e.org/c.png)": '<p><a class="image" href="https://e.org/c.png">cat</a></p>',
    "**open, [open, `open": "<p>**open, [open, `open</p>",
    "4": "<p>4</p>",
    "": "",
}  # fmt: skip

HARMLESS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[a](javascript:alert(1))",
    "[a](JaVaScRiPt:alert(1))",
    "[a]( java\tscript:alert(1))",
    "[a](\x01javascript:alert(1))",
    "[a](data:text/html,<script>alert(1)</script>)",
    "[a](<javascript:alert(1)>)",
    "<javascript:alert(1)>",
    "[a](vbscript:x) [b](file:///etc/passwd) [c](blob:http://e.org/x)",
    "![a](javascript:alert(1)) ![b](data:image/svg+xml,<svg onload=alert(1)>)",
    '[a](https://e.org/"onmouseover="alert(1))',
    "![\"onerror=\"alert(1)](https://e.org/x.png)",
    "```\"><script>alert(1)</script>\nx\n```",
    "| <script>alert(1)</script> | <img src=x onerror=alert(1)> |\n|--|--|\n| <svg onload=alert(1)> | b |",
    "https://e.org/<script>alert(1)</script>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
]  # fmt: skip


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    with renderer(browser) as opened:
        yield opened


def shown(page: Any, *pieces: str) -> str:
    (html,) = page.evaluate(RENDER, [pieces])
    return str(html)


def cut(text: str, dice: random.Random) -> list[str]:
    pieces = []
    while text:
        length = dice.choice((1, 1, 2, 3, 7, 400))
        pieces.append(text[:length])
        text = text[length:]
    return pieces


@pytest.mark.parametrize("source", SHOWN)
def test_what_is_shown(page: Any, source: str) -> None:
    assert bare(shown(page, source)) == SHOWN[source]
    assert shown(page, *source) == shown(page, source)


def test_emphasis_code_and_links_are_those_of_commonmark(page: Any) -> None:
    """Random texts, beside another parser, which reads runs of four ~ otherwise than GitHub."""
    dice = random.Random(SEED)
    reference = MarkdownIt("commonmark", {"html": False}).enable("strikethrough")
    texts = ["x" + "".join(dice.choices(MARKS + WORDS, k=dice.randrange(1, 14))) for _ in range(N_RANDOM)]
    texts = [text for text in texts if not re.search(r"~~~|!\[", text)]
    assert len(texts) > N_RANDOM / 2
    for text, html in zip(texts, page.evaluate(RENDER, [[text] for text in texts]), strict=True):
        expected = reference.render(text).replace("<s>", "<del>").replace("</s>", "</del>").strip()
        inner = re.sub(r"<span>(.*?)</span>", r"\1", bare(html))
        assert re.sub(r"\s+</p>", "</p>", inner) == expected.replace("&quot;", '"').replace("\n", " "), text


def test_a_stream_is_shown_as_the_whole(page: Any) -> None:
    dice = random.Random(SEED)
    texts = ["".join(dice.choices(MARKS + WORDS + BEGINS, k=dice.randrange(1, 40))) for _ in range(N_RANDOM)]
    wholes = page.evaluate(RENDER, [[text] for text in texts])
    streams = page.evaluate(RENDER, [cut(text, dice) for text in texts])
    for text, whole, stream in zip(texts, wholes, streams, strict=True):
        assert stream == whole, text


@pytest.mark.parametrize("source", HARMLESS)
def test_hostile_text_stays_text(page: Any, source: str) -> None:
    """Nothing is loaded and nothing runs; links have one of the schemes that are followed."""
    found = page.evaluate(
        """async (source) => {
          const { Markdown } = await import(new URL("page/markdown/blocks.js", document.baseURI));
          const root = document.body.appendChild(document.createElement("div")), shown = new Markdown(root);
          shown.write(source);
          shown.end();
          const elements = [...root.querySelectorAll("*")];
          const found = {
            names: elements.map((one) => one.localName),
            attributes: elements.flatMap((one) => one.getAttributeNames()),
            links: elements.filter((one) => one.href).map((one) => [one.protocol, one.rel, one.target]),
            text: root.textContent,
          };
          root.remove();
          return found;
        }""",
        source,
    )
    made = {"p", "a", "code", "pre", "div", "span", "button", "table", "thead", "tbody", "tr", "th", "td"}
    assert set(found["names"]) <= made
    assert not [name for name in found["attributes"] if name.startswith("on") or name in ("src", "style")]
    for protocol, relation, target in found["links"]:
        assert protocol in ("http:", "https:", "mailto:")
        assert (relation, target) == ("noopener noreferrer", "_blank")
    if "javascript:" in source and "[" in source:
        assert "javascript:" in found["text"]  # shown as it was written


def test_elements_are_not_nested_without_end(page: Any) -> None:
    depth = """async (source) => {
      const { Markdown } = await import(new URL("page/markdown/blocks.js", document.baseURI));
      const root = document.createElement("div"), shown = new Markdown(root);
      shown.write(source);
      shown.end();
      let deepest = 0;
      for (const one of root.querySelectorAll("*")) {
        let depth = 0;
        for (let above = one; above !== root; above = above.parentElement) depth += 1;
        deepest = Math.max(deepest, depth);
      }
      return [deepest, root.textContent.length];
    }"""
    for source in ("> " * 1000 + "deep", "- " * 1000 + "deep", "*a **b " * 200 + "c** d* " * 200):
        deepest, length = page.evaluate(depth, source)
        assert 10 < deepest < 50
        assert length > len(source) // 3  # the rest is text


@pytest.mark.parametrize("unit", ["word ", "x", "[", "`` ` ", "|", "- ", "> "])
def test_the_cost_of_a_piece_is_bounded(page: Any, unit: str) -> None:
    """A line of a megabyte: each piece takes a time that does not grow with what was there before. Lots of 20
    pieces are timed, and the middle one counts: the machine may be busy with something else in some of them.
    """
    text = unit * ((1 << 20) // len(unit))
    early, late = page.evaluate(
        """async (text) => {
          const { Markdown } = await import(new URL("page/markdown/blocks.js", document.baseURI));
          const shown = new Markdown(document.createElement("div")), lots = 30, lot = 20, size = 20;
          const timed = (from) => {
            const took = [];
            for (let begin = from; took.length < lots; begin += lot * size) {
              const began = performance.now();
              for (let n = 0; n < lot; n++) shown.write(text.slice(begin + n * size, begin + (n + 1) * size));
              took.push(performance.now() - began);
            }
            return took.sort((a, b) => a - b)[lots / 2];
          };
          const early = timed(0), last = text.length - lots * lot * size;
          shown.write(text.slice(lots * lot * size, last));
          return [early, timed(last)];
        }""",
        text,
    )
    assert late < 20 * early + 33  # ms
