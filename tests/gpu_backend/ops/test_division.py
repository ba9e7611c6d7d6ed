"""What follows from the division of a multiprocessor's memory that the launches of a step agree on (E23)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from matmuls import matmul

from gpu_backend.cuda.driver import ALL_SHARED_BYTES
from gpu_backend.ops.candidate import Choice
from gpu_backend.ops.choice import choose, dividing_alike, divisions
from gpu_backend.ops.gpu import BESIDE_L1_SHARED_BYTES, Target
from gpu_backend.ops.launch import Launch
from gpu_backend.ops.operations import Epilogue, Role

TARGET = Target(132, has_experts=True, gemv_rows=8)
BESIDE_L1 = replace(TARGET, shared_bytes=BESIDE_L1_SHARED_BYTES)
ATTENTION_OUT = matmul(Role.O, 16, 2048, 2048, Epilogue.ADD)


@pytest.mark.parametrize("rows", [1, 8])
def test_the_head_of_few_rows_is_skinny_where_its_blocks_find_room(rows: int) -> None:
    head = matmul(Role.HEAD, rows, 2048, 151936, Epilogue.STORE_FP32)
    router = matmul(Role.ROUTER, rows, 2048, 128, Epilogue.STORE_FP32)
    beyond_hopper = replace(TARGET, capability=(12, 0))
    chosen = [choose(head, target).name for target in (TARGET, BESIDE_L1, beyond_hopper)]
    assert chosen == ["skinny_gemm", "gemv", "gemv"]
    assert choose(router, TARGET).name == "gemv"


def step(target: Target, *divided: int) -> list[Choice]:
    """Of launches that ask for `divided`, and of one that is cut for the room that the target has."""
    launches = [Launch("l", (1, 1, 1), (32, 1, 1), (), divided=min(n, target.shared_bytes)) for n in divided]
    return [Choice(None, "asks", tuple(launches)), choose(ATTENTION_OUT, target)]


def test_a_step_in_which_a_kernel_needs_l1_is_cut_for_what_that_leaves() -> None:
    made = dividing_alike(lambda target: step(target, ALL_SHARED_BYTES, BESIDE_L1_SHARED_BYTES), TARGET)
    assert divisions(made) == {BESIDE_L1_SHARED_BYTES}
    assert made[1] == choose(ATTENTION_OUT, BESIDE_L1)
    assert made[1] != choose(ATTENTION_OUT, TARGET)


def test_any_other_step_is_lowered_once_with_all_shared_memory() -> None:
    targets: list[Target] = []

    def lower(target: Target) -> list[Choice]:
        targets.append(target)
        return step(target, ALL_SHARED_BYTES)

    assert divisions(dividing_alike(lower, TARGET)) == {ALL_SHARED_BYTES}
    assert targets == [TARGET]
