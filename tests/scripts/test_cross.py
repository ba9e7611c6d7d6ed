"""The native parts are right on aarch64, the processor of a DPU, as far as an emulation can show."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from needs import skip_if_missing

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_it_builds_for_aarch64_and_passes_the_native_tests() -> None:
    done = subprocess.run([ROOT / "scripts/cross"], capture_output=True, text=True, timeout=1100)
    skip_if_missing("cross", done)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    library = ROOT / "build/cross/with-rdma/install/nic_frontend/libblink_frontend.so"
    assert library.with_name("libblink_verbs.so").is_file()
    header = library.read_bytes()[:20]
    assert header[:4] == b"\x7fELF"
    assert int.from_bytes(header[18:20], "little") == 183  # EM_AARCH64
