"""blink explain: the table, what it is for programs, and what it refuses."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from blink.cli import main
from gpu_backend.devices.select import ENGINES

ROOT = Path(__file__).resolve().parents[2]
SHAPES = ROOT / "scripts" / "bench" / "shapes"
LLAMA = SHAPES / "llama-3-8b.json"


KNOWN: dict[tuple[str, ...], dict[str, Any]] = {}  # to plan all steps of a model takes seconds


def explained(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """What the command says in JSON, which no test changes."""
    if words not in KNOWN:
        assert main(["explain", *words, "--json"]) == 0
        KNOWN[words] = json.loads(capsys.readouterr().out)
    return KNOWN[words]


def step_of(found: dict[str, Any], kind: str, tokens: int) -> dict[str, Any]:
    return next(step for step in found["steps"] if (step["kind"], step["tokens"]) == (kind, tokens))


@pytest.mark.parametrize("name", ["llama-3-8b", pytest.param("qwen3-30b-a3b", marks=pytest.mark.slow)])
def test_the_documents_show_what_it_prints(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    document = (ROOT / "docs" / f"explain-{name}.md").read_text()
    _, command, _, printed, _ = document.split("```")
    words = shlex.split(command.strip().removeprefix("sh"))
    assert words[:2] == ["blink", "explain"]
    assert main(words[1:]) == 0
    assert printed.removeprefix("text\n") == capsys.readouterr().out


@pytest.mark.slow
def test_a_few_sizes_stand_for_all(capsys: pytest.CaptureFixture[str]) -> None:
    few, every = explained(capsys, str(LLAMA)), explained(capsys, str(LLAMA), "--all")
    assert len(few["steps"]) < 10 < len(every["steps"]) == few["shapes"]
    assert {step["kind"] for step in few["steps"]} == {"decode", "prefill", "mixed"}
    assert all(step in every["steps"] for step in few["steps"])


def test_one_row_of_a_dense_model_is_one_kernel_that_reads_all_weights(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = explained(capsys, str(LLAMA), "--context", "1")
    step = step_of(found, "decode", 1)
    assert [row["family"] for row in step["rows"]] == ["gate", "megakernel", "sample"]
    model = step["rows"][1]
    embedding = 2 * 128256 * 4096  # of which a row is read
    assert model["bytes"] == pytest.approx(found["weight_bytes"] - embedding, rel=1e-3)
    assert (model["bound"], model["floor_us"]) == ("memory", pytest.approx(1e6 * model["bytes"] / 4.5e12))


def test_layers_that_are_alike_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    step = step_of(explained(capsys, str(LLAMA)), "decode", 128)
    counts = {row["operation"]: row["count"] for row in step["rows"]}
    assert counts["gate_up (128 x 28672 x 4096)"] == 32
    assert counts["RmsNorm"] == 65
    launches = sum(row["count"] * len(row["launches"]) for row in step["rows"])
    assert launches == step["launches"]


@pytest.mark.slow
def test_it_says_why_a_faster_kernel_does_not_serve(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(SHAPES / "phi-4.json"), "--why"]) == 0
    printed = capsys.readouterr().out
    assert "qkv (512 x 7680 x 5120): not skinny_gemm, 512 rows, and cuBLAS is faster beyond 64" in printed


@pytest.mark.slow
def test_another_gpu_has_other_floors_and_less_room(capsys: pytest.CaptureFixture[str]) -> None:
    h100, h200 = (explained(capsys, str(LLAMA), "--gpu", gpu) for gpu in ("h100", "h200"))
    assert h100["kv_pages"] < h200["kv_pages"]
    assert step_of(h100, "decode", 32)["floor_us"] > step_of(h200, "decode", 32)["floor_us"]


def test_limits_are_those_of_a_backend(capsys: pytest.CaptureFixture[str]) -> None:
    found = explained(capsys, "demo", "--max-batch", "4", "--max-prefill-tokens", "64")
    assert max(step["tokens"] for step in found["steps"] if step["kind"] == "decode") == 4
    assert found["limits"]["max_prefill_tokens"] == 64


def test_a_cache_in_fp8_has_twice_the_pages(capsys: pytest.CaptureFixture[str]) -> None:
    halves, fp8 = (explained(capsys, "demo", "--kv-cache-dtype", kind) for kind in ("auto", "fp8"))
    assert fp8["page_bytes"] == halves["page_bytes"] / 2
    assert fp8["kv_pages"] == pytest.approx(2 * halves["kv_pages"], rel=0.02)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "architectures: GPT2LMHeadModel"),
        ({"intermediate_size": 16 * 14336}, "the model does not fit: weights"),
    ],
)
def test_what_cannot_be_served_is_refused_with_the_reason(
    changes: dict[str, Any], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(LLAMA.read_text()), **changes}))
    assert main(["explain", str(path)]) == 1
    printed = capsys.readouterr()
    assert (printed.out, reason in printed.err) == ("", True)


def test_a_file_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(tmp_path / "none.json")]) == 1
    assert "none.json" in capsys.readouterr().err


@pytest.mark.slow
def test_steps_with_plans_of_tensorrt(capsys: pytest.CaptureFixture[str]) -> None:
    """The matmuls' bytes and operations are the plans', and the memory is what the native engine has."""
    plans, native = explained(capsys, str(LLAMA), "--engine", "tensorrt"), explained(capsys, str(LLAMA))
    step = step_of(plans, "prefill", 512)
    named = {row["operation"]: row["count"] for row in step["rows"] if row["family"] == "tensorrt"}
    last = "o, gate_up, down, head (16 rows)"
    assert named == {"qkv (512 rows)": 1, "o, gate_up, down, qkv (512 rows)": 31, last: 1}
    assert step["floor_us"] == pytest.approx(step_of(native, "prefill", 512)["floor_us"], rel=0.02)
    assert plans["weight_bytes"] == native["weight_bytes"]


def test_pages_are_not_promised_beside_plans_whose_memory_is_not_known(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path, told = tmp_path / "config.json", "Fewer fit: what the library's plans work in"
    path.write_text(json.dumps({**json.loads(LLAMA.read_text()), "num_hidden_layers": 1}))
    for engine in ENGINES:
        words = [str(path), "--engine", engine, "--max-batch", "2", "--max-prefill-tokens", "32"]
        assert main(["explain", *words]) == 0
        assert (told in capsys.readouterr().out) == (engine == "tensorrt")
        assert explained(capsys, *words)["all_counted"] == (engine == "native")


def test_what_plans_do_not_serve(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(SHAPES / "qwen3-30b-a3b.json"), "--engine", "tensorrt"]) == 1
    assert "--engine tensorrt does not serve mixtures of experts" in capsys.readouterr().err
    assert main(["explain", str(LLAMA), "--quantization", "fp8", "--engine", "tensorrt"]) == 1
    assert "--engine tensorrt does not serve weights in fp8" in capsys.readouterr().err
