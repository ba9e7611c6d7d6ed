"""The page at `/` and its files under `/page/`, as they are sent. No script or style stands in the document
itself: these files are all that may run there.

The browser is told (Content Security Policy) to load nothing from elsewhere than this server, and, where it
knows Trusted Types, to refuse every attempt to make HTML or scripts from text.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from nic_frontend.http.asgi import Header

FOLDER = Path(__file__).parent
TYPES = {".js": b"text/javascript; charset=utf-8", ".css": b"text/css; charset=utf-8"}
POLICY = (
    b"default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    b"require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
]


class File(NamedTuple):
    content: bytes
    headers: list[Header]


@cache
def files() -> dict[str, File]:
    """By the path at which each is served."""
    types = [(b"content-type", b"text/html; charset=utf-8"), (b"content-security-policy", POLICY)]
    found = {"/": File((FOLDER / "page.html").read_bytes(), [*types, *HEADERS])}
    for path in FOLDER.rglob("*"):
        if path.suffix in TYPES:
            headers = [(b"content-type", TYPES[path.suffix]), *HEADERS]
            found[f"/page/{path.relative_to(FOLDER).as_posix()}"] = File(path.read_bytes(), headers)
    return found
