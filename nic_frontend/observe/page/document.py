"""The page at `/`, as one document: its style and scripts stand in it, and nothing else may run there.

The browser is told their hashes (Content Security Policy), and to load nothing from anywhere but this
server's API.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path

from nic_frontend.http.asgi import Header

FOLDER = Path(__file__).parent
SCRIPTS = ("series.js", "machine.js", "chat.js", "api.js")


@cache
def document() -> tuple[bytes, list[Header]]:
    """The document, and the headers that it is sent with."""
    style = (FOLDER / "page.css").read_text(encoding="utf-8")
    script = "\n".join((FOLDER / name).read_text(encoding="utf-8") for name in SCRIPTS)
    text = (FOLDER / "page.html").read_text(encoding="utf-8")
    text = text.replace("/*style*/", style).replace("/*script*/", script)
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return text.encode(), [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cache-control", b"no-cache"),
    ]


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
