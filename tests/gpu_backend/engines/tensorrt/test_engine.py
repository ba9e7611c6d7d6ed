"""The TensorRT engine's host code against a driver and a TensorRT that log and run nothing (fake_cuda.c,
fake_tensorrt.py): what is bound where, what is captured, what is refused, and that all is released."""

from __future__ import annotations

import enum
from itertools import pairwise
from pathlib import Path
from typing import Any

import fake_tensorrt
import pytest
from fake_cuda import Log, all_captures, captures, op, run
from small_models import DENSE, EXPERTS

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings: pip install 'blink-serving[gpu]'")
pytest.importorskip("onnx", reason="needs onnx: pip install 'blink-serving[tensorrt]'")

from gpu_backend.engines.tensorrt.library import NoLibrary, load_library

LAYERS = DENSE["num_hidden_layers"]
RTX_CLASSES = ("ComputeCapability", "CudaGraphStrategy", "IRuntimeConfig")
RTX_NAMES = (
    "BuilderFlag.REQUIRE_USER_ALLOCATION",
    "IBuilderConfig.num_compute_capabilities",
    "IBuilderConfig.set_compute_capability",
    "ICudaEngine.create_runtime_config",
    "IExecutionContext.is_stream_capturable",
)
SCRIPT = """
from contextlib import closing
import fake_tensorrt
sys.modules["tensorrt" if "full" in LIBRARY else "tensorrt_rtx"] = fake_tensorrt
if "full" not in LIBRARY:
    sys.modules["tensorrt"] = None
from gpu_backend.cuda import cache
from gpu_backend.engines.tensorrt import plans
plans.cache_directory = lambda: Path(sys.argv[1]) / "cache"
from gpu_backend.cuda.driver import CudaError
from gpu_backend.devices.gpu import GpuServingDevice
from gpu_backend.engines.base import EngineError, Limits
from gpu_backend.engines.tensorrt.builder import TensorRtEngineBuilder
from gpu_backend.models.quantization import ScaleForm
from gpu_backend.models.quantized import quantized
from gpu_backend.models.registry import read_model
from gpu_backend.weights.safetensors import CheckpointError

def serve(config):
    # As a backend does: where something fails, the device is closed while the error is on its way.
    try:
        with closing(GpuServingDevice(0, TensorRtEngineBuilder())) as device:
            wanted = Limits(20, 512, 100, 4, page_size=16, total_pages=0, mixed_share=64)
            limits = device.limits(config, wanted, KV_MEMORY)
            engine = device.build_engine(config, Path(sys.argv[1]), limits, RANDOM, None)
            assert engine.executables.shape == (len(device._grid.shapes), 3)
            assert len(set(engine.executables.ravel().tolist())) == engine.executables.size
            engine.run(2, 1)
            assert engine.logits(2).shape == (2, 1001)
            engine.close()
    except (CheckpointError, CudaError, EngineError, ValueError) as error:
        print(error)

config = read_model(Path(sys.argv[1]))
RANDOM, KV_MEMORY = True, 8 << 20
"""


def script(library: str, change: str = "") -> str:
    return f"LIBRARY = {library!r}\n{SCRIPT}{change}\nserve(config)\n"


@pytest.fixture(scope="module")
def log(fake: Path, tmp_path_factory: pytest.TempPathFactory) -> Log:
    out, log = run(fake, tmp_path_factory.mktemp("tensorrt"), script("full"), DENSE)
    assert not out
    return log


def bound(call: list[str]) -> tuple[int, dict[str, int]]:
    """The memory that a call of a plan works in, and the addresses of its tensors."""
    pairs = (word.split("=") for word in call[2:])
    return int(call[1]), {name: int(address) for name, address in pairs}


def plans_of(capture: Log) -> list[list[str]]:
    return [call for call in capture if op(call) == "plan"]


def test_a_step_is_kernels_of_ours_with_plans_between(log: Log) -> None:
    steps = captures(log)
    assert len(steps) == 3 * 12
    for capture in steps:
        ops = [op(call) for call in capture]
        decode, prompts = "attention_plan" in ops, "prefill_plan" in ops
        attention = ["rope"] * prompts + ["decode_attention"] * decode + ["flash_attention"] * prompts
        expected = ["gate", *["attention_plan"] * decode, "embed", *["prefill_plan"] * prompts]
        for layer in range(LAYERS):
            expected += ["plan", *attention, *["gather_last"] * (prompts and layer + 1 == LAYERS)]
        assert ops == [*expected, "plan", "sample"]


def test_kernels_behind_a_plan_start_when_it_has_ended(log: Log) -> None:
    for capture in captures(log):
        for before, call in pairwise(capture):
            if op(call) != "plan":
                assert (call[-1] == "overlap") == (op(before) != "plan")


def test_every_plan_runs_once_and_is_looked_at_before_steps_hold_it(log: Log) -> None:
    """A run of its own outside a capture, a capture of its own, and then the three of a shape, all alike."""
    trials = {tuple(capture[0]) for capture in all_captures(log) if op(capture[0]) == "plan"}
    inside, first = False, {}
    for index, call in enumerate(log):
        if call[0] in ("begin", "end"):
            inside = call[0] == "begin"
        elif call[0] == "plan":
            first.setdefault(tuple(call), (index, inside))
    assert not any(inside for _, inside in first.values())
    steps = captures(log)
    for at in range(0, len(steps), 3):
        alike = [plans_of(step) for step in steps[at : at + 3]]
        assert alike[0] == alike[1] == alike[2]
        assert {tuple(call) for call in alike[0]} <= trials


def test_every_call_of_a_plan_has_a_context_which_is_made_before_memory_is_given_away(log: Log) -> None:
    made = [index for index, call in enumerate(log) if call == ["create", "execution"]]
    assert len(made) == sum(len(plans_of(capture)) for capture in captures(log)[::3])
    assert max(made) < min(index for index, call in enumerate(log) if call[0] == "alloc")


def test_plans_are_chained_through_the_steps_buffers(log: Log) -> None:
    """What a plan leaves of the residual the next one reads, from another place than it writes to. All work
    in one arena; a layer's weights are its own, and every tensor lies in an allocation that holds it."""
    starts = {int(call[1]): int(call[2]) for call in log if call[0] == "alloc"}
    hidden, arenas = DENSE["hidden_size"], set()
    for capture in captures(log):
        residual, seen = 0, set()
        for index, call in enumerate(plans_of(capture)):
            arena, tensors = bound(call)
            arenas.add(arena)
            name = "residual" if "residual" in tensors else "last_residual"
            if index and name == "residual":
                assert tensors[name] == residual
            outputs = {address for tensor, address in tensors.items() if tensor.endswith("_out")}
            inputs = {address for tensor, address in tensors.items() if not tensor.endswith("_out")}
            assert not outputs & inputs
            assert len(inputs) + len(outputs) == len(tensors)
            residual = tensors.get("residual_out", tensors[name])  # the first adds nothing to it
            products = {address for tensor, address in tensors.items() if tensor in ("qkv", "o", "down")}
            assert not products & seen
            seen |= products
            assert all(address in starts for address in (*inputs, *outputs))
            assert all(starts[at] >= 4 * hidden for at in (tensors[name], residual))
    assert len(arenas) == 1
    assert starts[arenas.pop()] == 1000 * 120  # of the largest plan


def test_everything_is_released(log: Log) -> None:
    kinds = [" ".join(call[:2]) if call[0] in ("destroy", "begin") else call[0] for call in log]
    assert kinds.count("destroy exec") == 36
    assert kinds.count("destroy graph") == kinds.count("begin capture")
    allocated, freed = ([call[1] for call in log if call[0] == kind] for kind in ("alloc", "free"))
    assert sorted(allocated) == sorted(freed)
    assert objects_that_ended(log) > 20


def objects_that_ended(log: Log) -> int:
    """All of TensorRT's that were made ended while the GPU's context was there. Returns how many builders."""
    lines = [" ".join(call) for call in log if call[:2] != ["release", "context"]]
    assert log.index(["release", "context", "0"]) == len(lines), "nothing comes behind it"
    for kind in ("builder", "engine", "execution"):
        assert lines.count(f"create {kind}") == lines.count(f"destroy {kind}")
    return lines.count("create builder")


@pytest.mark.parametrize(
    ("nodes", "kinds"),
    [
        ("[fake_tensorrt.KERNEL, fake_tensorrt.HOST]", "host"),
        ("[fake_tensorrt.CONDITIONAL, fake_tensorrt.MEM_ALLOC]", "conditional, mem_alloc"),
        ("[fake_tensorrt.GRAPH, fake_tensorrt.KERNEL, fake_tensorrt.HOST]", "host"),
    ],
)
def test_nodes_that_the_gpu_cannot_launch_are_named_with_their_plan(
    nodes: str, kinds: str, fake: Path, tmp_path: Path
) -> None:
    out, log = run(fake, tmp_path, script("full", f"fake_tensorrt.NODES = {nodes}"), DENSE)
    plan = "plan 0 (qkv) of the decode step of 1 token"
    assert out == f"{plan} has nodes that a graph launched by the GPU must not have: {kinds}\n"
    assert not captures(log)
    allocated, freed = ([call[1] for call in log if call[0] == kind] for kind in ("alloc", "free"))
    assert sorted(allocated) == sorted(freed)


def test_copies_and_child_graphs_of_kernels_are_launched(fake: Path, tmp_path: Path) -> None:
    nodes = "[fake_tensorrt.MEMCPY, fake_tensorrt.GRAPH, fake_tensorrt.KERNEL]"
    out, log = run(fake, tmp_path, script("full", f"fake_tensorrt.NODES = {nodes}"), DENSE)
    assert not out
    assert len(captures(log)) == 36


REFUSALS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "no library": (
        "full", DENSE, "sys.modules['tensorrt'] = None\nsys.modules['tensorrt_rtx'] = None\n"
        "sys.modules['tensorrt_rtx_bindings'] = None",
        "no TensorRT: pip install 'blink-serving[tensorrt]'",
    ),
    "an old library": (
        "full", DENSE, "fake_tensorrt.__version__ = '8.6.1'\nsys.modules['tensorrt_rtx'] = None\n"
        "del fake_tensorrt.IExecutionContext.execute_async_v3\nsys.modules['tensorrt_rtx_bindings'] = None",
        "tensorrt 8.6.1 has no IExecutionContext.execute_async_v3, TensorRT 10.1 has it: pip install",
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
        "TensorRT for RTX does not run on compute capability 9.0; install the full TensorRT 10.1 or newer",
    ),
    "experts": (
        "full", EXPERTS, "", "--engine tensorrt does not serve mixtures of experts: --engine native does",
    ),
    "weights in fp8": (
        "full", {**DENSE, "intermediate_size": 1024}, "config = quantized(config, ScaleForm.ROW)",
        "--engine tensorrt does not serve weights in fp8: --engine native does",
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
}  # fmt: skip


@pytest.mark.parametrize("reason", REFUSALS)
def test_what_does_not_serve_is_refused_in_one_line(reason: str, fake: Path, tmp_path: Path) -> None:
    library, config, change, message = REFUSALS[reason]
    out, log = run(fake, tmp_path, script(library, change), config)
    assert out.startswith(message)
    assert out.count("\n") == 1
    assert not captures(log)
    if "captured" not in reason:  # found before anything is loaded
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
    "a node that the GPU cannot launch": ("fake_tensorrt.NODES = [fake_tensorrt.HOST]", "plan 0 (qkv)"),
}  # fmt: skip


@pytest.mark.parametrize("failure", FAILURES)
def test_tensorrts_objects_end_before_the_gpus_context_wherever_a_start_fails(
    failure: str, fake: Path, tmp_path: Path
) -> None:
    change, message = FAILURES[failure]
    out, log = run(fake, tmp_path, script("full", change), DENSE)
    assert message in out
    assert objects_that_ended(log) > 0


def test_the_library_has_what_the_fake_has() -> None:
    """Else the engine's calls would be proven against names that nobody knows."""
    try:
        library = load_library()
    except NoLibrary as error:
        pytest.skip(str(error))
    missing: list[str] = []
    for name, member in vars(fake_tensorrt).items():
        if not isinstance(member, type) or member.__module__ != fake_tensorrt.__name__:
            continue
        real = getattr(library.module, name, None)
        of = member.__members__ if issubclass(member, enum.Enum) else vars(member)
        names = [attribute for attribute in of if not attribute.startswith("_")]
        missing += [f"{name}.{attribute}" for attribute in names if not hasattr(real, attribute)]
    if not library.rtx:  # of these the engine asks that for RTX alone
        missing = [
            name for name in missing if name.split(".")[0] not in RTX_CLASSES and name not in RTX_NAMES
        ]
    assert not missing
