"""The native library: CRC-32C."""

from __future__ import annotations

import numpy as np

from nic_frontend import library
from nic_frontend.library import crc32c


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
