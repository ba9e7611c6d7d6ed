"""The scheduler's invariants (kernels/scheduler/README.md), on the policy's own source built for the host."""

from __future__ import annotations

import ctypes
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from limits import PROGRAM_S


class Sizes(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint32)
        for name in (
            "n_slots",
            "n_leases",
            "max_batch",
            "max_context",
            "page_size",
            "total_pages",
            "max_prefill_tokens",
            "max_prefill_slots",
        )
    ] + [
        ("arm_margin_ns", ctypes.c_uint64),
        ("max_mixed_tokens", ctypes.c_uint32),
        ("mixed_share", ctypes.c_uint32),
        ("prefix_cache", ctypes.c_uint32),
        ("attention_keys", ctypes.c_uint32),
        ("stage_words", ctypes.c_uint32),
        ("kv_event_capacity", ctypes.c_uint32),
        ("host_pages", ctypes.c_uint32),
        ("copied_pages", ctypes.c_uint32),
        ("grammar_words", ctypes.c_uint32),
        ("priorities", ctypes.c_uint32),
        ("max_drafts", ctypes.c_uint32),
        ("verify_rows", ctypes.c_uint32),
        ("suffix", ctypes.c_uint32),
        ("target_itl_ns", ctypes.c_uint32),
        ("min_itl_ns", ctypes.c_uint32),
    ]


COUNTERS = (
    "steps",
    "tokens",
    "finished",
    "preempted",
    "zombies",
    "torn",
    "relaunches",
    "refused",
    "reclaimed",
    "cancelled",
    "armed",
    "mixed",
    "unsampled",
    "hits",
    "evicted",
    "awaited",
    "told",
    "retold",
    "compared",
    "written",
    "brought_back",
    "constrained",
    "dead_ends",
    "wide",
    "scored",
    "outdated",
    "drafted",
    "accepted",
)


class Coverage(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in COUNTERS]


ARM_NEVER, ARM_LATE, ARM_AT_ONCE = 0, 5_000, 2**62


def told(kv_event_capacity: int) -> dict[str, int]:
    """Sizes of a world in which a reader follows the KV events; it has no pages in host memory."""
    return {"kv_event_capacity": kv_event_capacity, "copied_pages": 1}


def kept(host_pages: int, copied_pages: int) -> dict[str, int]:
    """Sizes of a world in which pages go to host memory."""
    return {"host_pages": host_pages, "copied_pages": copied_pages}


@st.composite
def simulations(draw: st.DrawFn) -> Sizes:
    n_leases = draw(st.integers(1, 4))
    page_size = draw(st.sampled_from([1, 2, 4, 8, 16]))
    max_context = draw(st.integers(16, 256))
    pages_per_sequence = -(-max_context // page_size)
    max_batch, max_prefill_tokens = draw(st.integers(1, 32)), 16 * draw(st.integers(1, 8))
    return Sizes(
        n_slots=n_leases * 16 * draw(st.integers(1, 4)),
        n_leases=n_leases,
        max_batch=max_batch,
        max_context=max_context,
        page_size=page_size,
        total_pages=draw(st.integers(max(2, pages_per_sequence // 2), pages_per_sequence * 5)),
        max_prefill_tokens=max_prefill_tokens,
        max_prefill_slots=draw(st.integers(1, 8)),
        arm_margin_ns=draw(st.sampled_from([ARM_NEVER, ARM_LATE, ARM_AT_ONCE])),
        max_mixed_tokens=max_batch + draw(st.integers(1, max_prefill_tokens)),
        mixed_share=draw(st.sampled_from([1, 16, 50, 300])),
        prefix_cache=draw(st.sampled_from([1, 1, 1, 0])),
        attention_keys=draw(st.sampled_from([0, 32, 500])),
        stage_words=draw(st.sampled_from([1, 16, 100, 4096])),
        grammar_words=draw(st.sampled_from([0, 200, 700, 10_000])),
        priorities=draw(st.sampled_from([0, 0, 2, 5, 256])),
        max_drafts=draw(st.sampled_from([0, 1, 3, 14])),
        verify_rows=draw(st.integers(0, 64)),
        suffix=draw(st.sampled_from([0, 1])),
        target_itl_ns=draw(st.sampled_from([0, 1, 30_000, 1_000_000])),
        min_itl_ns=draw(st.sampled_from([0, 0, 20_000, 1_000_000])),
        **draw(
            st.sampled_from(
                [told(0), told(1), told(5), told(64), told(1000), kept(3, 1), kept(40, 4), kept(200, 30)]
            )
        ),
    )


@pytest.fixture(
    scope="module",
    params=[pytest.param(64, marks=pytest.mark.slow), 4],
    ids=["hash of 64 bits", "hash of 4 bits"],
)
def run_simulation(
    build_program: Callable[..., Path], request: pytest.FixtureRequest
) -> Callable[..., Coverage]:
    """run(seed, sizes, turns, threads=1). With few bits, hashes of pages collide all the time (S17)."""
    library = ctypes.CDLL(
        str(
            build_program(
                f"simulator-{request.param}.so",
                ["tests/kernels/simulator/simulator.cpp"],
                "-O2",
                "-U_FORTIFY_SOURCE",
                "-shared",
                "-fPIC",
                f"-DBLINK_PREFIX_HASH_BITS={request.param}",
            )
        )
    )
    library.blink_simulator_run.restype = ctypes.c_char_p
    library.blink_simulator_run.argtypes = [
        ctypes.c_uint64,
        ctypes.POINTER(Sizes),
        ctypes.c_uint64,
        ctypes.c_uint32,
        ctypes.POINTER(Coverage),
    ]

    def run(seed: int, sizes: Sizes, turns: int, threads: int = 1) -> Coverage:
        coverage = Coverage()
        verdict = library.blink_simulator_run(
            seed, ctypes.byref(sizes), turns, threads, ctypes.byref(coverage)
        ).decode()
        described = {name: getattr(sizes, name) for name, _ in Sizes._fields_}
        assert verdict == "", f"{verdict} (seed {seed}, {threads} threads, {described})"
        return coverage

    return run


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**63), sizes=simulations())
def test_invariants_hold_in_any_simulation(
    run_simulation: Callable[..., Coverage], seed: int, sizes: Sizes
) -> None:
    """No slot lost, no page leaked or owned twice, tokens contiguous and right, FIFO admission, progress,
    CUDA's launch rules; under arrivals, cancels, EOS, page exhaustion, lost leases, torn payloads."""
    run_simulation(seed, sizes, 1500)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**63), sizes=simulations(), threads=st.sampled_from([2, 5, 16, 64]))
def test_nothing_depends_on_the_order_of_the_threads(
    run_simulation: Callable[..., Coverage], seed: int, sizes: Sizes, threads: int
) -> None:
    """S11: between two barriers the policy's threads run in any order, and decide alike."""
    run_simulation(seed, sizes, 100, threads)


def covered(run_simulation: Callable[..., Coverage], worlds: int) -> dict[str, int]:
    """What so many simulations have come to, of sizes that lead to the rare paths."""
    rng, total = random.Random(1), dict.fromkeys(COUNTERS, 0)
    for seed in range(worlds):
        arm_margin_ns = rng.choice([0, 5000, 2**62])
        sizes = Sizes(
            48, 3, rng.randint(4, 24), 160, 4, rng.randint(50, 120), 64, 4, arm_margin_ns, mixed_share=16,
            prefix_cache=1, stage_words=rng.choice([10, 4096]), grammar_words=rng.choice([400, 4096]),
            max_drafts=rng.choice([0, 3, 14]), verify_rows=40, suffix=rng.choice([0, 1]),
            **rng.choice([told(4), told(40), kept(60, 4)]),
        )  # fmt: skip
        coverage = run_simulation(seed, sizes, 3000)
        total = {name: count + getattr(coverage, name) for name, count in total.items()}
    return total


def test_invariants_hold_in_some_simulations(run_simulation: Callable[..., Coverage]) -> None:
    coverage = covered(run_simulation, 10)
    assert coverage["finished"] > 20


@pytest.mark.slow
def test_the_simulations_exercise_everything(run_simulation: Callable[..., Coverage]) -> None:
    """The property test means something only if its simulations reach the rare paths."""
    assert not {name: count for name, count in covered(run_simulation, 80).items() if count <= 20}


@pytest.mark.parametrize("priorities", [2, 5, 256])
def test_priorities_starve_nobody_when_pages_run_out(
    run_simulation: Callable[..., Coverage], priorities: int
) -> None:
    """S2, S7: everything that was asked ends, with the right answer, whoever gave way to whom."""
    preempted = 0
    for seed in range(6):
        sizes = Sizes(
            48, 3, 12, 160, 4, 60, 64, 4, ARM_AT_ONCE, mixed_share=16, prefix_cache=seed != 3,
            stage_words=16, priorities=priorities, **told(0),
        )  # fmt: skip
        preempted += run_simulation(seed, sizes, 3000).preempted
    assert preempted > 20


def test_whoever_was_staged_early_keeps_nobody_out(run_simulation: Callable[..., Coverage]) -> None:
    """S2, S13: the line had changed, and its last had all sequences that were free."""
    sizes = Sizes(
        192, 4, 2, 137, 8, 19, 112, 2, ARM_AT_ONCE, 95, mixed_share=16, prefix_cache=1, attention_keys=32,
        stage_words=1, **kept(3, 1),
    )  # fmt: skip
    run_simulation(1006, sizes, 1500)


@pytest.mark.parametrize("pages", [told(0), kept(40, 4)], ids=["on the device", "in host memory, too"])
@pytest.mark.parametrize("max_drafts", [0, 3])
def test_steps_wait_for_company(
    run_simulation: Callable[..., Coverage], pages: dict[str, int], max_drafts: int
) -> None:
    """S25: with drafts, too, and behind copies; everything that was asked ends with the right answer."""
    for seed in range(5):
        sizes = Sizes(
            16, 1, 24, 160, 4, 700, 64, 4, ARM_NEVER, mixed_share=16, prefix_cache=1, stage_words=16,
            max_drafts=max_drafts, verify_rows=40, min_itl_ns=1_000_000, **pages,
        )  # fmt: skip
        run_simulation(seed, sizes, 3000)


def test_a_part_of_a_very_long_prompt_has_no_more_than_any_prompt(
    run_simulation: Callable[..., Coverage],
) -> None:
    """S15: mixed steps may have more tokens than prompts may, and such a part fills them."""
    sizes = Sizes(
        16, 1, 2, 205, 1, 158, 16, 2, ARM_LATE, 18, mixed_share=1, prefix_cache=1, stage_words=16, **told(0)
    )
    run_simulation(0, sizes, 1500)


@pytest.mark.parametrize(
    "arm_margin_ns",
    [
        pytest.param(ARM_NEVER, marks=pytest.mark.slow),
        ARM_LATE,
        pytest.param(ARM_AT_ONCE, marks=pytest.mark.slow),
    ],
)
def test_more_than_1000_steps_in_one_request(
    run_simulation: Callable[..., Coverage], arm_margin_ns: int
) -> None:
    """Past the launch window of 120 many times over: the scheduler relaunches itself, losing nothing (S8)."""
    sizes = Sizes(16, 1, 1, 4096, 16, 256, 512, 1, arm_margin_ns, mixed_share=16, prefix_cache=1)
    coverage = run_simulation(3, sizes, 60_000)
    assert coverage.steps > 1200
    assert coverage.relaunches >= coverage.steps // 120 - 1
    assert coverage.finished >= 2


@pytest.mark.slow
@pytest.mark.parametrize(("policy_threads", "seed"), [(1, 7), (4, 7), (4, 8)])
def test_no_data_race_between_frontends_policy_and_engine(
    build_program: Callable[..., Path], policy_threads: int, seed: int
) -> None:
    """Producer, scheduler threads and engine under ThreadSanitizer (S11). An odd seed: drafts by suffix; an
    even one: very long prompts."""
    program = build_program(
        "threads-tsan",
        ["tests/kernels/simulator/threads.cpp", "kernels/scheduler/emulation.cpp"],
        "-O1",
        "-fsanitize=thread",
    )
    done = subprocess.run(
        [program, str(policy_threads), "4", str(seed)], capture_output=True, text=True, timeout=PROGRAM_S
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert "WARNING: ThreadSanitizer" not in done.stderr


@pytest.mark.slow
def test_memory_errors_are_absent(build_program: Callable[..., Path]) -> None:
    """The same program under AddressSanitizer and UndefinedBehaviorSanitizer."""
    program = build_program(
        "threads-asan",
        ["tests/kernels/simulator/threads.cpp", "kernels/scheduler/emulation.cpp"],
        "-O0",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
    )
    done = subprocess.run([program, "1", "3", "11"], capture_output=True, text=True, timeout=PROGRAM_S)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
