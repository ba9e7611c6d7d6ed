"""API keys, one or those of a file: who gets in, and how much each may ask for."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from harness import COMPLETION, Frontend, StartBackend, StartFrontend, error_of, wait_until
from mock_backend import MockBackend
from samplings import plain_sampling

from nic_frontend.errors import ApiError
from nic_frontend.http import wrong_keys
from nic_frontend.http.key_budgets import BUDGET_BYTES, KeyBudgets
from nic_frontend.http.keys import Key, Keys, read_keys
from nic_frontend.observe import reporter
from nic_frontend.observe.shared_figures import FIGURES_BYTES
from nic_frontend.ring.host_segment import HostSegment
from nic_frontend.ring.request import Mailbox, Request

TWO = f"""
[[key]]
name = "team-a"
key = "a-long-secret"
requests-per-minute = 2

[[key]]
name = "team-b"
sha256 = "{hashlib.sha256(b"another-secret").hexdigest()}"
"""


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.toml"
    path.write_text(TWO)
    return path


def complete(frontend: Frontend, key: str, n: int = 2) -> httpx.Response:
    body = {"prompt": [5, 6], "max_tokens": n, "ignore_eos": True}
    return frontend.client.post("/v1/completions", json=body, headers={"authorization": f"Bearer {key}"})


def test_each_key_of_the_file_opens_and_no_other(
    backend: MockBackend, start_frontend: StartFrontend, keys_file: Path
) -> None:
    frontend = start_frontend(backend, api_keys=keys_file)
    for key in ("a-long-secret", "another-secret"):
        assert complete(frontend, key).status_code == 200
    assert error_of(frontend.client.get("/v1/models"), 401)["code"] == "invalid_api_key"
    for key in ("team-a", "a-long-secre", hashlib.sha256(b"another-secret").hexdigest()):
        assert error_of(complete(frontend, key), 401)["code"] == "invalid_api_key"
    assert frontend.client.get("/v1/models", headers={"x-api-key": "another-secret"}).status_code == 200


@pytest.mark.usefixtures("budget_clock")
def test_a_key_has_its_own_limit_of_requests(
    backend: MockBackend, start_frontend: StartFrontend, keys_file: Path
) -> None:
    frontend = start_frontend(backend, api_keys=keys_file)
    assert [complete(frontend, "a-long-secret").status_code for _ in range(3)] == [200, 200, 429]
    refused = complete(frontend, "a-long-secret")
    assert (
        error_of(refused, 429)["message"]
        == "the API key team-a has reached its limit, requests-per-minute = 2"
    )
    assert refused.headers["retry-after"] == "31"  # half a minute a request
    assert [complete(frontend, "another-secret").status_code for _ in range(4)] == [200] * 4
    assert frontend.client.get("/v1/models", headers={"x-api-key": "a-long-secret"}).status_code == 200


@pytest.mark.usefixtures("budget_clock")
def test_frontends_of_a_host_share_a_keys_limits(
    start_backend: StartBackend, start_frontend: StartFrontend, keys_file: Path
) -> None:
    backend = start_backend(n_leases=2)
    first, second = start_frontend(backend, api_keys=keys_file), start_frontend(backend, api_keys=keys_file)
    assert complete(first, "a-long-secret").status_code == 200
    assert complete(second, "a-long-secret").status_code == 200
    assert complete(first, "a-long-secret").status_code == 429
    assert complete(second, "a-long-secret").status_code == 429


ASKED: list[tuple[str, dict[str, Any]]] = [
    ("/tokenize", {"prompt": "hello" * 100}),
    ("/detokenize", {"tokens": [5, 6]}),
    ("/v1/completions/render", {"prompt": "hello"}),
    ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "hi"}]}),
]


@pytest.mark.usefixtures("budget_clock")
@pytest.mark.parametrize(("path", "body"), ASKED)
def test_what_the_frontend_answers_by_itself_counts_as_well(
    backend: MockBackend, start_frontend: StartFrontend, keys_file: Path, path: str, body: dict[str, Any]
) -> None:
    """Tokenizing is work, and who has used a key's limits up has none done."""
    frontend = start_frontend(backend, api_keys=keys_file)
    bearer = {"authorization": "Bearer a-long-secret"}
    statuses = [frontend.client.post(path, json=body, headers=bearer).status_code for _ in range(3)]
    assert 429 not in statuses[:2]
    assert statuses[2] == 429
    assert complete(frontend, "a-long-secret").status_code == 429
    assert complete(frontend, "another-secret").status_code == 200


@pytest.mark.usefixtures("budget_clock")
def test_a_used_up_key_is_refused_before_its_body_is_read(
    backend: MockBackend, start_frontend: StartFrontend, keys_file: Path
) -> None:
    frontend = start_frontend(backend, api_keys=keys_file)
    for _ in range(2):
        assert complete(frontend, "a-long-secret").status_code == 200
    broken = frontend.client.post(
        "/v1/completions",
        content=b"{",
        headers={"authorization": "Bearer a-long-secret", "content-type": "application/json"},
    )
    assert broken.status_code == 429


def test_requests_at_a_time(backend: MockBackend, start_frontend: StartFrontend, keys_file: Path) -> None:
    keys_file.write_text(TWO.replace("requests-per-minute = 2", "concurrent = 1"))
    frontend = start_frontend(backend, api_keys=keys_file)
    backend.stalled.set()
    answers: list[int] = []
    asking = threading.Thread(target=lambda: answers.append(complete(frontend, "a-long-secret").status_code))
    asking.start()
    wait_until(lambda: backend.open_rows() == 1)
    assert "concurrent = 1" in error_of(complete(frontend, "a-long-secret"), 429)["message"]
    backend.stalled.clear()
    asking.join()
    assert answers == [200]
    assert complete(frontend, "a-long-secret").status_code == 200


def test_a_file_that_changes_is_read_again(
    backend: MockBackend, start_frontend: StartFrontend, keys_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporter, "PUBLISH_S", 0.05)
    frontend = start_frontend(backend, api_keys=keys_file)
    replaced = keys_file.with_suffix(".new")
    replaced.write_text(TWO.replace("a-long-secret", "a-new-secret"))
    os.replace(replaced, keys_file)
    wait_until(lambda: complete(frontend, "a-new-secret").status_code == 200)
    assert complete(frontend, "a-long-secret").status_code == 401
    keys_file.write_text("this is no TOML")
    changed = keys_file.stat().st_mtime_ns
    wait_until(lambda: (frontend.service.keys._stamp or (0,))[0] == changed)
    assert complete(frontend, "another-secret").status_code == 200  # the keys stay as they were


def test_a_file_that_is_missing_is_told_of_once(keys_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    keys = Keys(None, keys_file)
    for changed_s in range(2):
        keys_file.unlink()
        for _ in range(3):
            keys.look()
        keys_file.write_text(TWO)
        # The new file may have the old one's number, and its time where the file system's clock is coarse.
        os.utime(keys_file, (changed_s, changed_s))
        keys.look()
    assert sum("the API keys stay as they were" in line for line in caplog.messages) == 2


def test_a_file_that_changes_twice_within_a_tick_is_read_twice(keys_file: Path) -> None:
    now = time.time_ns() + 60_000_000_000  # a clock that stands still for longer than the test takes
    os.utime(keys_file, ns=(now, now))
    keys = Keys(None, keys_file)
    keys_file.write_text(TWO.replace("a-long-secret", "other-secrets"))
    os.utime(keys_file, ns=(now, now))
    keys.look()
    assert keys.check({"headers": [(b"x-api-key", b"other-secrets")]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "write a table [[key]] for each key, and nothing else"),
        ("key = 3", "write a table [[key]] for each key"),
        ("[[key]\n", "is not valid TOML"),
        (TWO + "\n[[keys]]", "and nothing else"),
        (TWO.replace("team-b", "team-a"), "two names are the same"),
        (TWO.replace('"a-long-secret"', "12345678"), "(team-a): key must be a text of at least 8 characters"),
        (TWO.replace("a-long-secret", "short"), "(team-a): key must be a text of at least 8 characters"),
        (TWO.replace("minute = 2", "minute = 0"), "requests-per-minute must be a whole number from 1 on"),
        (
            TWO.replace("requests-per-minute", "request-per-minute"),
            "no request-per-minute, only name",
        ),
        (TWO.replace('sha256 = "', 'sha256 = "zz'), "(team-b): sha256 must be 64 hexadecimal digits"),
        (TWO.replace("team-a", "team a"), "name must be 1 to 64 letters"),
        ('[[key]]\nname = "x"', "(x): give key or sha256, one of them"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_without_a_key(text: str, message: str, keys_file: Path) -> None:
    keys_file.write_text(text)
    with pytest.raises(ValueError, match=r".") as told:
        read_keys(keys_file)
    assert message in str(told.value)
    assert "secret" not in str(told.value)


def budgets(path: Path, lease: int = 0) -> KeyBudgets:
    return KeyBudgets(HostSegment(path, FIGURES_BYTES + BUDGET_BYTES), FIGURES_BYTES, lease)


def request(prompt: int, answer: int) -> Request:
    made = Request(0, np.zeros(prompt, np.uint32), plain_sampling(), Mailbox(9), 0.0)
    made.n_tokens = answer
    return made


def make_key(**limits: Any) -> Key:
    return Key(hashlib.sha256(b"x").digest(), "x", **limits)


@pytest.fixture(autouse=True)
def no_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nic_frontend.ring.request.asyncio.current_task", lambda: None)


def test_tokens_are_paid_for_by_prompt_and_answer_and_come_back(
    tmp_path: Path, budget_clock: list[float]
) -> None:
    held, key = budgets(tmp_path / "b"), make_key(tokens_per_minute=600)
    with held.admitted(key, [request(400, 500)]):
        pass  # 300 below nothing
    with pytest.raises(ApiError, match="tokens-per-minute = 600") as refused, held.admitted(key, []):
        pass
    assert refused.value.headers["retry-after"] == "31"
    budget_clock[0] += 29
    with pytest.raises(ApiError), held.admitted(key, []):
        pass
    budget_clock[0] += 2
    with held.admitted(key, [request(1, 1)]):
        pass
    budget_clock[0] += 3600  # no more than a minute's is saved up
    with held.admitted(key, [request(300, 300)]):
        pass
    with pytest.raises(ApiError), held.admitted(key, []):
        pass


def test_what_is_only_tokenized_is_paid_for_by_its_length(tmp_path: Path, budget_clock: list[float]) -> None:
    held, key = budgets(tmp_path / "b"), make_key(tokens_per_minute=60, concurrent=1)
    with held.admitted(key, [], 4 * 61), held.working(key, admitted=True) as charge:
        charge(0.001, True)  # of its grammar; the request itself is the one that is open
    with pytest.raises(ApiError, match="tokens-per-minute"):
        held.check(key)
    budget_clock[0] += 10
    held.check(key)


def test_what_a_dead_frontend_had_open_is_forgotten_by_the_next_one(tmp_path: Path) -> None:
    key = make_key(concurrent=1)
    dead = budgets(tmp_path / "b", lease=1)
    left_open = dead.admitted(key, [])
    left_open.__enter__()
    other = budgets(tmp_path / "b", lease=0)
    with pytest.raises(ApiError, match="concurrent = 1"), other.admitted(key, []):
        pass
    budgets(tmp_path / "b", lease=1)
    with other.admitted(key, []):
        pass


def test_a_frontend_that_is_suspended_within_the_lock_holds_nobody_up(tmp_path: Path) -> None:
    suspended = HostSegment(tmp_path / "b", FIGURES_BYTES + BUDGET_BYTES)
    with suspended.locked(), budgets(tmp_path / "b", 1).admitted(make_key(concurrent=1), []):
        pass


def test_a_key_that_came_later_takes_no_place_of_one_with_open_requests(
    tmp_path: Path, budget_clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nic_frontend.http.key_budgets.ENTRIES", 2)
    held = budgets(tmp_path / "b")
    keys = [Key(bytes([2 * i]) * 32, "x", concurrent=1) for i in range(4)]
    with held.admitted(keys[0], []):
        for key in keys[1:]:
            budget_clock[0] += 1
            with held.admitted(key, []):
                pass
        with pytest.raises(ApiError, match="concurrent = 1"), held.admitted(keys[0], []):
            pass
        with (
            held.admitted(keys[1], []),
            pytest.raises(ApiError, match="too many API keys"),
            held.admitted(keys[2], []),
        ):
            pass
    with held.admitted(keys[0], []):
        pass


def test_api_key(
    backend: MockBackend, start_frontend: StartFrontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wrong_keys, "PAUSE_S", 0.0)
    frontend = start_frontend(backend, api_key="secret")
    for value in (None, "secret", "Bearer", "Bearer wrong", "Basic secret", "Bearer secret2"):
        headers = {"authorization": value} if value else {}
        for path in ("/v1/models", "/v1/nowhere"):
            assert error_of(frontend.client.get(path, headers=headers), 401)["code"] == "invalid_api_key"
        error_of(frontend.client.post("/v1/completions", json=COMPLETION, headers=headers), 401)
    headers = {"authorization": "Bearer secret"}
    assert frontend.client.get("/v1/models", headers=headers).status_code == 200
    assert frontend.client.post("/v1/completions", json=COMPLETION, headers=headers).status_code == 200
    assert frontend.client.get("/health").status_code == 200
    assert frontend.client.get("/metrics").status_code == 200
