"""What the pictures of results show."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import bad_server
import pytest
from bad_server import BadServer
from test_serve import SHORT, UNHURRIED, bench

from blink.bench import plot, plots
from blink.bench.trace import load_label
from blink.errors import CommandError


def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that will have been drawn."""
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="needs scripts/setup bench")
    figures: list[Any] = []
    monkeypatch.setattr(pyplot, "close", figures.append)
    return figures


def legend_of(figure: Any) -> Any:
    (legend,) = figure.legends
    return zip(legend.get_texts(), legend.get_lines(), strict=True)


def windows(rates: list[int], levels: list[int]) -> dict[str, Any]:
    """A result of as many windows, as far as two of the panels go."""
    points = [
        {
            "rate": rate,
            "antagonists_per_core": level,
            "ttft_ms": {"p99": rate + level},
            "itl_ms": {"p99": 1, "p99.9": rate * level + 1},
        }
        for level in levels
        for rate in rates
    ]
    lengths = {"counts": [1], "edges": [0, 1], "mean": 1.0}
    trace = {"requests": 1, "digest": "", "input_tokens": lengths, "output_tokens": lengths}
    return {"server": "a", "points": points, "traces": {load_label(rate, None): trace for rate in rates}}


@pytest.mark.slow
def test_a_run_among_antagonists_is_drawn_over_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = drawn(monkeypatch)
    with BadServer(bad_server.good) as server:
        flags = ("--antagonists=sort", "--per-core=0,1", "--cores=0")
        _, result = bench(server.url, tmp_path, "--concurrency=1", *flags, *SHORT, *UNHURRIED)
    plots.draw([result | {"server": "a"}, result | {"server": "b"}], tmp_path)
    panel = next(axis for axis in figures[0].axes if axis.get_title() == "ITL of completed requests: p99.9")
    assert panel.get_xlabel() == "antagonist threads on each of the server's cores"
    assert [text.get_text() for text, _ in legend_of(figures[0])] == ["a", "b"]
    assert [list(line.get_xdata()) for line in panel.lines] == [[0, 1], [0, 1]]


def test_one_load_of_several_levels_has_a_line_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = drawn(monkeypatch)
    plots.draw([windows([8], [0, 1]), windows([8], [0, 1]) | {"server": "b"}], tmp_path)
    panel = next(axis for axis in figures[0].axes if axis.get_title() == "ITL of completed requests: p99.9")
    assert [list(line.get_ydata()) for line in panel.lines] == [[1, 9], [1, 9]]
    legend = {text.get_text(): line for text, line in legend_of(figures[0])}
    assert list(legend) == ["a", "b"]
    assert [line.get_color() for line in panel.lines] == [line.get_color() for line in legend.values()]


def test_several_loads_have_a_line_a_level_whose_style_the_legend_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = drawn(monkeypatch)
    plots.draw([windows([8, 24], [0, 4]), windows([8, 24], [4, 8])], tmp_path)
    lines = figures[0].axes[0].lines
    assert [list(line.get_ydata()) for line in lines] == [[8, 24], [12, 28], [12, 28], [16, 32]]
    none, four, again, eight = (line.get_linestyle() for line in lines)
    assert four == again
    assert len({none, four, eight}) == 3
    legend = [(text.get_text(), line.get_linestyle()) for text, line in legend_of(figures[0])]
    assert legend[2:] == [
        (f"{n} antagonists a core", style) for n, style in ((0, none), (4, four), (8, eight))
    ]


def test_a_load_among_antagonists_alone_says_how_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = drawn(monkeypatch)
    plots.draw([windows([8, 24], [4])], tmp_path)
    assert [text.get_text() for text, _ in legend_of(figures[0])] == ["a", "4 antagonists a core"]


@pytest.mark.slow
def test_one_of_several_rates_can_be_drawn_over_its_antagonists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = drawn(monkeypatch)
    path = tmp_path / "result.json"
    path.write_text(json.dumps(windows([8, 24], [0, 4])))

    def draw(rate: float) -> int:
        return plot.main(argparse.Namespace(files=[path], rate=rate, out=tmp_path))

    assert draw(24) == 0
    (line,) = figures[0].axes[0].lines
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([0, 4], [24, 28])
    assert "24 req/s" in figures[1].get_suptitle()
    with pytest.raises(CommandError, match="no window of 9 requests/s"):
        draw(9)


def test_panels_have_units_the_median_and_no_empty_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = drawn(monkeypatch)
    result = windows([1, 2], [0])
    for number, point in enumerate(result["points"]):
        for name in ("ttft_ms", "tpot_ms", "itl_ms"):
            point[name] = {"p50": 1 + number, "p99": 10, "p99.9": 20}
        point |= {"completed_per_s": 1.0, "output_tokens_per_s": 100.0}
    plots.draw([result], tmp_path)
    panels = figures[0].axes
    assert len(panels) == 5  # nobody measured energy
    assert all(axis.has_data() for axis in panels)
    assert [axis.get_ylabel() for axis in panels] == [*["ms, logarithmic"] * 3, "requests/s", "tokens/s"]
    assert [list(line.get_ydata()) for line in panels[0].lines] == [[10, 10], [1, 2]]
    assert panels[0].lines[1].get_linewidth() < panels[0].lines[0].get_linewidth()
