"""Kernels compile and link here without a GPU and without a CUDA toolkit."""

import fcntl
import os
import re
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from limits import WAIT_S
from model_config import model_config
from waiting import wait_until

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-bindings: scripts/setup gpu")

from lowered import assert_compiled, lowered_symbols

from gpu_backend.cuda import cache as kept_cuda
from gpu_backend.cuda import compile as compile_cuda
from gpu_backend.cuda import toolkit
from gpu_backend.cuda.compile import Compilation, CompileError, compile_module, compile_templates, source_root
from gpu_backend.cuda.compile_ahead import CompileAhead
from gpu_backend.models.description import Experts

ELF = b"\x7fELF"
LAUNCHER = """
#include "kernels/step.h"
extern "C" __global__ void launcher(struct blink_step_head* head, cudaGraphExec_t child, int* result) {
  cudaGraphExec_t self = cudaGetCurrentGraphExec();
  result[0] = cudaGraphLaunch(child, cudaStreamGraphFireAndForget);
  result[1] = cudaGraphLaunch(self, cudaStreamGraphTailLaunch);
  head->fault = result[0] + result[1];
}
"""


SIZES: dict[str, Any] = {"n_heads": 32, "n_kv_heads": 4, "head_dim": 128}
CONFIG = model_config(**SIZES)


@pytest.fixture
def launcher(tmp_path: Path, cache: Path) -> Path:
    """A source of the tests' own, and a cache that holds nothing yet."""
    path = tmp_path / "launcher.cu"
    path.write_text(LAUNCHER)
    return path


def test_device_side_graph_launch_links_with_the_device_runtime(launcher: Path) -> None:
    cubin = compile_module(launcher, "sm_90a", rdc=True)
    assert cubin.startswith(ELF)
    assert b"launcher" in cubin
    assert b"cudaGraphLaunch" in cubin


def test_the_second_compilation_comes_from_the_cache(
    launcher: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compile_module(launcher, "sm_90a", rdc=True)
    assert len(list(cache.iterdir())) == 1
    monkeypatch.setattr(compile_cuda, "_compile", lambda *_: pytest.fail("compiled again"))
    assert compile_module(launcher, "sm_90a", rdc=True) == first


def test_what_another_process_compiles_is_awaited(
    launcher: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here a thread. Two that start at once on one machine, or tests side by side, compile once."""
    compiled, began, goes_on = [], threading.Event(), threading.Event()
    real = compile_cuda._compile

    def slowly(*arguments: Any) -> tuple[bytes, dict[str, str]]:
        compiled.append(threading.get_ident())
        began.set()
        assert goes_on.wait(60)
        return real(*arguments)

    monkeypatch.setattr(compile_cuda, "_compile", slowly)
    with ThreadPoolExecutor() as threads:
        first = threads.submit(compile_module, launcher, "sm_90a", rdc=True)
        assert began.wait(60)
        second = threads.submit(compile_module, launcher, "sm_90a", rdc=True)
        with pytest.raises(TimeoutError):
            second.result(0.2)
        goes_on.set()
        assert first.result() == second.result()
    assert len(compiled) == 1
    assert len(list(cache.iterdir())) == 1  # no lock is left


def test_nobody_waits_for_ever_for_another_process(
    launcher: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kept_cuda, "WAIT_S", 0.1)
    entry = Compilation(launcher, "sm_90a", rdc=True).entry()
    with ThreadPoolExecutor() as threads, kept_cuda.making(entry):
        compiled = threads.submit(compile_module, launcher, "sm_90a", rdc=True).result(WAIT_S)
        assert compiled.startswith(ELF)
        assert entry.with_suffix(".lock").exists()  # it is not theirs who have waited
    assert capsys.readouterr().err.count("waiting for another process") == 1


def test_those_who_have_waited_in_vain_do_not_wait_for_each_other(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one process could not compile, the others try side by side."""
    together = threading.Barrier(3)
    refused: set[int] = set()  # descriptors of the lock, one of each who waits
    takes = kept_cuda._takes

    def noted(descriptor: int) -> bool | None:
        if (has := takes(descriptor)) is False:
            refused.add(descriptor)
        return has

    monkeypatch.setattr(kept_cuda, "_takes", noted)

    def wait_and_try() -> None:
        with kept_cuda.making(cache / "entry.cubin"):
            together.wait(WAIT_S)

    with ThreadPoolExecutor() as threads:
        with kept_cuda.making(cache / "entry.cubin"):
            waiting = [threads.submit(wait_and_try) for _ in range(3)]
            wait_until(lambda: len(refused) == 3, what="three who wait")
            time.sleep(0.2)
            assert together.n_waiting == 0
        for one in waiting:
            one.result(WAIT_S)


def test_a_lock_that_cannot_be_removed_is_no_error(launcher: Path, cache: Path) -> None:
    """As in a cache that became read-only, with a lock that a killed process has left."""
    entry = Compilation(launcher, "sm_90a", rdc=True).entry()
    lock = entry.with_suffix(".lock")
    with kept_cuda.making(entry):
        lock.unlink()
        lock.mkdir()  # nor can unlink remove this
    assert compile_module(launcher, "sm_90a", rdc=True).startswith(ELF)


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_nobody_waits_for_a_lock_that_others_may_hold(launcher: Path, cache: Path, mode: int) -> None:
    entry = Compilation(launcher, "sm_90a", rdc=True).entry()
    lock = entry.with_suffix(".lock")
    cache.mkdir(parents=True)
    lock.touch()
    lock.chmod(mode)
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        began = time.monotonic()
        compile_module(launcher, "sm_90a", rdc=True)
    assert time.monotonic() - began < kept_cuda.WAIT_S / 2


def test_the_cache_key_covers_source_options_and_included_headers(
    launcher: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_module(launcher, "sm_90a", rdc=True)
    compile_module(launcher, "sm_90a", {"UNUSED": 1}, rdc=True)
    launcher.write_text(LAUNCHER + "// changed\n")
    compile_module(launcher, "sm_90a", rdc=True)
    assert len(list(cache.iterdir())) == 3
    root = tmp_path / "sources"
    headers = [*source_root().glob("kernels/step*.h"), *source_root().glob("ringbuffer/*.h")]
    for path in (header.relative_to(source_root()) for header in headers):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes((source_root() / path).read_bytes())
    monkeypatch.setattr(compile_cuda, "source_root", lambda: root)
    compile_module(launcher, "sm_90a", rdc=True)
    with (root / "ringbuffer/ring.h").open("a") as header:
        header.write("/* changed */\n")
    compile_module(launcher, "sm_90a", rdc=True)
    assert len(list(cache.iterdir())) == 5


def test_the_cache_keeps_what_was_used_last(
    launcher: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_cuda, "CACHE_ENTRIES", 2)
    compile_module(launcher, "sm_90a", {"N": 1}, rdc=True)
    compile_module(launcher, "sm_90a", {"N": 2}, rdc=True)
    first, second = sorted(cache.iterdir(), key=lambda entry: entry.stat().st_mtime)
    for age, entry in enumerate((second, first)):  # the file system's clock may be coarser than a compilation
        os.utime(entry, (time.time() - 60 - age,) * 2)
    compile_module(launcher, "sm_90a", {"N": 1}, rdc=True)
    compile_module(launcher, "sm_90a", {"N": 3}, rdc=True)
    assert len(list(cache.iterdir())) == 2
    assert first.exists()
    assert not second.exists()


def test_a_read_only_cache_is_no_error(
    launcher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))  # no directory can be made below a file
    assert compile_module(launcher, "sm_90a", rdc=True).startswith(ELF)


def test_a_compile_error_shows_the_log(launcher: Path) -> None:
    launcher.write_text('extern "C" __global__ void f() { undefined_name(); }')
    with pytest.raises(CompileError, match=r'(?s)launcher\.cu.*"undefined_name" is undefined'):
        compile_module(launcher, "sm_90a")


def test_a_link_error_shows_the_log(launcher: Path) -> None:
    launcher.write_text('extern "C" __device__ void missing(); extern "C" __global__ void f() { missing(); }')
    with pytest.raises(CompileError, match=r"(?s)nvJitLink.*missing"):
        compile_module(launcher, "sm_90a", rdc=True)


def test_templates_are_instantiated_by_name(launcher: Path) -> None:
    launcher.write_text("template <int N> __global__ void fill(int* out) { *out = N; }")
    cubin, symbols = compile_templates(launcher, "sm_90a", ["fill<3>", "fill<4>"])
    assert all(symbols[name].encode() in cubin for name in ("fill<3>", "fill<4>"))
    assert compile_templates(launcher, "sm_90a", ["fill<3>", "fill<4>"]) == (cubin, symbols)


def test_a_missing_library_names_its_wheel() -> None:
    with pytest.raises(toolkit.ToolkitError, match="pip install some-wheel"):
        toolkit.library("libnowhere.a", "some-wheel")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "n_heads", "head_dim", "among"),
    [
        ("bfloat16", 32, 128, ""),
        ("float16", 8, 64, ""),
        ("bfloat16", 12, 32, "attention|append|rope"),
        ("float16", 64, 16, "attention|append|rope"),
    ],
)
def test_the_engine_compiles_for_every_type_and_head_size(
    dtype: str, n_heads: int, head_dim: int, among: str
) -> None:
    """For the rarer sizes, what depends on them."""
    config = model_config(**{**SIZES, "dtype": dtype, "n_heads": n_heads, "head_dim": head_dim})
    names = [name for name in lowered_symbols(config) if re.search(among, name)]
    assert any("attention" in name for name in names)
    assert_compiled(names)


@pytest.mark.slow
def test_experts_compile_for_every_type() -> None:
    experts = Experts(count=128, per_token=8, intermediate=768, renormalise=True)
    for dtype in ("bfloat16", "float16"):
        names = lowered_symbols(model_config(**SIZES, dtype=dtype, experts=experts))
        names = [name for name in names if "expert" in name or "moe" in name]
        assert len(names) == 10
        assert_compiled(names)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("half", "form"), [("__nv_bfloat16", "blink::kScaleByRow"), ("__half", "blink::kScaleByBlock")]
)
def test_experts_compile_for_fp8(half: str, form: str) -> None:
    instances = [
        "moe_gemv_kernel<{}, blink::kGateUp, blink::kRoutingFused, {}>",
        "moe_gemv_kernel<{}, blink::kGateUp, blink::kRoutingGiven, {}>",
        "moe_gemv_kernel<{}, blink::kDown, blink::kRoutingGiven, {}>",
        "moe_single_token_gate_up_kernel<{}, {}>",
        "moe_single_token_down_kernel<{}, {}>",
        "moe_grouped_fp8_gemm_kernel<{}, blink::kGateUp, {}>",
        "moe_grouped_fp8_gemm_kernel<{}, blink::kDown, {}>",
        "resident_gemv_kernel<{}, blink::kEpilogueHalf, 2, true, {}>",
        "resident_gemv_kernel<{}, blink::kEpilogueAdd, 4, false, {}>",
    ]
    names = [f"blink::{instance.format(half, form)}" for instance in instances]
    names.append(f"blink::router_kernel<{half}, __half>")
    assert_compiled(names)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("half", "form"),
    [("__nv_bfloat16", "kInt4ByGroup"), ("__nv_bfloat16", "kFp4By32"), ("__half", "kFp4By16")],
)
def test_kernels_compile_for_codes_of_four_bits(half: str, form: str) -> None:
    instances = [
        "gemv_kernel<{}, blink::kEpilogueSilu, 1, {}>",
        "skinny_gemm_kernel<{}, blink::kEpilogueSilu, 64, 2, 1, {}>",
        "skinny_gemm_kernel<{}, blink::kEpilogueAdd, 16, 1, 4, {}>",
        "resident_gemv_kernel<{}, blink::kEpilogueHalf, 1, true, {}>",
        "moe_gemv_kernel<{}, blink::kGateUp, blink::kRoutingFused, {}>",
        "moe_gemv_kernel<{}, blink::kDown, blink::kRoutingGiven, {}>",
        "moe_gemv_kernel<{}, blink::kLongDown, blink::kRoutingGiven, {}>",
        "moe_single_token_gate_up_kernel<{}, {}>",
        "moe_single_token_down_kernel<{}, {}>",
        "moe_single_codes_gate_up_kernel<{}, {}>",
        "moe_single_codes_down_kernel<{}, {}>",
        "moe_grouped_codes_gemm_kernel<{}, blink::kGateUp, {}>",
        "moe_grouped_codes_gemm_kernel<{}, blink::kDown, {}>",
        "unpack_kernel<{}, {}>",
    ]
    names = [f"blink::{instance.format(half, f'blink::{form}')}" for instance in instances]
    assert_compiled(names)


def test_the_scheduler_links_with_the_device_runtime() -> None:
    source = source_root() / "kernels" / "scheduler" / "scheduler.cu"
    assert b"blink_scheduler" in compile_module(source, "sm_90a", rdc=True)


def test_the_probe_links_with_the_device_runtime() -> None:
    assert b"blink_probe_parent" in compile_module(source_root() / "kernels" / "probe.cu", "sm_90a", rdc=True)


def test_what_is_compiled_ahead_is_found(
    launcher: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_cuda, "_compile", lambda *_: pytest.fail("compiled here"))
    CompileAhead(launcher, "sm_90a").wait()
    assert compile_module(launcher, "sm_90a", rdc=True).startswith(ELF)


def test_what_cannot_be_compiled_ahead_is_told_by_whoever_needs_it(launcher: Path) -> None:
    launcher.write_text('extern "C" __global__ void f() { undefined_name(); }')
    CompileAhead(launcher, "sm_90a").wait()
    with pytest.raises(CompileError, match="undefined_name"):
        compile_module(launcher, "sm_90a", rdc=True)


def test_nobody_compiles_ahead_what_is_there(launcher: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_module(launcher, "sm_90a", rdc=True)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))
    CompileAhead(launcher, "sm_90a").wait()


def test_compiling_ahead_can_be_given_up(cache: Path) -> None:
    """Not even a large source holds up whoever gives up, and nothing is left behind, but a lock that nobody
    has any more."""
    ahead = CompileAhead(source_root() / "kernels" / "scheduler" / "scheduler.cu", "sm_90a")
    assert ahead._process is not None
    process = ahead._process._process
    assert process is not None
    time.sleep(2.0)
    ahead.close()
    assert process.returncode == -signal.SIGKILL  # it was not waited for
    assert all(path.suffix == ".lock" for path in cache.glob("*"))
