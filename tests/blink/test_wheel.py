"""What a wheel carries: it must serve, and compile for a GPU, far from the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from serve_process import ROOT, ServeProcess, complete

from blink.model_directory import demo_directory
from gpu_backend.cuda import compile as compile_cuda
from gpu_backend.cuda.kernels import kernel_names
from gpu_backend.models.registry import read_model

pytest.importorskip("scikit_build_core", reason="needs the build tools: scripts/setup installs them")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a virtual environment with the wheel, and the packages of this one behind it."""
    folder = tmp_path_factory.mktemp("wheel")
    venv.create(folder / "venv", with_pip=False)
    found = folder / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = [*pip, "wheel", str(ROOT), "--no-deps", "--no-build-isolation", f"--wheel-dir={folder}"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # cmake and ninja
    run([*build, f"--config-settings=build-dir={folder}/build"], env={**os.environ, "PATH": path})
    (wheel,) = folder.glob("*.whl")
    run([*pip, f"--python={found}", "install", str(wheel), "--no-deps"])
    # As a line of a .pth, a directory's own .pth files do not count: an editable install there stays out.
    (site_packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (site_packages / "outer.pth").write_text(sysconfig.get_path("purelib"))
    return found


def run(command: list[str], **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


def test_it_serves_its_own_demo_model(python: Path) -> None:
    server = ServeProcess(python=python, directory=python.parent)
    try:
        assert complete(server.wait_ready().client, "What is 2 + 3?").strip() == "5"
        assert server.stop() == 0
    finally:
        server.close()


def test_its_antagonists_work(python: Path) -> None:
    program = (
        "from blink.bench.antagonists import Antagonists\n"
        "with Antagonists(('sort',), 1, (0,)) as others: pass\n"
        "print(*others.work)"
    )
    assert run([str(python), "-c", program], cwd=python.parent) == "sort\n"


def test_it_has_every_source_that_a_gpu_needs(
    python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs pip install 'blink-serving[compile]'")
    program = "from gpu_backend.cuda.compile import source_root; print(source_root())"
    root = Path(run([str(python), "-c", program], cwd=python.parent).strip())
    assert python.parent.parent in root.parents
    monkeypatch.setattr(compile_cuda, "source_root", lambda: root)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("probe.cu", "scheduler/scheduler.cu"):
        assert compile_cuda.compile_module(root / "kernels" / name, "sm_90a", rdc=True)
    config = read_model(demo_directory())
    names = list(kernel_names(config).values())
    assert compile_cuda.compile_templates(root / "kernels" / "engine.cu", "sm_90a", names)
