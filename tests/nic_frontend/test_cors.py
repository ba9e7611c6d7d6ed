"""Pages of other origins: preflights without a key, and headers on every answer; nothing unless asked for."""

from __future__ import annotations

import httpx
import pytest
from harness import Frontend, StartFrontend
from mock_backend import MockBackend

PAGE = "https://page.example"
ASKS = {
    "origin": PAGE,
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-stainless-lang",
}
BODY = {"prompt": "x", "max_tokens": 2}


def preflight(frontend: Frontend, **changes: str) -> httpx.Response:
    return frontend.client.options("/v1/completions", headers={**ASKS, **changes})


def post(frontend: Frontend, origin: str = PAGE, key: str = "secret", stream: bool = False) -> httpx.Response:
    headers = {"origin": origin, "authorization": f"Bearer {key}"}
    return frontend.client.post("/v1/completions", json={**BODY, "stream": stream}, headers=headers)


@pytest.mark.parametrize("origins", [("https://other.example", PAGE), ("*",)])
def test_allowed(backend: MockBackend, start_frontend: StartFrontend, origins: tuple[str, ...]) -> None:
    frontend = start_frontend(backend, allowed_origins=origins, api_key="secret")
    shown = "*" if origins == ("*",) else PAGE
    asked = preflight(frontend)
    assert asked.status_code == 200
    assert asked.headers["access-control-allow-origin"] == shown
    assert "POST" in asked.headers["access-control-allow-methods"]
    assert asked.headers["access-control-allow-headers"] == ASKS["access-control-request-headers"]
    answers = [post(frontend), post(frontend, stream=True), post(frontend, key="wrong")]
    assert [answer.status_code for answer in answers] == [200, 200, 401]
    for answer in [asked, *answers]:
        assert answer.headers["access-control-allow-origin"] == shown
        assert ("vary" in answer.headers) == (shown == PAGE)


def test_not_allowed(backend: MockBackend, start_frontend: StartFrontend) -> None:
    frontend = start_frontend(backend, allowed_origins=(PAGE,), api_key="secret")
    assert preflight(frontend, origin="https://evil.example").status_code == 401
    for origin in ("https://evil.example", "null", f"{PAGE}.evil.example"):
        answer = post(frontend, origin)
        assert answer.headers["vary"] == "origin"
        assert "access-control-allow-origin" not in answer.headers


def test_off_by_default(frontend: Frontend) -> None:
    assert preflight(frontend).status_code == 405
    answer = post(frontend)
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("access-control") or name == "vary"]
