"""Pages of other origins in a browser, and what they may do here (Fetch standard, "CORS protocol")."""

from __future__ import annotations

from nic_frontend.http.asgi import Header, Scope, header

EVERY = "*"
METHODS = b"GET, POST, DELETE"
MAX_AGE_S = b"600"  # that a browser may remember a preflight's answer


class Cors:
    """`origins` are allowed, "*" is all; none and nothing is said of the matter."""

    def __init__(self, origins: tuple[str, ...]) -> None:
        self._origins = frozenset(origins)

    def headers(self, scope: Scope) -> list[Header]:
        """Those that an answer to this request has."""
        if not self._origins:
            return []
        if EVERY in self._origins:
            return [(b"access-control-allow-origin", b"*")]
        origin = header(scope, b"origin")
        allowed = [(b"access-control-allow-origin", origin.encode())] if origin in self._origins else []
        return [(b"vary", b"origin"), *allowed]

    def preflight(self, scope: Scope) -> list[Header] | None:
        """The further headers of the answer when this request asks, without a key, what another may have.

        None when it does not, or comes from an origin that is not allowed.
        """
        asks = scope["method"] == "OPTIONS" and header(scope, b"access-control-request-method") is not None
        if not asks or not {EVERY, header(scope, b"origin")} & self._origins:
            return None
        wanted = header(scope, b"access-control-request-headers") or "authorization, content-type"
        return [
            (b"access-control-allow-methods", METHODS),
            (b"access-control-allow-headers", wanted.encode("latin-1")),
            (b"access-control-max-age", MAX_AGE_S),
        ]
