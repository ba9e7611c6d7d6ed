"""The host engine's thread pool under ThreadSanitizer."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_thread_pool_has_no_race(tmp_path: Path) -> None:
    program = tmp_path / "thread_pool_test"
    sources = [ROOT / "tests/kernels/thread_pool_test.cpp", ROOT / "kernels/thread_pool.cpp"]
    flags = ["-std=c++17", "-O1", "-g", "-fsanitize=thread", "-pthread", f"-I{ROOT}"]
    subprocess.run(["g++", *flags, *map(str, sources), "-o", str(program)], check=True, timeout=120)
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
