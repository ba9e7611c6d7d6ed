"""The TensorRT engine's host code against a driver and a TensorRT that log and run nothing (fake_cuda.c,
fake_tensorrt.py): what is bound where, what is captured, what is refused, and that all is released."""

from __future__ import annotations

import enum
from itertools import pairwise
from pathlib import Path

import fake_tensorrt
import pytest
from fake_cuda import Log, all_captures, captures, op, run
from small_models import DENSE
from tensorrt_script import objects_that_ended, script

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings: scripts/setup gpu")
pytest.importorskip("onnx", reason="needs onnx: scripts/setup tensorrt")

from gpu_backend.engines.tensorrt.library import NoLibrary, load_library

LAYERS = DENSE["num_hidden_layers"]
RTX_CLASSES = ("ComputeCapability", "CudaGraphStrategy", "IRuntimeCache", "IRuntimeConfig")
RTX_NAMES = (
    "BuilderFlag.REQUIRE_USER_ALLOCATION",
    "IBuilderConfig.num_compute_capabilities",
    "IBuilderConfig.set_compute_capability",
    "ICudaEngine.create_runtime_config",
    "IExecutionContext.is_stream_capturable",
)


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nodes", "kinds"),
    [
        ("[fake_tensorrt.KERNEL, fake_tensorrt.HOST]", "host"),
        ("[fake_tensorrt.CONDITIONAL, fake_tensorrt.MEM_ALLOC]", "conditional, mem_alloc"),
        ("[fake_tensorrt.GRAPH, fake_tensorrt.KERNEL, fake_tensorrt.HOST]", "host"),
        ("[fake_tensorrt.KERNEL, fake_tensorrt.COOPERATIVE]", "cooperative kernel"),
        ("[fake_tensorrt.GRAPH, fake_tensorrt.COOPERATIVE]", "cooperative kernel"),
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


@pytest.mark.slow
def test_all_contexts_share_the_kernels_that_the_edition_for_rtx_compiles(fake: Path, tmp_path: Path) -> None:
    """And the next start has them: they end after the contexts and before the engines, in both."""
    serves = script("rtx", "fake_tensorrt.ComputeCapability.SM90 = 90")
    contexts = 0
    for kept in ([], [["kept", "{contexts}"]]):
        out, log = run(fake, tmp_path, serves, DENSE)
        assert not out
        assert [call for call in log if call[0] == "kept"] == [
            [word.format(contexts=contexts) for word in call] for call in kept
        ]
        contexts = log.count(["create", "execution"])
        ends = [call[1] for call in log if call[0] == "destroy"]
        assert ends.count("kernels") == log.count(["create", "kernels"]) == 1
        last_context = max(index for index, kind in enumerate(ends) if kind == "execution")
        assert last_context < ends.index("kernels") < ends.index("engine")
        assert (objects_that_ended(log) == 0) == bool(kept)  # the second start builds nothing


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
