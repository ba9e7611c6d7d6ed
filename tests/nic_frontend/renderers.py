"""Renderers of chat templates, as tests open them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nic_frontend.templates.renderer import Bounds, Renderer, open_renderer

__all__ = ["start_renderer"]

ECHO = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
BOUNDS = Bounds(time_s=0.5, memory_bytes=256 << 20, most_text=1 << 16)


@pytest.fixture
def start_renderer(tmp_path: Path) -> Iterator[Any]:
    started: list[Renderer] = []

    def start(template: str, bounds: Bounds = BOUNDS) -> Renderer:
        (tmp_path / "chat_template.jinja").write_text(template)
        renderer = open_renderer(tmp_path, bounds)
        assert renderer is not None
        started.append(renderer)
        return renderer

    yield start
    for renderer in started:
        renderer.close()


def user(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]
