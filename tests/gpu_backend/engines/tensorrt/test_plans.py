"""Plans that TensorRT for RTX builds on the CPU, and what is kept of them."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import fake_tensorrt
import pytest
from plan_log import PlanLog, verbose
from plan_segments import ADA, GEMMA, LIMITS, SHAPES, segments
from small_models import DENSE

pytest.importorskip("onnx", reason="needs onnx: scripts/setup tensorrt")

from gpu_backend.abi import StepKind
from gpu_backend.cuda.chip import Chip
from gpu_backend.element import Element
from gpu_backend.engines.base import Shape
from gpu_backend.engines.graph_grid import GraphGrid
from gpu_backend.engines.tensorrt.library import (
    MODULES,
    Library,
    NoLibrary,
    PlanError,
    installed_packages,
    load_library,
)
from gpu_backend.engines.tensorrt.onnx_graph import onnx_model
from gpu_backend.engines.tensorrt.plans import Board, Plans
from gpu_backend.engines.tensorrt.segments import Segment
from ringbuffer.version import install

TYPES = {Element.BF16: "BF16", Element.FP16: "HALF", Element.FP32: "FLOAT"}
BENCH_SHAPES = Path(__file__).parents[4] / "scripts" / "bench" / "shapes"
LOGGED = {Element.BF16: "BFloat16", Element.FP16: "Half", Element.FP32: "Float"}
SERVED_BY_RTX = ((8, 9), (12, 0))


def board(capability: tuple[int, int], name: str = "NVIDIA L4", multiprocessors: int = 58) -> Board:
    return Board(name, Chip(multiprocessors, capability))


L4 = board(ADA)


@pytest.fixture(scope="module")
def library() -> Library:
    try:
        return load_library()
    except NoLibrary as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "blink"


def borders(library: Library, segment: Segment) -> list[list[tuple[str, str, tuple[int, ...]]]]:
    """Inputs and outputs of the library's network of a segment: name, type, shape."""
    log = library.log()
    builder = library.module.Builder(log)
    network = library.network(builder, log, segment.name, onnx_model(segment))
    inputs = [network.get_input(i) for i in range(network.num_inputs)]
    outputs = [network.get_output(i) for i in range(network.num_outputs)]
    return [[(t.name, t.dtype.name, tuple(t.shape)) for t in side] for side in (inputs, outputs)]


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        *((DENSE, kind) for kind in (StepKind.DECODE, StepKind.PREFILL, StepKind.MIXED)),
        (GEMMA, StepKind.MIXED),
        ({**DENSE, "dtype": "float16"}, StepKind.MIXED),
    ],
    ids=["decode", "prefill", "mixed", "gemma3", "float16"],
)
def test_every_captured_size_gets_its_plans(
    library: Library, tmp_path: Path, model: dict[str, Any], kind: StepKind
) -> None:
    """Of networks whose borders are those of the segments: the engine binds addresses by them."""
    plans = Plans(library, L4)
    for shape in GraphGrid(LIMITS).shapes:
        if shape.kind != kind:
            continue
        made: dict[str, Segment] = {}
        for segment in segments(tmp_path, model, shape):
            plan = plans.plan(segment)
            assert len(plan.data) > 1000
            made[plan.key] = segment
        assert len(made) == 3, "layers that are alike share a plan"
        for segment in made.values():
            assert borders(library, segment) == [
                [(t.name, TYPES[t.operand.element], t.shape) for t in side]
                for side in (segment.inputs, segment.outputs)
            ]


@pytest.fixture
def logs(library: Library, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the library for RTX says while it builds, of each plan."""
    if not library.rtx:
        pytest.skip("the full library builds where there is a GPU, and has an inspector for plans")
    logs: list[Any] = []
    made = Library.log
    monkeypatch.setattr(Library, "log", lambda self: logs.append(verbose(made(self))) or logs[-1])
    return logs


def real(directory: Path, name: str, shape: Shape, dtype: str = "bfloat16") -> list[Segment]:
    """Segments of a model of the benchmarks, with as many layers as differ."""
    config = json.loads((BENCH_SHAPES / f"{name}.json").read_text())
    return segments(directory, config | {"num_hidden_layers": 2, "torch_dtype": dtype}, shape)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("capability", SERVED_BY_RTX, ids=str)
def test_what_a_plan_of_real_sizes_is_made_of(
    library: Library, logs: list[Any], tmp_path: Path, capability: tuple[int, int], dtype: str
) -> None:
    """One kernel a product, which reads the weight where it is, and one for all between two. A product of
    fp16 is accumulated in fp32."""
    for segment in real(tmp_path, "llama-3-8b", Shape(StepKind.DECODE, 8, 8), dtype):
        plan = Plans(library, board(capability)).plan(segment)
        log = PlanLog(logs[-1].lines)
        products = [weight for weight in segment.weights if len(weight.shape) == 2]
        between = sum(len(weight.shape) == 1 for weight in segment.weights)
        between += segment.name.count("down")  # the activation in front of it
        multiplied = [kernel for kernel in log.kernels if any(w.name in kernel.inputs for w in products)]
        assert [set(kernel.inputs) & {w.name for w in products} for kernel in multiplied] == [
            {weight.name} for weight in products
        ]
        assert {kernel.kind for kernel in multiplied} <= {"gemm", "runtime_fusion"}
        assert len(log.kernels) <= len(products) + between
        if dtype == "float16":
            assert plan.data.count(b"accumulation_type=2") == len(products)


@pytest.mark.parametrize("name", ["llama-3-8b", "qwen3-32b", "phi-4"])
def test_the_borders_and_the_memory_of_real_plans(
    library: Library, logs: list[Any], tmp_path: Path, name: str
) -> None:
    """A plan is for one size, has no weights, and needs no memory but the scratch that the engine gives."""
    for segment in real(tmp_path, name, Shape(StepKind.DECODE, 8, 8)):
        assert len(Plans(library, L4).plan(segment).data) < 2 << 20
        log = PlanLog(logs[-1].lines)
        assert {border.name: (border.mode, border.dtype, border.shape) for border in log.borders} == {
            tensor.name: (mode, LOGGED[tensor.operand.element], tensor.shape)
            for mode, side in (("Input", segment.inputs), ("Output", segment.outputs))
            for tensor in side
        }
        assert all(border.profiles == {border.shape} for border in log.borders if border.mode == "Input")
        assert log.n_bytes["Device Persistent"] == 0
        assert log.n_bytes["Weights"] < 1024
        assert log.n_bytes["Activation"] < 16 << 20


def test_what_the_library_refuses(library: Library) -> None:
    with pytest.raises(PlanError, match=f"{library.title} does not parse the plan of o, qkv: "):
        library.build("o, qkv", b"no graph", ADA)
    if library.rtx:
        told = "TensorRT for RTX does not run on compute capability 9.0; install the full TensorRT"
        assert (library.refuses((9, 0)) or "").startswith(told)
        with pytest.raises(PlanError, match=r"compute capability 9\.0"):
            library.build("o, qkv", b"", (9, 0))
    log = library.log()
    for severity, line in (
        (library.module.ILogger.VERBOSE, "a tactic"),
        (library.module.ILogger.ERROR, "no"),
    ):
        log.log(severity, line)
    assert vars(log) == {"errors": ["no"]}, "what is kept for the life of the process"
    assert [library.refuses(capability) for capability in SERVED_BY_RTX] == [None, None]


def test_the_full_library_is_taken_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", fake_tensorrt)
    assert load_library() == Library(fake_tensorrt, False, installed_packages(rtx=False))
    assert load_library().title == "TensorRT 11.0.0"
    assert load_library().refuses((9, 0)) is None
    for name in MODULES:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(NoLibrary, match=re.escape(f"no TensorRT: {install('tensorrt')}")):
        load_library()


def test_a_library_that_is_too_old_or_another_is_told_and_passed_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that TensorRT for RTX serves beside it."""
    for name in MODULES:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "tensorrt", SimpleNamespace(__version__="0.1"))
    with pytest.raises(
        NoLibrary, match=r"tensorrt 0\.1 has no Builder\S+, TensorRT 10\.15 has it: pip install"
    ):
        load_library()
    old = SimpleNamespace(**{**vars(fake_tensorrt), "__version__": "10.0.1", "ICudaEngine": object})
    monkeypatch.setitem(sys.modules, "tensorrt", old)
    with pytest.raises(NoLibrary, match=r"tensorrt 10\.0\.1 has no ICudaEngine\.device_memory_size_v2, Tens"):
        load_library()
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", fake_tensorrt)
    assert load_library().rtx


def test_a_library_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(log: Any) -> None:
        log.log(fake_tensorrt.ILogger.ERROR, "CUDA initialization failure with error: 35")
        raise TypeError("pybind11::init(): factory function returned nullptr")

    monkeypatch.setattr(fake_tensorrt, "Builder", refused)
    with pytest.raises(PlanError, match=r"TensorRT 11\.0\.0 does not start here: CUDA init.* error: 35"):
        Library(fake_tensorrt, rtx=False).build("o, qkv", b"", (9, 0))


def test_a_directory_of_the_librarys_name_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python imports any directory on its path as an empty module, as it does with that of these tests."""
    for name in MODULES:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    with pytest.raises(NoLibrary, match="no TensorRT"):
        load_library()


class Counted(Library):
    """Counts what it builds, and needs no TensorRT."""

    def build(self, title: str, graph: bytes, capability: tuple[int, int]) -> bytes:
        self.module.builds.append(title)
        return b"plan of " + title.encode()


def counted(
    version: str = "11.0.0", rtx: bool = False, verbosity: int = 2, packages: tuple[str, ...] = ()
) -> Counted:
    details = SimpleNamespace(DETAILED=verbosity)
    module = SimpleNamespace(__version__=version, ProfilingVerbosity=details, builds=[])
    return Counted(module, rtx, packages)


def test_a_plan_is_built_once_for_all_that_it_depends_on(tmp_path: Path) -> None:
    first, *_, last = segments(tmp_path, DENSE, SHAPES[0])
    library = counted()
    plans = [Plans(library, L4).plan(segment) for segment in (first, last, first)]
    assert plans[0] == plans[2]
    assert library.module.builds == [first.name, last.name]
    others = [
        Plans(counted("11.0.1"), L4).plan(first),
        Plans(counted(rtx=True), L4).plan(first),
        Plans(counted(verbosity=1), L4).plan(first),
        Plans(counted(packages=("tensorrt_cu12",)), L4).plan(first),
        Plans(counted(packages=("tensorrt_cu13",)), L4).plan(first),
        Plans(counted(), board((12, 0))).plan(first),
        Plans(counted(), L4).plan(segments(tmp_path, DENSE, Shape(StepKind.DECODE, 8, 8))[0]),
        Plans(counted(), L4).plan(segments(tmp_path, {**DENSE, "rms_norm_eps": 1e-5}, SHAPES[0])[0]),
    ]
    assert len({plan.key for plan in (*plans, *others)}) == 2 + len(others)


def test_plans_that_the_full_library_has_timed_on_a_gpu_are_for_no_other(tmp_path: Path) -> None:
    """TensorRT for RTX times none while it builds: its plans are for all GPUs of a compute capability."""
    boards = (L4, board(ADA, "NVIDIA L40S", 142), board(ADA, multiprocessors=29))
    segment = segments(tmp_path, DENSE, SHAPES[0])[0]
    assert len({Plans(counted(), one).plan(segment).key for one in boards}) == 3
    assert len({Plans(counted(rtx=True), one).plan(segment).key for one in boards}) == 1


def test_packages_of_two_versions_of_cuda_are_two_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have the same module and say the same version."""
    installed = ["numpy", "tensorrt-cu12", "tensorrt_cu12_libs", "tensorrt-rtx-cu13-libs"]
    found = [SimpleNamespace(name=name) for name in installed]
    monkeypatch.setattr("importlib.metadata.distributions", lambda: found)
    assert installed_packages(rtx=False) == ("tensorrt_cu12", "tensorrt_cu12_libs")
    assert installed_packages(rtx=True) == ("tensorrt_rtx_cu13_libs",)


def test_only_what_this_user_has_kept_whole_is_taken(tmp_path: Path, cache: Path) -> None:
    """A plan is code that runs on the GPU, so a cache that others can write is none."""
    segment = segments(tmp_path, DENSE, SHAPES[0])[0]
    plan = Plans(counted(), L4).plan(segment)
    (path,) = cache.iterdir()
    assert path.name == f"{plan.key}.plan"
    assert path.stat().st_mode & 0o077 == 0
    for spoil in (
        lambda: path.chmod(0o620),
        lambda: path.write_bytes(path.read_bytes()[:-1]),
        lambda: path.write_bytes(b""),
        path.unlink,
    ):
        spoil()
        library = counted()
        assert Plans(library, L4).plan(segment) == plan
        assert library.module.builds == [segment.name]
        assert Plans(library, L4).plan(segment) == plan
        assert len(library.module.builds) == 1
