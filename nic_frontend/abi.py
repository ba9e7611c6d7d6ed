"""Generated from nic_frontend/native/frontend.h, nic_frontend/native/link_bench.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
import ctypes
from enum import IntEnum

LINK_DOWN = 0xffffffff
EVENT_TOKENS_MAX = 256


class EventKind(IntEnum):
    TOKENS = 0
    FINISHED = 1
    FREED = 2
    LOST = 3
    LOGPROBS = 4
    PROMPT_LOGPROBS = 5


class JsonShape(ctypes.Structure):
    _fields_ = (
        ("parts", ctypes.c_uint64),
        ("texts", ctypes.c_uint64),
        ("commas", ctypes.c_uint64),
        ("depth", ctypes.c_uint64),
        ("number", ctypes.c_uint64),
    )


class ReaderOptions(ctypes.Structure):
    _fields_ = (
        ("lease", ctypes.c_uint32),
        ("records_per_cycle", ctypes.c_uint32),
        ("spin_ns", ctypes.c_uint64),
        ("min_sleep_ns", ctypes.c_uint64),
        ("max_sleep_ns", ctypes.c_uint64),
        ("beat_ns", ctypes.c_uint64),
        ("heartbeat_timeout_ns", ctypes.c_uint64),
        ("torn_timeout_ns", ctypes.c_uint64),
    )


class Event(ctypes.Structure):
    _fields_ = (
        ("slot", ctypes.c_uint32),
        ("sequence", ctypes.c_uint32),
        ("n_tokens", ctypes.c_uint32),
        ("kind", ctypes.c_uint32),
        ("reason", ctypes.c_uint32),
        ("cached_tokens", ctypes.c_uint32),
        ("prefill_us", ctypes.c_uint32),
    )


class Health(ctypes.Structure):
    _fields_ = (
        ("phase", ctypes.c_uint64),
        ("fault", ctypes.c_uint64),
        ("fault_detail", ctypes.c_uint64),
        ("heartbeat_age_ns", ctypes.c_uint64),
        ("heartbeat_lost", ctypes.c_uint32),
        ("lease_lost", ctypes.c_uint32),
        ("link_down", ctypes.c_uint32),
        ("resolving", ctypes.c_uint32),
        ("cycles", ctypes.c_uint64),
        ("wakes", ctypes.c_uint64),
        ("records", ctypes.c_uint64),
        ("bad_records", ctypes.c_uint64),
        ("arena_reads", ctypes.c_uint64),
    )


class Trip(ctypes.Structure):
    _fields_ = (
        ("posted", ctypes.c_uint64),
        ("answer", ctypes.c_uint64),
        ("word", ctypes.c_uint64),
    )


class Drained(ctypes.Structure):
    _fields_ = (
        ("tokens", ctypes.c_uint64),
        ("wall_ns", ctypes.c_uint64),
        ("cpu_ns", ctypes.c_uint64),
    )
