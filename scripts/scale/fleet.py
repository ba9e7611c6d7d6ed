"""fleet.cpp through ctypes: a fleet of nodes, each blink's own scheduler in virtual time."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_backend.engines.base import Limits
from gpu_backend.engines.graph_grid import GraphGrid
from scale.load import Load, Shape

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("scripts/scale/fleet.cpp", "nic_frontend/native/crc32c.cpp")
POLICIES = ("random", "least", "kv")
TICK_NS = 50_000_000  # how old the router's knowledge is, at most

u32, u64, real = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_double
pointer = ctypes.c_void_p


@dataclass(frozen=True)
class StepTimes:
    """Of a GPU and a model: microseconds of a step's matmuls by its tokens, and of the keys that it reads."""

    points: tuple[tuple[float, float], ...]
    decode_us_per_key: float
    prompt_us_per_token_key: float


class _Load(ctypes.Structure):
    _fields_ = (
        ("n_sessions", u32), ("n_apps", u32), ("system_tokens", u32), ("arrival_ns", pointer),
        ("app", pointer), ("first_turn", pointer), ("question", pointer), ("answer", pointer),
        ("think_ns", pointer),
    )  # fmt: skip


class _Options(ctypes.Structure):
    _fields_ = (
        ("n_nodes", u32), ("policy", u32), ("seed", u64), ("end_ns", u64), ("tick_ns", u64), ("n_slots", u32),
        ("max_batch", u32), ("max_context", u32), ("total_pages", u32), ("max_prefill_tokens", u32),
        ("max_prefill_slots", u32), ("max_mixed_tokens", u32), ("mixed_share", u32), ("attention_keys", u32),
        ("n_shapes", u32), ("shapes", pointer), ("decode_lookup", pointer), ("prefill_lookup", pointer),
        ("mixed_lookup", pointer), ("n_points", u32), ("point_tokens", pointer), ("point_us", pointer),
        ("decode_us_per_key", real), ("prompt_us_per_token_key", real), ("prefill_weight", real),
    )  # fmt: skip


WIDE, NARROW = ("arrived", "first", "done"), ("prompt", "cached", "answer", "node", "turn")
COUNTED = ("steps", "requests", "events", "choose_ns", "told_ns")


class _Results(ctypes.Structure):
    _fields_ = (*((name, pointer) for name in (*WIDE, *NARROW)), *((name, u64) for name in COUNTED))


def library() -> ctypes.CDLL:
    """Compiled when a source has changed."""
    texts = [path.read_bytes() for path in sorted((ROOT / "scripts/scale").glob("*.h"))]
    texts += [(ROOT / source).read_bytes() for source in SOURCES]
    texts += [path.read_bytes() for path in sorted((ROOT / "kernels/scheduler").glob("*.h"))]
    path = ROOT / f"build/scale/fleet-{hashlib.sha256(b''.join(texts)).hexdigest()[:16]}.so"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-I.", "-shared", "-fPIC", "-pthread"]
        subprocess.run(["c++", *flags, *SOURCES, "-o", str(path)], cwd=ROOT, check=True)
    return ctypes.CDLL(str(path))


def simulate(
    shape: Shape,
    load: Load,
    limits: Limits,
    times: StepTimes,
    *,
    n_nodes: int,
    policy: str,
    slots: int,
    seed: int,
    prefill_weight: float = 1.0,
    tick_ns: int = TICK_NS,
) -> tuple[dict[str, NDArray[Any]], dict[str, int]]:
    """What became of each turn that ended within the day, and what was COUNTED."""
    grid = GraphGrid(limits)
    shapes = np.array([(shape.kind, shape.tokens, shape.batch_slots) for shape in grid.shapes], np.uint32)
    points = np.array(times.points, np.float64)
    tokens, us = np.ascontiguousarray(points[:, 0]), np.ascontiguousarray(points[:, 1])
    same = ("max_batch", "max_context", "total_pages", "max_prefill_tokens", "max_prefill_slots",
            "max_mixed_tokens", "mixed_share", "attention_keys")  # fmt: skip
    options = _Options(
        n_nodes=n_nodes,
        policy=POLICIES.index(policy),
        seed=seed,
        end_ns=int(shape.day_s * 1e9),
        tick_ns=tick_ns,
        n_slots=slots,
        **{name: getattr(limits, name) for name in same},
        n_shapes=len(shapes),
        shapes=shapes.ctypes.data,
        decode_lookup=grid.decode_lookup.ctypes.data,
        prefill_lookup=grid.prefill_lookup.ctypes.data,
        mixed_lookup=grid.mixed_lookup.ctypes.data,
        n_points=len(points),
        point_tokens=tokens.ctypes.data,
        point_us=us.ctypes.data,
        decode_us_per_key=times.decode_us_per_key,
        prompt_us_per_token_key=times.prompt_us_per_token_key,
        prefill_weight=prefill_weight,
    )
    given = _Load(
        n_sessions=len(load.app), n_apps=shape.apps, system_tokens=shape.system_tokens,
        **{name: getattr(load, name).ctypes.data
           for name in ("arrival_ns", "app", "first_turn", "question", "answer", "think_ns")},
    )  # fmt: skip
    room = len(load.question)
    found: dict[str, NDArray[Any]] = {name: np.zeros(room, np.uint64) for name in WIDE}
    found |= {name: np.zeros(room, np.uint32) for name in NARROW}
    results = _Results(**{name: values.ctypes.data for name, values in found.items()})
    run = library().blink_fleet_run
    run.restype = u32
    n = run(ctypes.byref(options), ctypes.byref(given), ctypes.byref(results))
    return {name: values[:n] for name, values in found.items()}, {
        name: getattr(results, name) for name in COUNTED
    }
