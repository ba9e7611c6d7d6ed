"""Frontends that a module's tests share: to start and to end one takes longer than most requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness import Frontend
from mock_backend import MockBackend
from waiting import wait_until

from nic_frontend.ring.host_segment import segment_path

SETTINGS = (
    "script", "step_s", "tokens_per_step", "cached_tokens", "records", "torn", "jitter", "refuse_leases",
    "longest_lease_s",
)  # fmt: skip


class Kept:
    """A frontend and its mock backend, which one test at a time uses, and which is as at first for the next
    one but for its counters. `start` starts both when they are needed: for the first test, and for the next
    one after a test that failed, because such a test may leave anything behind.
    """

    def __init__(self, start: Callable[[], Frontend]) -> None:
        self._start = start
        self._frontend: Frontend | None = None
        self._at_first: dict[str, Any] = {}
        self.in_use = False

    def use(self) -> Frontend:
        self.in_use = True
        if self._frontend is None:
            self._frontend = self._start()
            self._at_first = {name: getattr(self._frontend.backend, name) for name in SETTINGS}
        self._frontend.backend.awake.set()
        return self._frontend

    def rest(self, failed: bool) -> None:
        """When all requests have given their slots back. `failed`: the test that used it."""
        self.in_use = False
        if failed or self._frontend is None:
            self.close()
            return
        try:
            self._reset(self._frontend)
        except AssertionError:
            self.close()
            raise

    def _reset(self, frontend: Frontend) -> None:
        backend, slots = frontend.backend, frontend.service.tracker.slots
        backend.stalled.clear()
        backend.frozen.clear()
        for name, value in self._at_first.items():
            setattr(backend, name, value)
        wait_until(lambda: slots.n_free == slots.n_slots, what="all slots free")
        frontend.disconnect()
        backend.accepted.clear()
        backend.commands.clear()
        backend.awake.clear()

    def close(self) -> None:
        if self._frontend is not None:
            self._frontend.stop()
            end(self._frontend.backend)
            self._frontend = None


def end(backend: MockBackend) -> None:
    """Stops it, and removes what frontends of its ring that were killed have left."""
    backend.stop()
    segment_path(backend.path).unlink(missing_ok=True)
