"""blink doctor: what this machine can do, tried rather than looked up."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from blink import checks
from blink.flags import checked, ordinal
from gpu_backend.cuda.chip import has_run_on
from gpu_backend.cuda.probe import Finding, probe
from gpu_backend.engines.tensorrt.findings import findings

DESCRIPTION = """Tries what serving needs on the CPU and on a GPU; says what is missing and how to get it.
Exit status 0 when at least the CPU emulation can serve."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument(
        "--gpu", type=checked(ordinal), default=0, metavar="N", help="which GPU to try (default: %(default)s)"
    )


def main(namespace: argparse.Namespace) -> int:
    machine = report("machine", checks.machine())
    cpu = report("serving from the CPU emulation", checks.cpu_path())
    of_gpu = probe(namespace.gpu)
    gpu = report("serving from a GPU", of_gpu, optional=("GPUDirect RDMA",))
    report("serving with --engine tensorrt, which nobody has run on a GPU yet", findings(namespace.gpu))
    if devices := checks.rdma_devices():
        report("frontend on another host, which has run over RDMA in software alone", checks.rdma(devices))
    report("building from source", checks.build_tools())
    if not devices:
        print("It has no RDMA device, which only a frontend on another host would need.")
    for name, able in (("the CPU emulation", machine and cpu), ("a GPU", machine and cpu and gpu)):
        print(f"This machine {'can' if able else 'cannot'} serve from {name}.")
    if gpu and not any(finding.name == "GPU" and has_run_on(finding.detail) for finding in of_gpu):
        print("Nobody has run blink on such a GPU yet: tests/gpu shows whether it computes rightly there.")
    return 0 if machine and cpu else 1


def report(title: str, findings: Iterable[Finding], optional: tuple[str, ...] = ()) -> bool:
    """Prints a section. Returns whether all of it is there, but for the optional."""
    print(title)
    complete = True
    for finding in findings:
        print(f"  {'ok' if finding.ok else 'missing':<8}{finding.name:<20}{finding.detail}")
        if not finding.ok:
            print(f"          {'':<20}-> {finding.mend}")
            complete &= finding.name in optional
    print()
    return complete
