"""Draws docs/board.png: deploy/grafana/blink.json over what Prometheus scraped of a server under load.

python scripts/board_picture.py [FILE] [--seconds S]     needs prometheus (Debian: apt-get install prometheus)

Grafana is not used: each query of the board is put to Prometheus's API as Grafana puts it, and the answers
are drawn where the board has their panels. It fails if a query is not answered with numbers.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator
from PIL import Image
from served_demo import ROOT, end, load, served_demo

FOLDER = ROOT / "deploy" / "grafana"
SCRAPE_S = 5  # prometheus.yml
RATE_S = 4 * SCRAPE_S  # Grafana's $__rate_interval at this scrape interval
COLUMNS, UNIT_PX, ROW_PX, DPI = 24, 58, 30, 100  # of the board's grid
SERVER = (
    "--frontends=2",
    "--max-batch=4",
    "--kv-memory=6MiB",
)  # small, so that requests wait and pages leave
TALK = (
    "--conversations=2,9,4,12", "--each=20", "--turns=5", "--system=160", "--system-prompts=3", "--input=40",
    "--output=48", "--think=exp:0.5", "--pause=4", "--warmup=0",
)  # fmt: skip
PAPER, PANEL, INK, FAINT = "#111217", "#181b1f", "#ccccdc", "#3a3d44"
COLORS = ("#73bf69", "#f2cc0c", "#5794f2", "#ff780a", "#f2495c", "#b877d9")


@dataclass(frozen=True)
class Series:
    label: str
    times: list[float]  # seconds since the load began
    values: list[float]


def get(url: str, **parameters: Any) -> Any:
    with urllib.request.urlopen(f"{url}?{urllib.parse.urlencode(parameters)}", timeout=30) as answer:
        return json.load(answer)["data"]["result"]


@contextmanager
def prometheus(target: str) -> Iterator[str]:
    """The URL of its API; it scrapes as deploy/grafana/prometheus.yml says, but this target."""
    program = shutil.which("prometheus")
    if program is None:
        raise SystemExit("needs prometheus (Debian: apt-get install prometheus)")
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "prometheus.yml"
        path.write_text((FOLDER / "prometheus.yml").read_text().replace("127.0.0.1:8000", target))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        command = [program, f"--config.file={path}", f"--storage.tsdb.path={scratch}/data"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen([*command, f"--web.listen-address={address}"], **quiet)
        try:
            yield f"http://{address}/api/v1"
        finally:
            end(process)


def ask(api: str, target: dict[str, Any], model: str, began: float, ended: float) -> list[Series]:
    query = target["expr"].replace("$model", model).replace("$__rate_interval", f"{RATE_S}s")
    found = []
    for series in get(f"{api}/query_range", query=query, start=began, end=ended, step=SCRAPE_S):
        label = target["legendFormat"]
        for name, value in series["metric"].items():
            label = label.replace("{{" + name + "}}", value)
        points = [(at - began, float(value)) for at, value in series["values"]]
        points = [(at, value) for at, value in points if not math.isnan(value)]
        if points:
            found.append(Series(label, *(list(column) for column in zip(*points, strict=True))))
    if not found:
        raise SystemExit(f"no numbers for {query}")
    return found


def written(value: float, unit: str) -> str:
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit == "s":
        return f"{value:.3g} s" if value >= 1 else f"{1e3 * value:.3g} ms"
    number = (
        f"{value / 1e3:.3g}k" if value >= 10_000 else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"
    )
    return f"{number}/s" if unit == "reqps" else number


def draw(axes: Axes, panel: dict[str, Any], found: list[Series]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    unit, custom = defaults["unit"], defaults.get("custom", {})
    axes.set_facecolor(PANEL)
    at = 0.0 if panel["type"] == "stat" else -46 / (panel["gridPos"]["w"] * UNIT_PX - 70)
    axes.set_title(panel["title"], loc="left", x=at, fontsize=8, color=INK, pad=5)
    axes.tick_params(colors=INK, labelsize=6.5, length=0)
    for side in axes.spines.values():
        side.set_color(FAINT)
    if panel["type"] == "stat":
        (series,) = found
        axes.set_xticks([]), axes.set_yticks([])
        axes.fill_between(series.times, series.values, color=COLORS[0], alpha=0.25, linewidth=0)
        axes.set_ylim(0, max(max(series.values), 1e-9) * 2.2)
        axes.text(
            0.5, 0.66, written(series.values[-1], unit), fontsize=19, color=COLORS[0],
            transform=axes.transAxes, ha="center", va="center",
        )  # fmt: skip
        return
    if "stacking" in custom:
        times = sorted({at for series in found for at in series.times})
        heights = [[dict(zip(s.times, s.values, strict=True)).get(at, 0.0) for at in times] for s in found]
        axes.stackplot(times, heights, labels=[s.label for s in found], colors=COLORS, alpha=0.55)
    else:
        for series, color in zip(found, COLORS, strict=False):
            axes.plot(series.times, series.values, color=color, linewidth=1.2, label=series.label)
            axes.fill_between(series.times, series.values, color=color, alpha=0.08, linewidth=0)
    axes.grid(color=FAINT, linewidth=0.5)
    axes.set_ylim(
        0, defaults.get("max", axes.get_ylim()[1] if axes.get_ylim()[1] > 0.06 or unit == "s" else 1)
    )
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: written(value, unit)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{int(value) // 60}:{int(value) % 60:02}"))
    axes.legend(
        loc="upper left", bbox_to_anchor=(-0.02, -0.1), ncols=3, fontsize=6.5, labelcolor=INK,
        handlelength=1, columnspacing=1, borderaxespad=0, frameon=False,
    )  # fmt: skip


def place(figure: Figure, panel: dict[str, Any], height_px: int) -> Axes:
    """Axes inside the panel's cell, with room for the title, the labels and the legend."""
    at, width_px = panel["gridPos"], COLUMNS * UNIT_PX
    left, top = at["x"] * UNIT_PX, at["y"] * ROW_PX
    width, height = at["w"] * UNIT_PX, at["h"] * ROW_PX
    cell = (left + 4, height_px - top - height + 4, width - 8, height - 8)
    scaled = [cell[0] / width_px, cell[1] / height_px, cell[2] / width_px, cell[3] / height_px]
    card = Rectangle((scaled[0], scaled[1]), scaled[2], scaled[3], color=PANEL, zorder=-1)
    card.set_transform(figure.transFigure)
    figure.patches.append(card)
    before, below = (8, 6) if panel["type"] == "stat" else (52, 48)
    inner = (cell[0] + before, cell[1] + below, cell[2] - before - 10, cell[3] - below - 24)
    return figure.add_axes(
        (inner[0] / width_px, inner[1] / height_px, inner[2] / width_px, inner[3] / height_px)
    )


def picture(board: dict[str, Any], answers: dict[int, list[Series]], path: Path) -> None:
    height_px = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in board["panels"]) * ROW_PX
    figure = plt.figure(figsize=(COLUMNS * UNIT_PX / DPI, height_px / DPI), dpi=DPI, facecolor=PAPER)
    for panel in board["panels"]:
        if panel["type"] == "row":
            at = (0.006, 1 - (panel["gridPos"]["y"] + 0.5) * ROW_PX / height_px)
            figure.text(*at, panel["title"], fontsize=10, color=INK, va="center", weight="bold")
        else:
            draw(place(figure, panel, height_px), panel, answers[panel["id"]])
    figure.savefig(path, facecolor=PAPER)
    rgb = Image.open(path).convert("RGB")
    rgb.quantize(256, Image.Quantize.MAXCOVERAGE).save(path, optimize=True)  # a third of the file


def wrong_request(url: str) -> None:
    """For the panel of responses by status."""
    headers = {"content-type": "application/json"}
    try:
        urllib.request.urlopen(urllib.request.Request(f"{url}/v1/completions", b'{"prompt": 3.5}', headers))
    except urllib.error.HTTPError:
        return
    raise SystemExit("a wrong request was answered")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path, default=ROOT / "docs" / "board.png")
    parser.add_argument("--seconds", type=float, default=240.0, help="that the load lasts")
    options = parser.parse_args()
    board = json.loads((FOLDER / "blink.json").read_text())
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    with served_demo(*SERVER) as url, prometheus(url.removeprefix("http://")) as api, load(url, *TALK):
        began = time.time()
        while time.time() < began + options.seconds:
            time.sleep(7)
            wrong_request(url)
        (model,) = {
            s["metric"]["model_name"] for s in get(f"{api}/query", query="blink:num_requests_running")
        }
        span = (began + RATE_S, time.time())
        answers = {p["id"]: [s for t in p["targets"] for s in ask(api, t, model, *span)] for p in panels}
    picture(board, answers, options.file)
    print(
        f"{sum(len(p['targets']) for p in panels)} queries of {len(panels)} panels answered: {options.file}"
    )


if __name__ == "__main__":
    main()
