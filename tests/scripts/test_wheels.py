"""scripts/wheels: what it builds works on machines without a compiler, as far as this one can show."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from limits import PROGRAM_S
from needs import skip_if_missing
from serve_process import ROOT, ServeProcess, complete

pytestmark = [pytest.mark.alone, pytest.mark.slow, pytest.mark.timeout(1800)]

MACHINES = {"x86_64": 62, "aarch64": 183}  # elf.h, EM_*


@pytest.fixture(scope="module")
def wheels() -> dict[str, Path]:
    done = subprocess.run([ROOT / "scripts/wheels"], capture_output=True, text=True, timeout=1500)
    skip_if_missing("wheels", done)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return {name: next((ROOT / "build/wheels").glob(f"*_{name}.whl")) for name in MACHINES}


@pytest.mark.parametrize("machine", MACHINES)
def test_every_library_is_there_for_its_machine(
    wheels: dict[str, Path], machine: str, tmp_path: Path
) -> None:
    assert "manylinux_2_2" in wheels[machine].name
    with zipfile.ZipFile(wheels[machine]) as archive:
        names = [name for name in archive.namelist() if name.endswith(".so")]
        assert {Path(name).name for name in names} == {
            "libblink_host.so", "libblink_frontend.so", "libblink_rdma.so", "libblink_verbs.so",
        }  # fmt: skip
        for name in names:
            header = archive.read(name)[:20]
            assert int.from_bytes(header[18:20], "little") == MACHINES[machine]


def test_it_serves_where_there_is_no_compiler(wheels: dict[str, Path], tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv/bin/python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", f"--python={python}", "install"]
    subprocess.run([*pip, "--no-deps", str(wheels["x86_64"])], check=True, timeout=PROGRAM_S)
    (site_packages,) = (tmp_path / "venv/lib").glob("python*/site-packages")
    (site_packages / "outer.pth").write_text(sysconfig.get_path("purelib"))
    empty = tmp_path / "empty"
    empty.mkdir()
    server = ServeProcess(python=python, directory=tmp_path, environment={"PATH": str(empty)})
    try:
        assert complete(server.wait_ready().client, "What is 2 + 3?").strip() == "5"
        assert server.stop() == 0
    finally:
        server.close()


def test_the_frontends_library_runs_on_aarch64(wheels: dict[str, Path], tmp_path: Path) -> None:
    compiler, emulator = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64-static")
    if compiler is None or emulator is None:
        pytest.skip("needs what scripts/cross installs")
    with zipfile.ZipFile(wheels["aarch64"]) as archive:
        library = archive.extract("nic_frontend/libblink_frontend.so", tmp_path)
    program = tmp_path / "dlopen"
    source = Path(__file__).with_name("dlopen.c")
    subprocess.run([compiler, "-O2", source, "-o", program, "-ldl"], check=True, timeout=PROGRAM_S)
    done = subprocess.run(
        [emulator, "-L", "/usr/aarch64-linux-gnu", program, library],
        capture_output=True, text=True, timeout=PROGRAM_S, env=os.environ,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
