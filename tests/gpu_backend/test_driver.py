"""Without a GPU the CUDA layer says in one sentence what is missing."""

import subprocess
import sys

import pytest

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings: pip install 'blink-serving[gpu]'")


def run(code: str) -> str:
    """Runs `code` in a fresh process that sees no GPU; what it printed."""
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env={"CUDA_VISIBLE_DEVICES": "", "PATH": "", "PYTHONPATH": ":".join(sys.path)},
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_first_use_raises_cuda_unavailable_with_the_reason() -> None:
    out = run(
        "from gpu_backend.cuda.driver import CudaUnavailable, Device\n"
        "try:\n"
        "    Device()\n"
        "except CudaUnavailable as error:\n"
        "    print('refused:', error)\n"
    )
    assert out.startswith("refused: no NVIDIA driver") or "found no usable GPU" in out


def test_missing_bindings_name_the_extra() -> None:
    out = run(
        "import sys\n"
        "sys.modules['cuda.bindings'] = None\n"
        "from gpu_backend.cuda.driver import CudaUnavailable, api\n"
        "try:\n"
        "    api()\n"
        "except CudaUnavailable as error:\n"
        "    print(error)\n"
    )
    assert "pip install 'blink-serving[gpu]'" in out
