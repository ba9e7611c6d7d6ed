"""Frontends that a module's tests share: to start and to end one takes longer than most requests."""

from __future__ import annotations

from typing import Any

from harness import Frontend
from waiting import wait_until

SETTINGS = ("script", "step_s", "tokens_per_step", "cached_tokens", "records", "torn", "jitter")


class Kept:
    """A frontend and its mock backend, which one test at a time uses, and which is as at first for the next
    one but for its counters."""

    def __init__(self, frontend: Frontend) -> None:
        self.frontend = frontend
        self._at_first: dict[str, Any] = {name: getattr(frontend.backend, name) for name in SETTINGS}
        self.in_use = False

    def use(self) -> Frontend:
        self.in_use = True
        self.frontend.backend.awake.set()
        return self.frontend

    def rest(self) -> None:
        """When all requests have given their slots back."""
        backend, slots = self.frontend.backend, self.frontend.service.tracker.slots
        wait_until(lambda: slots.n_free == slots.n_slots, what="all slots free")
        self.frontend.disconnect()
        for name, value in self._at_first.items():
            setattr(backend, name, value)
        backend.accepted.clear()
        backend.commands.clear()
        backend.awake.clear()
        self.in_use = False
