"""What `blink doctor` says of TensorRT, by what is installed and by the GPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gpu_backend.cuda.chip import Capability
from gpu_backend.engines.tensorrt import findings
from gpu_backend.engines.tensorrt.library import Library, NoLibrary
from ringbuffer.version import install

CAPABILITIES = SimpleNamespace(SM89=1, SM120=2)
FULL = Library(SimpleNamespace(__version__="11.1.0"), rtx=False)
RTX = Library(SimpleNamespace(__version__="1.7.1", ComputeCapability=CAPABILITIES), rtx=True)


def told(
    monkeypatch: pytest.MonkeyPatch, library: Library | None, capability: Capability | None
) -> list[str]:
    def load() -> Library:
        if library is None:
            raise NoLibrary("no TensorRT: pip install it")
        return library

    monkeypatch.setattr(findings, "load_library", load)
    monkeypatch.setattr(findings, "capability_of", lambda ordinal: capability)
    found = findings.findings()
    assert all(bool(finding.mend) != finding.ok for finding in found)
    assert "nobody has run it on a GPU yet" in f"{found[-1].detail} {found[-1].mend}" or capability is None
    return [f"{finding.ok} {finding.name}: {finding.detail} -> {finding.mend}" for finding in found]


def test_a_gpu_says_which_edition_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    (ada,) = told(monkeypatch, None, (8, 9))
    assert ada.startswith(f"False library: no TensorRT -> {install('tensorrt')}")
    assert "full TensorRT" not in ada
    for capability in ((9, 0), (10, 0)):
        (hopper,) = told(monkeypatch, None, capability)
        assert "install the full TensorRT 10.15 or newer: pip install --extra-index-url" in hopper
        assert "because TensorRT for RTX does not run on this GPU" in hopper


def test_an_edition_serves_on_its_gpus_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    library, plans = told(monkeypatch, RTX, (9, 0))
    assert library == "True library: TensorRT for RTX 1.7.1 -> "
    assert plans.startswith("False plans: TensorRT for RTX does not run on compute capability 9.0 -> install")
    for edition, capability in ((RTX, (12, 0)), (FULL, (9, 0)), (FULL, (10, 0))):
        assert told(monkeypatch, edition, capability)[1].startswith("True plans: the library serves")


def test_without_a_gpu_plans_are_built_and_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "plans can be built here and not run" in told(monkeypatch, RTX, None)[1]
