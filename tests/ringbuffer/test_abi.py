"""The generated views agree with the headers, and with what the compiler made of them (R1)."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gpu_backend.abi
import gpu_backend.scheduler_abi
import ringbuffer.abi
import ringbuffer.grammar_abi
from gpu_backend.host_library import host_library

ROOT = Path(__file__).resolve().parent.parent.parent
LINE = 128


class Member(ctypes.Structure):
    _fields_ = [
        ("structure", ctypes.c_char_p),
        ("member", ctypes.c_char_p),
        ("offset", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
    ]


def test_generated_files_are_current() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "generate_abi.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_offsets_match_the_compiled_library() -> None:
    library, member, seen = host_library(), Member(), 0
    while library.blink_layout_member(seen, ctypes.byref(member)):
        name = "".join(part.capitalize() for part in member.structure.decode().split("_")[1:])
        modules = (ringbuffer.abi, ringbuffer.grammar_abi, gpu_backend.abi, gpu_backend.scheduler_abi)
        dtype = next(getattr(module, name) for module in modules if hasattr(module, name))
        field, offset = dtype.fields[member.member.decode()][:2]
        assert (offset, field.itemsize) == (member.offset, member.size), f"{name}.{member.member.decode()}"
        seen += 1
    assert seen > 100


def owners() -> list[tuple[str, int]]:
    """(owner, offset) of the header's members that start a part with another writer."""
    header = ringbuffer.abi.Header.fields
    assert header is not None
    return [(name, header[name][1]) for name in ("magic", "control", "phase", "stats")]


def test_fields_of_different_owners_never_share_a_line() -> None:
    assert all(offset % LINE == 0 for _, offset in owners())
    for dtype in (ringbuffer.abi.Lease, ringbuffer.abi.LeaseAck):
        assert dtype.itemsize % LINE == 0
    for size in (8, ringbuffer.abi.Descriptor.itemsize):  # of each slot; a lease has whole groups of slots
        assert ringbuffer.abi.SLOT_ALIGNMENT * size % LINE == 0


@pytest.mark.parametrize("dtype", [ringbuffer.abi.Header, ringbuffer.abi.Descriptor, ringbuffer.abi.Progress])
def test_words_are_aligned(dtype: np.dtype[np.void]) -> None:
    """What publishes is written with one 8-byte store (R2)."""
    assert dtype.fields is not None
    for name, (field, offset, *_) in dtype.fields.items():
        if field == np.dtype("<u8"):
            assert offset % 8 == 0, name


def test_the_header_has_room_for_as_many_ends_as_a_model_may_have() -> None:
    assert ringbuffer.abi.Header["eos"].shape == (gpu_backend.abi.MAX_EOS,)
