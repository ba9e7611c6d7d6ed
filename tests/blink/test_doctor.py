"""blink doctor on this machine, and on machines that lack something."""

from __future__ import annotations

from pathlib import Path

import pytest

from blink import checks, cli, doctor
from gpu_backend import host_library
from gpu_backend.cuda.chip import Capability, arch_of, kernels_for
from gpu_backend.cuda.driver import CudaUnavailable
from gpu_backend.cuda.probe import Finding, probe
from ringbuffer.version import install


def test_this_machine_serves_from_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "This machine can serve from the CPU emulation." in text
    able = all(finding.ok or finding.name == "GPUDirect RDMA" for finding in probe())
    assert f"This machine {'can' if able else 'cannot'} serve from a GPU." in text


def test_what_is_missing_comes_with_its_mend(capsys: pytest.CaptureFixture[str]) -> None:
    findings = [Finding("A", True, "is there", ""), Finding("B", False, "is not", "get it")]
    assert not doctor.report("title", findings)
    assert doctor.report("title", findings, optional=("B",))
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["ok", "A", "is", "there"]
    assert lines[2].split() == ["missing", "B", "is", "not"]
    assert lines[3].split() == ["->", "get", "it"]


def test_a_machine_without_a_gpu_is_told_which_ones_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver(ordinal: int) -> None:
        raise CudaUnavailable("no NVIDIA driver")

    monkeypatch.setattr("gpu_backend.cuda.probe.Device", no_driver)
    (finding,) = probe()
    assert finding.detail == "no NVIDIA driver"
    assert "Hopper: H100, H200, GH200 (it has run on H100 and H200 alone)" in finding.mend
    assert "that nobody has run there yet, Ada: L4, L40S, RTX 40; Blackwell: B200" in finding.mend
    assert "driver 580 or later" in finding.mend


@pytest.mark.parametrize(
    ("name", "capability", "has_run"),
    [
        ("NVIDIA H100 80GB HBM3", (9, 0), True),
        ("NVIDIA H200", (9, 0), True),
        ("NVIDIA GH200 480GB", (9, 0), False),
        ("NVIDIA L4", (8, 9), False),
        ("NVIDIA B200", (10, 0), False),
        ("NVIDIA GeForce RTX 5090", (12, 0), False),
    ],
)
def test_a_gpu_on_which_nobody_has_run_blink_is_told_so(
    name: str,
    capability: Capability,
    has_run: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = [
        Finding("GPU", True, f"{name}, 80 GiB, {arch_of(capability)}", ""),
        Finding("kernels", True, kernels_for(capability, name), ""),
    ]
    monkeypatch.setattr(doctor, "probe", lambda ordinal: found)
    cli.main(["doctor"])
    text = capsys.readouterr().out
    assert ("nobody has run them on this GPU yet" in text) != has_run
    assert ("Nobody has run blink on such a GPU yet" in text) != has_run


def test_a_library_that_was_not_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(host_library, "PATH", tmp_path / "libblink_host.so")
    host_library.host_library.cache_clear()
    assert cli.main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert f"{tmp_path}/libblink_host.so is missing" in text
    assert "cannot serve from the CPU emulation" in text


def test_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "FRONTEND_PACKAGES", ("numpy", "no-such-package"))
    finding = next(finding for finding in checks.cpu_path() if finding.name == "packages")
    assert not finding.ok
    assert finding.detail == "missing: no-such-package"
    assert finding.mend == install("frontend")


def test_a_machine_without_rdma_misses_none_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(checks, "INFINIBAND", tmp_path / "none")
    cli.main(["doctor"])
    of_rdma = [line for line in capsys.readouterr().out.splitlines() if "RDMA" in line]
    assert of_rdma[-1] == "It has no RDMA device, which only a frontend on another host would need."
    assert all("GPUDirect" in line for line in of_rdma[:-1])  # it belongs to a GPU


def test_a_machine_with_rdma_is_told_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "mlx5_0").mkdir()
    monkeypatch.setattr(checks, "INFINIBAND", tmp_path)
    cli.main(["doctor"])
    text = capsys.readouterr().out
    assert "frontend on another host, which has run over RDMA in software alone\n" in text
    lines = [line.split() for line in text.splitlines()]
    assert ["ok", "RDMA", "devices", "mlx5_0"] in lines
    assert any(line[1:3] == ["RDMA,", "frontend"] for line in lines)
