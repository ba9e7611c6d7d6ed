"""Fixtures: backends' exchanges that serve a test."""

from __future__ import annotations

from running_server import *  # noqa: F403
