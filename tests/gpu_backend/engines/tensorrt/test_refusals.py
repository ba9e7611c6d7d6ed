"""What the TensorRT engine does not serve, and starts of it that fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_cuda import captures, run
from small_models import DENSE, EXPERTS
from tensorrt_script import objects_that_ended, script

from ringbuffer.version import install

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings: scripts/setup gpu")
pytest.importorskip("onnx", reason="needs onnx: scripts/setup tensorrt")


REFUSALS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "no library": (
        "full", DENSE, "sys.modules['tensorrt'] = None\nsys.modules['tensorrt_rtx'] = None\n"
        "sys.modules['tensorrt_rtx_bindings'] = None",
        f"no TensorRT: {install('tensorrt')}",
    ),
    "an old library": (
        "full", DENSE, "fake_tensorrt.__version__ = '8.6.1'\nsys.modules['tensorrt_rtx'] = None\n"
        "del fake_tensorrt.IExecutionContext.execute_async_v3\nsys.modules['tensorrt_rtx_bindings'] = None",
        "tensorrt 8.6.1 has no IExecutionContext.execute_async_v3, TensorRT 10.15 has it: pip install",
    ),
    "a library whose parser has no RMSNormalization": (
        "full", DENSE, "fake_tensorrt.__version__ = '10.14.1'\nsys.modules['tensorrt_rtx'] = None\n"
        "del fake_tensorrt.OnnxParserFlag\nsys.modules['tensorrt_rtx_bindings'] = None",
        "tensorrt 10.14.1 has no OnnxParserFlag.ENABLE_PLUGIN_OVERRIDE, TensorRT 10.15 has it: pip install",
    ),
    "a library that does not start": (
        "full", DENSE, "def refuse(self, log):\n"
        "    log.log(fake_tensorrt.ILogger.ERROR, 'no driver')\n"
        "    raise TypeError('factory function returned nullptr')\n"
        "fake_tensorrt.Runtime.__init__ = refuse",
        "TensorRT 11.0.0 does not start here: no driver",
    ),
    "the edition for RTX": (
        "rtx", DENSE, "",
        "TensorRT for RTX does not run on compute capability 9.0; install the full TensorRT 10.15 or newer",
    ),
    "experts": (
        "full", EXPERTS, "", "--engine tensorrt does not serve mixtures of experts: --engine native does",
    ),
    "weights in fp8": (
        "full", {**DENSE, "intermediate_size": 1024}, "config = quantized(config, ScaleForm.ROW)",
        "--engine tensorrt does not serve weights in fp8 (by row): --engine native does",
    ),
    "a model that does not fit": (
        "full", DENSE, "KV_MEMORY = 1 << 40", "the model does not fit: weights 0.0 GB + KV cache",
    ),
    "a plan that does not load": (
        "full", DENSE, "fake_tensorrt.LOADS = 0",
        "TensorRT 11.0.0 cannot load plan 0 (qkv) of the decode step of 1 token: the plan is of another",
    ),
    "a context that cannot be captured": (
        "full", DENSE, "fake_tensorrt.CAPTURABLE = False",
        "plan 0 (qkv) of the decode step of 1 token cannot be captured into a graph, says TensorRT",
    ),
    "a capture that leaves nothing": (
        "full", DENSE, "fake_tensorrt.NODES = []",
        "plan 0 (qkv) of the decode step of 1 token leaves nothing in a graph that is captured of it",
    ),
    "shapes that cannot be captured, says an exception": (
        "full", DENSE, "def refuse(self): raise RuntimeError('shape inference failed')\n"
        "fake_tensorrt.IExecutionContext.infer_shapes = refuse",
        "plan 0 (qkv) of the decode step of 1 token fails: shape inference failed",
    ),
    "a first run whose kernels fail, none is captured": (
        "full", DENSE, "from gpu_backend.cuda.driver import Stream\nwait = Stream.synchronize\n"
        "def refuse(self):\n"
        "    if fake_tensorrt.ran: raise CudaError('ILLEGAL', 'address', 'cuStreamSynchronize')\n"
        "    wait(self)\nStream.synchronize = refuse",
        "plan 0 (qkv) of the decode step of 1 token fails: cuStreamSynchronize: ILLEGAL (address)",
    ),
    "a capture that the driver ends": (
        "full", DENSE, "from gpu_backend.cuda import graph\ncall = graph.call\n"
        "def refuse(name, *words):\n"
        "    if name == 'cuStreamEndCapture': raise CudaError('INVALIDATED', 'capture', name)\n"
        "    return call(name, *words)\ngraph.call = refuse",
        "plan 0 (qkv) of the decode step of 1 token fails: cuStreamEndCapture: INVALIDATED (capture)",
    ),
}  # fmt: skip


FAST = ("no library", "experts", "a plan that does not load")


@pytest.mark.parametrize(
    "reason",
    [pytest.param(reason, marks=[pytest.mark.slow] * (reason not in FAST)) for reason in REFUSALS],
)
def test_what_does_not_serve_is_refused_in_one_line(reason: str, fake: Path, tmp_path: Path) -> None:
    library, config, change, message = REFUSALS[reason]
    out, log = run(fake, tmp_path, script(library, change), config)
    assert out.startswith(message)
    assert out.count("\n") == 1
    assert not captures(log)
    if "capture" not in reason:  # found before anything is loaded
        assert not [call for call in log if call[0] == "alloc"]


FAILURES = {
    "a plan cannot be built": ("fake_tensorrt.BUILDS = False", "does not build the plan of qkv: no tactic"),
    "a later plan does not load": ("fake_tensorrt.LOADS = 3", "TensorRT 11.0.0 cannot load plan 0"),
    "the model does not fit": ("KV_MEMORY = 1 << 40", "the model does not fit"),
    "the batch has no memory": (
        "def refuse(*_): raise CudaError('OUT', 'of memory', 'cuMemAlloc')\n"
        "from gpu_backend.devices import gpu\ngpu.allocate_batch = refuse",
        "cuMemAlloc: OUT",
    ),
    "no weights": ("RANDOM = False", "neither model.safetensors nor"),
    "no memory to work in": ("fake_tensorrt.SCRATCH_BYTES = 1 << 30", "the model does not fit"),
    "contexts have left too little memory": (
        "from gpu_backend.cuda.driver import Device\n"
        "Device.free_bytes = lambda _: (1 << 33) - len(fake_tensorrt.living) * (200 << 20)",
        "the model does not fit",
    ),
    "the arena cannot be allocated": (
        "from gpu_backend.engines.native import sizing\nsizing.Needs.check = lambda *_: None\n"
        "fake_tensorrt.SCRATCH_BYTES = 1 << 30",
        "cuMemAlloc",
    ),
    "a context that cannot be captured": ("fake_tensorrt.CAPTURABLE = False", "plan 0 (qkv)"),
    "nothing is captured": ("fake_tensorrt.NODES = []", "plan 0 (qkv)"),
    "a node that the GPU cannot launch": ("fake_tensorrt.NODES = [fake_tensorrt.HOST]", "plan 0 (qkv)"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("failure", FAILURES)
def test_tensorrts_objects_end_before_the_gpus_context_wherever_a_start_fails(
    failure: str, fake: Path, tmp_path: Path
) -> None:
    change, message = FAILURES[failure]
    out, log = run(fake, tmp_path, script("full", change), DENSE)
    assert message in out
    assert objects_that_ended(log) > 0
