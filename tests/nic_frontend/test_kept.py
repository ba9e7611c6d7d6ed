"""Frontends that tests share: none finds what the test before it has left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fixtures import ring_of_its_own
from harness import COMPLETION, Frontend
from kept import SETTINGS, Kept
from mock_backend import MockBackend
from scripted_answers import echo

CHANGED: dict[str, Any] = {
    "script": echo,
    "step_s": 0.002,
    "tokens_per_step": 3,
    "cached_tokens": 1,
    "records": "arena",
    "torn": True,
    "jitter": True,
    "refuse_leases": True,
    "longest_lease_s": 9.0,
}


def answers(frontend: Frontend) -> bool:
    return frontend.client.post("/v1/completions", json=COMPLETION).status_code == 200


def test_the_next_test_finds_it_as_at_first(model_dir: Path) -> None:
    kept = Kept(lambda: Frontend(MockBackend(ring_of_its_own(), model_dir).start(), model_dir))
    frontend = kept.use()
    backend = frontend.backend
    at_first = {name: getattr(backend, name) for name in SETTINGS}
    assert set(CHANGED) == set(SETTINGS)
    for name, value in CHANGED.items():
        setattr(backend, name, value)
    assert answers(frontend)
    backend.stalled.set()
    backend.frozen.set()
    kept.rest(failed=False)
    assert kept.use() is frontend
    assert {name: getattr(backend, name) for name in SETTINGS} == at_first
    assert answers(frontend)
    kept.close()


def test_one_that_a_test_failed_with_is_not_used_again(model_dir: Path) -> None:
    """What that has left behind may be anything."""
    kept = Kept(lambda: Frontend(MockBackend(ring_of_its_own(), model_dir).start(), model_dir))
    frontend = kept.use()
    kept.rest(failed=True)
    other = kept.use()
    assert other is not frontend
    assert answers(other)
    kept.close()
