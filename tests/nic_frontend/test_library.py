"""The native library: CRC-32C, and structs that C and Python see alike."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np

from nic_frontend import library
from nic_frontend.library import crc32c

ROOT = Path(__file__).resolve().parents[2]


def test_crc32c_vectors() -> None:
    """RFC 3720, appendix B.4, and the check value of the CRC catalogue."""
    vectors = [
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (b"123456789", 0xE3069283),
        (b"", 0),
    ]
    for data, expected in vectors:
        assert crc32c(data) == expected
        assert library.library().blink_crc32c_table(0, data, len(data)) == expected


def test_crc32c_instruction_and_table_agree_in_pieces() -> None:
    data = np.random.default_rng(1).bytes(1000)
    for length in [*range(40), 999, 1000]:
        whole = library.library().blink_crc32c_table(0, data, length)
        assert crc32c(data[:length]) == whole
        for cut in {0, length // 3, length}:
            assert crc32c(data[cut:length], crc32c(data[:cut])) == whole


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_abi", ROOT / "scripts" / "generate_abi.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)

    sys.modules["generate_abi"] = module
    spec.loader.exec_module(module)
    return module


def test_python_sees_the_headers_structs() -> None:
    generator = load_generator()
    text = (ROOT / "nic_frontend/native/frontend.h").read_text()
    structs = generator.parse_structs(generator.strip_comments(text), {})
    event = structs["blink_event"]
    assert library.Event.itemsize == event.size
    assert {f.name: library.Event.fields[f.name][1] for f in event.fields} == {
        f.name: f.offset for f in event.fields
    }
    for name, found in (("blink_reader_options", library.ReaderOptions), ("blink_health", library.Health)):
        assert {f.name: (f.offset, f.size) for f in structs[name].fields} == {
            field: (getattr(found, field).offset, getattr(found, field).size) for field, _ in found._fields_
        }
    assert re.search(r"BLINK_EVENT_TOKENS_MAX (\d+)u", text).group(1) == str(library.EVENT_TOKENS_MAX)
