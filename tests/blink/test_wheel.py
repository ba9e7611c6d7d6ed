"""What a wheel carries: it must serve, and compile for a GPU, far from the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from serve_process import ROOT, ServeProcess, complete

pytest.importorskip("scikit_build_core", reason="needs the build tools: scripts/setup installs them")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with nothing but the installed wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = [*pip, "wheel", str(ROOT), "--no-deps", "--no-build-isolation", f"--wheel-dir={folder}"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # cmake and ninja
    run([*build, f"--config-settings=build-dir={folder}/build"], env={**os.environ, "PATH": path})
    (wheel,) = folder.glob("*.whl")
    run([*pip, "install", str(wheel), "--no-deps", f"--target={folder}/site"])
    return folder / "site"


def run(command: list[str], **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


def test_it_serves_its_own_demo_model(site: Path) -> None:
    server = ServeProcess(directory=site, environment={"PYTHONPATH": str(site)})
    try:
        assert complete(server.wait_ready().client, "What is 2 + 3?").strip() == "5"
        assert server.stop() == 0
    finally:
        server.close()


def test_it_has_every_source_that_a_gpu_needs(site: Path) -> None:
    pytest.importorskip(
        "cuda.bindings.nvrtc", reason="needs cuda-bindings: pip install 'blink-serving[compile]'"
    )
    program = (
        "from gpu_backend.cuda.compile import compile_module, source_root\n"
        "for name in ('probe.cu', 'scheduler/scheduler.cu'):\n"
        "    compile_module(source_root() / 'kernels' / name, 'sm_90', rdc=True)\n"
        "print(source_root())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(site), "XDG_CACHE_HOME": str(site.parent / "cache")}
    root = run([sys.executable, "-c", program], env=environment, cwd=site)
    assert root.strip() == str(site / "gpu_backend" / "_sources")
