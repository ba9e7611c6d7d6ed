"""libblink_verbs.so through ctypes: the prototypes of native/verbs/verbs_link.h, which documents them.

Loaded only by a frontend that connects over RDMA.
"""

from __future__ import annotations

import ctypes
from functools import cache

from nic_frontend import library_file
from ringbuffer.rdma.abi import RdmaAddress
from ringbuffer.rdma.native import load

PATH = library_file.PATH.with_name("libblink_verbs.so")


@cache
def verbs_library() -> ctypes.CDLL:
    """The library, loaded once. Raises VerbsMissing."""
    found = load(PATH)
    p, text, u32, u64 = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint32, ctypes.c_uint64
    address = ctypes.POINTER(RdmaAddress)
    prototypes: dict[str, tuple[object, list[object]]] = {
        "blink_verbs_open": (p, []),
        "blink_verbs_prepare": (ctypes.c_int, [p, text, ctypes.c_int32, text, address, text]),
        "blink_verbs_connect": (ctypes.c_int, [p, address, u64, u32, u32, text]),
        "blink_verbs_break": (None, [p, text]),
        "blink_verbs_down": (ctypes.c_int, [p, text]),
    }
    for name, (result, arguments) in prototypes.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found
