"""The page in windows of several widths."""

from __future__ import annotations

from typing import Any

import pytest
from harness import Frontend


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 900, 1000, 1200, 1440])
def test_buttons_stay_together(visit: Any, frontend: Frontend, width: int) -> None:
    page = visit(frontend.url, viewport={"width": width, "height": 800})
    tops = [page.locator(name).bounding_box()["y"] for name in ("#clear", "#send", "#temperature")]
    assert abs(tops[0] - tops[1]) < 1
    if width >= 1200:
        assert abs(tops[1] - tops[2]) < 10  # and the row is one line


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 800, 1440])
def test_it_fits_narrow_and_wide_windows(visit: Any, frontend: Frontend, width: int) -> None:
    page = visit(frontend.url, viewport={"width": width, "height": 800}, color_scheme="dark")
    page.wait_for_selector("#phase.good")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
