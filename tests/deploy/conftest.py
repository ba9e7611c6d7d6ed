"""Frontends for the tests of what watches them."""

from fixtures import model_dir, start_backend, start_frontend

__all__ = ["model_dir", "start_backend", "start_frontend"]
