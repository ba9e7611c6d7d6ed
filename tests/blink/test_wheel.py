"""What a wheel carries: it must serve, and compile for a GPU, far from the checkout, which is left alone."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from limits import PROGRAM_S
from lowered import lowered_symbols
from serve_process import ROOT, ServeProcess, complete

from blink.model_directory import demo_directory
from gpu_backend.cuda import compile as compile_cuda
from gpu_backend.models.registry import read_model

pytest.importorskip("scikit_build_core", reason="needs the build tools: scripts/setup installs them")

pytestmark = pytest.mark.slow


BUILD = ROOT / "build" / "native"  # of the editable install that scripts/setup makes


def what_was_built() -> dict[str, tuple[int, int]]:
    """The checkout's own build and the libraries that it loads: inode and time of each file."""
    files = [path for path in BUILD.rglob("*") if path.is_file() and not path.name.startswith(".ninja_")]
    for package in ("gpu_backend", "nic_frontend", "blink"):
        files += [*(ROOT / package).glob("*.so"), *(ROOT / package).glob("bench/blink-*")]
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in files}


@pytest.fixture(scope="module")
def built_before() -> dict[str, tuple[int, int]]:
    return what_was_built()


@pytest.fixture(scope="module")
def python(built_before: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a virtual environment with the wheel, and the packages of this one behind it."""
    folder = tmp_path_factory.mktemp("wheel")
    venv.create(folder / "venv", with_pip=False)
    found = folder / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = [*pip, "wheel", str(ROOT), "--no-deps", "--no-build-isolation", f"--wheel-dir={folder}"]
    launcher = f"{sys.executable};{ROOT / 'tests' / 'cached_compiler.py'}"
    run(build, env={**with_build_tools(), "CMAKE_CXX_COMPILER_LAUNCHER": launcher})
    (wheel,) = folder.glob("*.whl")
    run([*pip, f"--python={found}", "install", str(wheel), "--no-deps"])
    # As a line of a .pth, a directory's own .pth files do not count: an editable install there stays out.
    (site_packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (site_packages / "outer.pth").write_text(sysconfig.get_path("purelib"))
    return found


def with_build_tools() -> dict[str, str]:
    """The environment, with cmake and ninja."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def run(command: list[str], **options: object) -> str:
    # type: ignore[call-overload]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_S, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


def test_it_serves_its_own_demo_model(python: Path) -> None:
    server = ServeProcess(python=python, directory=python.parent)
    try:
        assert complete(server.wait_ready().client, "What is 2 + 3?").strip() == "5"
        assert "<title>Blink</title>" in server.client.get("/").text
        assert server.stop() == 0
    finally:
        server.close()


def test_the_checkout_is_left_as_it_was(python: Path, built_before: dict[str, tuple[int, int]]) -> None:
    """And what is installed from it, editable, loads and can be built again."""
    assert what_was_built() == built_before
    if not (BUILD / "build.ninja").exists():
        pytest.skip("this checkout was not installed by scripts/setup")
    run(["cmake", "--build", str(BUILD)], env=with_build_tools())
    program = (
        "from nic_frontend.library import library; from gpu_backend.host_library import host_library\n"
        "library(), host_library()"
    )
    run([sys.executable, "-c", program], cwd=ROOT)


def test_its_antagonists_work(python: Path) -> None:
    program = (
        "from blink.bench.antagonists import Antagonists\n"
        "with Antagonists(('sort',), 1, (0,)) as others: pass\n"
        "print(*others.work)"
    )
    assert run([str(python), "-c", program], cwd=python.parent) == "sort\n"


def sources(root: Path) -> set[Path]:
    """Of the kernels and of what they include, from the root on."""
    files = [file for part in ("kernels", "ringbuffer") for file in (root / part).rglob("*")]
    return {file.relative_to(root) for file in files if file.suffix in compile_cuda.SOURCE_SUFFIXES}


def test_it_has_every_source_that_a_gpu_needs(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs scripts/setup compile")
    program = "from gpu_backend.cuda.compile import source_root; print(source_root())"
    root = Path(run([str(python), "-c", program], cwd=python.parent).strip())
    assert python.parent.parent in root.parents
    monkeypatch.setattr(compile_cuda, "source_root", lambda: root)
    assert sources(root) == sources(ROOT)  # the scheduler's too, which takes half a minute to compile
    assert compile_cuda.compile_module(root / "kernels" / "probe.cu", "sm_90a", rdc=True)
    name, *_ = lowered_symbols(read_model(demo_directory()))  # whichever it is, every source is read
    assert compile_cuda.compile_templates(root / "kernels" / "engine.cu", "sm_90a", [name])
