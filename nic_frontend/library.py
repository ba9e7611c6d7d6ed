"""libblink_frontend.so through ctypes: the prototypes of native/frontend.h, which documents each function."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np

from nic_frontend.abi import Drained, Event, EventKind, Health, JsonShape, ReaderOptions, Trip
from nic_frontend.library_file import Prototypes, loaded

EVENT_DTYPE, TRIP_DTYPE = np.dtype(Event), np.dtype(Trip)  # of arrays that the library fills
EVENT_TOKENS, EVENT_FINISHED, EVENT_FREED, EVENT_LOST = tuple(EventKind)[:4]
EVENT_LOGPROBS, EVENT_PROMPT_LOGPROBS = tuple(EventKind)[4:]


@cache
def library() -> ctypes.CDLL:
    """The library, loaded once. ctypes releases Python's lock during each call. Raises LibraryMissing."""
    p, u32, u64, c_int = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int
    prototypes: Prototypes = {
        "blink_link_shared_memory": (p, [p]),
        "blink_link_cuda_ipc": (p, [ctypes.c_char_p, p, p, ctypes.c_char_p, u64]),
        "blink_link_close": (None, [p]),
        "blink_link_read": (c_int, [p, u64, p, u64]),
        "blink_link_write": (None, [p, u64, p, u64, u64]),
        "blink_link_publish": (None, [p, u64, u64]),
        "blink_crc32c": (u32, [u32, p, u64]),
        "blink_crc32c_table": (u32, [u32, p, u64]),
        "blink_json_shape": (None, [ctypes.c_char_p, u64, ctypes.POINTER(JsonShape)]),
        "blink_reader_create": (p, [p, ctypes.POINTER(ReaderOptions)]),
        "blink_reader_destroy": (None, [p]),
        "blink_reader_eventfd": (c_int, [p]),
        "blink_reader_open": (u32, [p, u32, u32]),
        "blink_reader_submit": (u32, [p, u32, p, p, p]),
        "blink_reader_cancel": (None, [p, u32, u32]),
        "blink_reader_drain": (u32, [p, p, u32, p, u32]),
        "blink_link_trips": (u32, [p, u32, u32, u32, u32, u64, p]),
        "blink_reader_drain_all": (c_int, [p, p, u32, u32, u32, u64, ctypes.POINTER(Drained)]),
        "blink_reader_health": (None, [p, ctypes.POINTER(Health)]),
        "blink_watchdog_create": (p, [u64]),
        "blink_watchdog_beat": (None, [p]),
        "blink_watchdog_destroy": (None, [p]),
    }
    return loaded(prototypes)


def crc32c(data: bytes, crc: int = 0) -> int:
    """CRC-32C (RFC 3720) of `data` after the bytes whose CRC is `crc`."""
    return int(library().blink_crc32c(crc, data, len(data)))
