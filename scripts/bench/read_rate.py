#!/usr/bin/env python3
"""Prints how many TB/s this GPU reads, by kernels that do nothing else: two of one model differ."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench.ceilings import reads, time_us  # noqa: E402

from gpu_backend.cuda.driver import Device, Stream  # noqa: E402


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    device, stream = Device(), Stream()
    found = reads(device, stream, lambda *work: (time_us(*work), None))
    print(f"{max(ceiling.tera_per_s for ceiling in found):.3f}")
    stream.close()
    device.close()


if __name__ == "__main__":
    main()
