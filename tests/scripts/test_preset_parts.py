"""What a preset needs of both servers and of a call is derived from it, and serves its longest request."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from bench import preset_parts
from bench.preset_parts import PresetWindows, fitting, is_preset, loads_of, preset_windows
from bench.servers import Blink, Vllm
from bench.shape import SHAPES

from blink.bench.presets import PRESETS

NAMES = sorted(filter(is_preset, PRESETS))
CALL_S = 465.0  # of ten minutes, without a server's start


def longest(preset: str) -> int:
    values = PRESETS[preset].values
    return int(values["input"].high + values["output"].high)


def model(shape: str, tmp_path: Path) -> Path:
    directory = tmp_path / shape
    directory.mkdir()
    (directory / "config.json").write_text((SHAPES / f"{shape}.json").read_text())
    return directory


def contexts(part: str, directory: Path) -> dict[str, str | None]:
    """That each server is started with."""
    arguments = argparse.Namespace(
        part=part, prefix_cache=False, vllm=directory, server_cores=(0,), frontend_cores=None, frontends=1,
        start_timeout=1.0, server_flag=None,
    )  # fmt: skip
    blink = Blink(arguments, directory, random_weights=True).command
    vllm = Vllm(arguments, directory, random_weights=True).command
    given = [word.removeprefix("--max-context=") for word in blink if word.startswith("--max-context=")]
    return {"blink": given[0] if given else None, "vllm": vllm[vllm.index("--max-model-len") + 1]}


@pytest.mark.parametrize("preset", NAMES)
def test_both_servers_have_the_context_of_a_presets_longest_request(preset: str, tmp_path: Path) -> None:
    found = contexts(preset, model("llama-3.1-8b", tmp_path))
    assert found["blink"] == found["vllm"]
    assert int(found["vllm"] or 0) >= longest(preset)


def test_parts_that_are_no_presets_have_the_usual_context(tmp_path: Path) -> None:
    directory = model("llama-3.1-8b", tmp_path)
    assert contexts("closed", directory) == {"blink": None, "vllm": "8192"}
    assert contexts("agents", directory) == {"blink": "32768", "vllm": "32768"}
    assert contexts("conversations,silybench-128-128", directory) == {"blink": "8192", "vllm": "8192"}


def test_a_model_with_a_shorter_context_is_refused(tmp_path: Path) -> None:
    directory = model("llama-3-8b", tmp_path)
    with pytest.raises(SystemExit, match="up to 9216 tokens, and the context of llama-3-8b is 8192"):
        contexts("inferencex-8k-1k", directory)
    assert contexts("silybench-2048-2048", directory)["vllm"] == "8192"


@pytest.mark.parametrize("preset", NAMES)
def test_a_window_and_a_drain_hold_the_longest_answer(preset: str) -> None:
    windows = preset_windows(preset, "llama-3.1-8b", None)
    answer_s = PRESETS[preset].values["output"].high * preset_parts.TPOT_S
    assert windows.window_s >= answer_s
    assert windows.drain_s > answer_s
    assert windows.longest_s > len(windows.loads) * (windows.window_s + windows.drain_s)


@pytest.mark.parametrize("preset", NAMES)
def test_calls_of_ten_minutes_measure_every_load_once(preset: str) -> None:
    rest = preset_windows(preset, "llama-3.1-8b", None)
    measured: list[float] = []
    while True:
        some, remaining = fitting(rest, CALL_S)
        assert some.longest_s <= CALL_S
        measured += some.loads
        if not remaining:
            break
        rest = PresetWindows(preset, remaining, rest.model)
    assert tuple(measured) == loads_of(preset)


def test_the_flags_are_of_the_chosen_loads() -> None:
    some = preset_windows("inferencex-8k-1k", "llama-3.1-8b", (4.0, 64.0))
    assert some.flags == ["--preset=inferencex-8k-1k", "--concurrency=4,64"]
    assert not some.is_whole
    assert preset_windows("mlperf-8b-server", "m", None).flags[1] == "--rate=10,20,40,60,80"
