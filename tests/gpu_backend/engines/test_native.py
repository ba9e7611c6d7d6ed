"""The CUDA engine's host code against a driver that logs and runs nothing (fake_cuda.c).

What is launched in which order, over which memory, and that everything is released.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_script import CONFIG, EXPERTS, SCRIPT
from fake_cuda import Log, captures, op, run, whole_captures

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings: scripts/setup gpu")

from gpu_backend.ops.gpu import Target
from gpu_backend.ops.sampling import sample_blocks
from gpu_backend.ops.tiled_cut import TILED_SILU_ROWS


@pytest.fixture(scope="module")
def log(fake: Path, tmp_path_factory: pytest.TempPathFactory) -> Log:
    return run(fake, tmp_path_factory.mktemp("engine"), SCRIPT, CONFIG)[1]


@pytest.fixture(scope="module")
def expert_log(fake: Path, tmp_path_factory: pytest.TempPathFactory) -> Log:
    return run(fake, tmp_path_factory.mktemp("experts"), SCRIPT, EXPERTS)[1]


def tokens_of(capture: Log) -> int:
    return next(int(call[2]) for call in capture if op(call) == "embed")


def test_every_shape_is_captured_once_per_step_set(log: Log) -> None:
    # batch slots are sample's
    batch_slots = [(int(capture[-1][3]), tokens_of(capture)) for capture in captures(log)]
    decode = [(n, n) for n in (1, 2, 4, 8, 16, 20)]
    prefill = [(4, n) for n in (16, 32, 64, 100)]
    mixed = [(24, n) for n in (64, 120)]
    assert batch_slots == [shape for shape in decode + prefill + mixed for _ in range(3)]


def gemm(rows: int, n_in: int = 256) -> str:
    """What multiplies."""
    if rows <= 4 and n_in % 32 == 0:
        return "gemv"
    return "skinny_gemm" if rows <= 64 else "gemm"


def test_a_step_is_the_documented_sequence(log: Log) -> None:
    """Between two skinny GEMMs there is no norm; with prompts the last layer goes on with a row a batch
    slot."""

    def norm(before: str, after: str) -> list[str]:
        return [] if before == after == "skinny_gemm" else ["rmsnorm"]

    for capture in captures(log):
        decode, prompts = ("attention_plan" in map(op, capture)), ("prefill_plan" in map(op, capture))
        attention = ["rope"] * prompts + ["decode_attention"] * decode + ["flash_attention"] * prompts
        tokens, batch_slots = tokens_of(capture), int(capture[-1][3])
        before, after = ["attention_plan"] * decode, ["prefill_plan"] * prompts
        expected = ["gate", *before, "embed", *after, "rmsnorm"]
        for rows, gather, behind in (
            (tokens, [], gemm(tokens)),
            (tokens, [], gemm(tokens)),
            (batch_slots, ["gather_last"] * prompts, "skinny_gemm"),
        ):
            gate_up = ["gemm", "silu_mul"] if rows > 64 else [gemm(rows)]
            expected += [gemm(tokens), *attention, *gather, gemm(rows), *norm(gemm(rows), gemm(rows))]
            expected += [*gate_up, gemm(rows, 1000), *norm(gemm(rows, 1000), behind)]
        assert [op(call) for call in capture] == [*expected, "skinny_gemm", "sample"]


def test_where_stages_are_small_products_are_wide_from_one_row_on(fake: Path, tmp_path: Path) -> None:
    log = run(fake, tmp_path, SCRIPT, {**CONFIG, "hidden_size": 2560})[1]
    decoding = [capture for capture in captures(log) if tokens_of(capture) <= 4]
    assert len(decoding) == 3 * len((1, 2, 4))
    for capture in decoding:
        assert [op(call) for call in capture].count("skinny_gemm") == 3 * 4 + 1


def test_a_wide_product_takes_the_norm_that_another_left(log: Log) -> None:
    """Where the sums of squares were left; o leaves them for gate_up, and down for what follows."""
    places = set()
    for capture in captures(log):
        products = [call for call in capture if op(call) in ("gemm", "gemv", "skinny_gemm")]
        assert len(products) == 3 * 4 + 1
        left = 0
        for i, call in enumerate(products):
            norm = bytes.fromhex(call[11]) if op(call) == "skinny_gemm" else bytes(40)
            takes, leaves = (int.from_bytes(norm[at : at + 8], "little") for at in (0, 32))
            assert takes == left
            is_before = i % 4 in (1, 3) and op(products[i + 1]) == "skinny_gemm"
            assert bool(leaves) == (is_before and op(call) == "skinny_gemm")
            left = leaves
            places.add(leaves)
    assert len(places) == 2  # none, and the buffer


def test_a_lane_is_sampled_by_a_cluster_of_blocks(log: Log) -> None:
    for capture in captures(log):
        blocks, batch_slots = int(capture[-1][2]), int(capture[-1][3])
        assert blocks == sample_blocks(batch_slots, Target(132))
        assert (capture[-1][-1], "cluster") == ("overlap", capture[-1][-3] if blocks > 1 else "cluster")


@pytest.mark.parametrize(
    ("batch_slots", "blocks"), [(1, 8), (12, 8), (13, 4), (24, 4), (32, 2), (65, 2), (66, 1), (512, 1)]
)
def test_all_blocks_that_sample_run_at_once(batch_slots: int, blocks: int) -> None:
    """Beside the scheduler's, as far as there is room: a second wave would double the time."""
    assert sample_blocks(batch_slots, Target(132)) == blocks


def test_every_kernel_but_the_gate_overlaps_its_predecessor(log: Log) -> None:
    """E2, E7: nothing of a step starts before its gate has opened."""
    for capture in captures(log):
        launches = [call for call in capture if call[0] == "launch"]
        assert [call[-1] == "overlap" for call in launches] == [False] + [True] * (len(launches) - 1)


def test_a_layer_of_experts_is_the_documented_sequence(expert_log: Log) -> None:
    """For few tokens an expert the streaming kernels, for many the tiled ones, and units of their size."""
    for capture in captures(expert_log):
        calls = [call for call in capture if "map" not in call[0]]
        ops, tokens = [op(call) for call in calls], tokens_of(calls)
        if tokens * 3 <= 8 * 8:
            mixture = ["router", "moe_gemv", "moe_gemv"]
            if tokens == 1:  # the router is part of o
                mixture = ["resident_gemv", "moe_single_token_gate_up", "moe_single_token_down"]
        else:
            router = "gemv" if tokens <= 8 else "skinny_gemm" if tokens <= 64 else "gemm"
            mixture = ["rmsnorm", router, "route", "expert_plan", "moe_grouped_gemm", "moe_grouped_gemm"]
        starts = [i for i in range(len(ops)) if ops[i : i + len(mixture)] == mixture]
        held = tokens <= 2  # qkv, with the norm in front of it, and o
        decode = "rope" not in ops  # the last sum is with the norm, of as many rows as the head has
        ends = [
            "moe_combine" if held else "moe_combine_rmsnorm",
            "moe_combine_rmsnorm" if decode else "moe_combine",
        ]
        one = ["resident_gemv", "rmsnorm"]  # whose experts are summed where they are
        assert [ops[i + len(mixture)] for i in starts] == (one if tokens == 1 else ends)
        assert ops[starts[1] + len(mixture) + 1 :][:-2] == ([] if decode else ["gather_rmsnorm"])
        assert ops.count("resident_gemv") == 6 * held
        before = ops[: ops.index("rope" if "rope" in ops else "decode_attention")]
        assert ("rmsnorm" in before) == (not held)
        assert ops.count("silu_mul") == int(tokens > 64)
        assert ("skinny_gemm" in ops[:-2]) == (tokens <= 64)  # of few, where columns are no whole chunks
        if "expert_plan" in ops:
            plan = calls[ops.index("expert_plan")]
            words = [int.from_bytes(bytes.fromhex(word), "little") for word in plan[-5:-1]]
            assert words == [tokens, 8, 3, 160]


def test_each_kernel_of_a_step_with_experts_divides_a_multiprocessor(expert_log: Log) -> None:
    """E23: all alike, or experts in halves would have no L1."""
    for capture in whole_captures(expert_log):
        kernels = [call for call in capture if call[0] == "launch" and "blink" in call[1]]
        carved = [call for call in capture if call[0] == "carveout"]
        assert [call[1] for call in carved] == [call[1] for call in kernels]
        in_halves = any(op(call) == "moe_gemv" or "single_token" in op(call) for call in kernels)
        assert {call[2] for call in carved} == {"58" if in_halves else "100"}


@pytest.mark.slow
def test_many_tokens_are_multiplied_in_tiles(fake: Path, tmp_path: Path) -> None:
    """With silu * mul, or with the addition where that fills the GPU, by pairs of blocks."""
    script = SCRIPT.replace("max_prefill_tokens=100", "max_prefill_tokens=1408")
    _, log = run(fake, tmp_path, script, {**CONFIG, "hidden_size": 2048})
    for capture in captures(log):
        ops, tokens = [op(call) for call in capture], tokens_of(capture)
        if tokens <= 64:
            continue
        assert ops.count("silu_mul") == (2 if tokens < TILED_SILU_ROWS else 0)
        assert ops.count("tiled_gemm") == (0 if tokens < TILED_SILU_ROWS else 6 if tokens == 1408 else 2)
        for call in capture:
            if op(call) == "tiled_gemm":
                assert call[-3:] == ["cluster", "2", "overlap"]
                assert int(call[2]) <= 130


def test_the_three_sets_of_a_shape_differ_only_in_the_step_set(log: Log) -> None:
    """C6: nothing else of a step is fixed by its capture."""
    graphs = captures(log)
    for first in range(0, len(graphs), 3):
        for calls in zip(*graphs[first : first + 3], strict=True):
            if op(calls[0]) in (
                "gemm",
                "gemv",
                "rmsnorm",
                "silu_mul",
                "flash_attention",
                "decode_attention",
                "skinny_gemm",
            ):
                assert calls[0] == calls[1] == calls[2]
            else:
                set_bytes = {call[7] for call in calls}
                assert len(set_bytes) == 3
                assert len({tuple(call[:7] + call[8:]) for call in calls}) == 1


def test_flash_attention_sees_the_queries_and_the_whole_cache(log: Log) -> None:
    """Tiles of 64 rows; 3 heads share a key, so that a token cannot have several of them in a tile."""
    maps = [[int(word) for word in call[1:]] for call in log if call[0] == "swizzled-map"]
    first = next(i for i, words in enumerate(maps) if words[2] == 10)  # heads of keys, values and queries
    queries, fresh, cache = maps[first : first + 3]
    allocations = {int(call[1]): int(call[2]) for call in log if call[0] == "alloc"}
    assert queries[1:9] == [64, 10, 120, 1, 64, 1, 64, 1]
    assert fresh[:5] == queries[:5]
    assert fresh[5:9] == [64, 1, 8, 1]
    assert queries[9] == allocations[queries[0]] == 2 * 120 * 10 * 64
    assert cache[1:9] == [64, 8, 1, 2 * 3 * 64 * 2 * 16 // 8, 64, 8, 1, 2]
    assert cache[9] == allocations[cache[0]]
    flash = [call for capture in captures(log) for call in capture if op(call) == "flash_attention"]
    starts = [[int.from_bytes(bytes.fromhex(word), "little") for word in call[-13:-11]] for call in flash]
    layer = 64 * 2 * 16 // 8
    assert starts[:3] == [[0, layer], [2 * layer, 3 * layer], [4 * layer, 5 * layer]]


def test_another_head_size_takes_the_kernel_for_all(fake: Path, tmp_path: Path) -> None:
    _, log = run(fake, tmp_path, SCRIPT, {**CONFIG, "head_dim": 48})
    ops = {op(call) for capture in captures(log) for call in capture}
    assert "prefill_attention" in ops
    assert not ops & {"flash_attention", "prefill_plan"}


@pytest.mark.parametrize("model", ["log", "expert_log"])
def test_gemms_stay_inside_their_allocations(model: str, request: pytest.FixtureRequest) -> None:
    """weight [n_out][n_in], x [rows][n_in], out [rows][n_out], as column-major transposes."""
    log: Log = request.getfixturevalue(model)
    allocations = [(int(call[1]), int(call[2])) for call in log if call[0] == "alloc"]

    def room(address: int) -> int:
        return max(start + size - address for start, size in allocations if start <= address < start + size)

    for call in (call for call in log if call[0] == "gemm"):
        op_a, op_b, n_out, rows, n_in = map(int, call[1:6])
        weight, _, lda, x, _, ldb, out, out_type, ldc = map(int, call[8:17])
        assert (op_a, op_b, lda, ldb, ldc) == (1, 0, n_in, n_in, n_out)
        assert room(weight) >= 2 * n_in * n_out
        assert room(x) >= 2 * rows * n_in
        assert room(out) >= (4 if out_type == 0 else 2) * rows * n_out


def test_gemms_are_planned_for_the_multiprocessors_that_the_scheduler_leaves(log: Log) -> None:
    assert [call for call in log if call[0] == "multiprocessors"] == [["multiprocessors", "131"]]


def test_everything_is_released_in_order(log: Log) -> None:
    """C7"""
    kinds = [" ".join(call[:2]) if call[0] in ("destroy", "begin") else call[0] for call in log]
    assert kinds.count("destroy exec") == kinds.count("destroy graph") == kinds.count("begin capture") == 36
    assert sorted(call[1] for call in log if call[0] == "alloc") == sorted(
        call[1] for call in log if call[0] == "free"
    )
    last_exec = len(kinds) - 1 - kinds[::-1].index("destroy exec")
    assert last_exec < kinds.index("destroy cublas") < kinds.index("unload") < kinds.index("free")
    assert kinds[-1] == "release"


@pytest.mark.slow
def test_a_failure_halfway_releases_what_was_acquired(fake: Path, tmp_path: Path) -> None:
    script = SCRIPT.replace("total_pages=64", "total_pages=10**6").replace(
        "engine = Nat", "try:\n  engine = Nat"
    )
    script = (
        script[: script.index("assert engine")]
        + """
except Exception as error:
    print(error)
else:
    raise SystemExit(1)
memory.close()
device.close()
"""
    )
    out, log = run(fake, tmp_path, script, CONFIG)
    assert out.startswith("cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY")
    assert sum(call[0] == "alloc" for call in log) == sum(call[0] == "free" for call in log) > 10
    modules = [call[0] for call in log if call[0] in ("load", "unload")]
    assert modules.count("load") == modules.count("unload") > 1
    assert log[-1][0] == "release"
