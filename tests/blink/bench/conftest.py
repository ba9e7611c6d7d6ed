"""Fixtures: a tiny model, and real frontends over mock backends."""

from fixtures import *  # noqa: F403
