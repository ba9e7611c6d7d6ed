"""Fixtures: a fake driver, and rings in its GPU memory."""

from __future__ import annotations

from gpu_ring import *  # noqa: F403
