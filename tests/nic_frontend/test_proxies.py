"""Who the client is: a proxy's word for it is believed where the operator says so, and nowhere else."""

from __future__ import annotations

import logging
import time

import httpx
import pytest
from harness import StartFrontend, wait_until
from limits import WAIT_S
from mock_backend import MockBackend

from blink.flags import proxies
from nic_frontend.http import wrong_keys

KEY = "correct horse battery"


GUESSES = 10


def guess(url: str) -> None:
    """Wrong keys, of a client that names another address each time."""
    with httpx.Client(base_url=url, timeout=WAIT_S) as client:
        for n in range(GUESSES):
            headers = {"authorization": f"Bearer wrong{n}", "x-forwarded-for": f"10.0.0.{n}"}
            assert client.get("/v1/models", headers=headers).status_code == 401


def test_a_client_cannot_name_its_own_address(backend: MockBackend, start_frontend: StartFrontend) -> None:
    """Whoever guesses keys would otherwise have another address for each."""
    frontend = start_frontend(backend, api_key=KEY)
    began = time.monotonic()
    guess(frontend.url)
    assert time.monotonic() - began > (GUESSES - 1 - wrong_keys.FREE) * wrong_keys.PAUSE_S


def test_a_proxy_that_is_trusted_names_it(
    backend: MockBackend,
    start_frontend: StartFrontend,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO)
    frontend = start_frontend(
        backend,
        api_key=KEY,
        trusted_proxies=("10.9.0.0/16", "127.0.0.1"),
        log_requests=True,
        log_level="info",
    )
    monkeypatch.setattr(wrong_keys, "FREE", 1)
    monkeypatch.setattr(wrong_keys, "PAUSE_S", WAIT_S)  # which no second guess of an address outlasts
    guess(frontend.url)
    frontend.client.get(
        "/v1/models", headers={"authorization": f"Bearer {KEY}", "x-forwarded-for": "192.0.2.7, 10.9.3.4"}
    )
    wait_until(lambda: any(line.startswith("192.0.2.7 GET /v1/models 200") for line in caplog.messages))


def test_what_a_client_is_called_cannot_look_like_the_rest_of_a_line(
    backend: MockBackend, start_frontend: StartFrontend, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    frontend = start_frontend(backend, trusted_proxies=("127.0.0.1",), log_requests=True, log_level="info")
    spoofed = "6.6.6.6 GET /v1/models 200 in 0.001 s id 1 \x9b31m"
    frontend.client.get("/none", headers={"x-forwarded-for": spoofed.encode("latin-1")})
    wait_until(lambda: any("/none 404" in line for line in caplog.messages))
    (line,) = (line for line in caplog.messages if "/none 404" in line)
    assert line.startswith("6.6.6.6%20GET%20%2Fv1%2Fmodels%20200")
    assert "\x9b" not in line


def test_the_flag_takes_addresses_and_networks() -> None:
    assert proxies("10.0.0.2,10.1.0.0/16,fd00::/8") == ("10.0.0.2", "10.1.0.0/16", "fd00::/8")
    assert proxies("*") == ("*",)
    for wrong in ("proxy.example.com", "10.0.0.1/8", "", "10.0.0.2,*"):
        with pytest.raises(ValueError, match="is no address or network"):
            proxies(wrong)
