"""Without a GPU the CUDA layer says in one sentence what is missing."""

import subprocess
import sys
from pathlib import Path

import fake_cuda
from limits import PROGRAM_S

from ringbuffer.version import install


def run(code: str, **environment: str) -> str:
    """Runs `code` in a fresh process that sees no GPU; what it printed."""
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        env={"CUDA_VISIBLE_DEVICES": "", "PATH": "", "PYTHONPATH": ":".join(sys.path), **environment},
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
    assert out.startswith(("refused: no NVIDIA driver", "refused: the NVIDIA driver sees no GPU"))


WITHOUT_BINDINGS = (
    "import sys\n"
    "sys.modules['cuda.bindings'] = None\n"
    "from gpu_backend.cuda.driver import CudaUnavailable, api\n"
    "try:\n"
    "    api()\n"
    "except CudaUnavailable as error:\n"
    "    print(type(error).__name__, error)\n"
)


def test_missing_bindings_name_the_extra(tmp_path: Path) -> None:
    out = run(
        WITHOUT_BINDINGS,
        LD_LIBRARY_PATH=str(fake_cuda.build(tmp_path) / "lib"),
        FAKE_CUDA_LOG=str(tmp_path / "log"),
    )
    assert out.startswith(f"CudaUnavailable no cuda-bindings: {install('gpu')}")


def test_without_a_gpu_nobody_is_sent_for_bindings() -> None:
    assert run(WITHOUT_BINDINGS).startswith("NoGpu ")
