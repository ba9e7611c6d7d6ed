"""The lock file, and the bill of materials that is made of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from limits import PROGRAM_S
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = re.compile(r"^([a-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)


def test_every_dependency_is_locked_within_its_range_and_with_hashes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [
        *project["dependencies"],
        *(one for name in ("frontend", "compile", "gpu") for one in extras[name]),
    ]
    lock = (ROOT / "requirements.lock").read_text()
    locked: dict[str, list[str]] = {}
    for name, version in PACKAGE.findall(lock):
        locked.setdefault(name, []).append(version)
    for requirement in map(Requirement, wanted):
        if requirement.name == project["name"]:
            continue
        versions = locked.get(requirement.name.lower())
        assert versions, f"scripts/lock: {requirement.name} is not locked"
        assert all(requirement.specifier.contains(version) for version in versions), requirement
    for block in re.split(r"^(?=[a-z0-9._-]+==)", lock, flags=re.MULTILINE)[1:]:
        assert "--hash=sha256:" in block, block.splitlines()[0]


def test_the_bill_of_materials_has_every_locked_package(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, ROOT / "scripts" / "sbom", "-o", tmp_path / "sbom.json"],
        check=True,
        timeout=PROGRAM_S,
    )
    bill = json.loads((tmp_path / "sbom.json").read_text())
    found = {(part["name"], part["version"]) for part in bill["components"]}
    assert found == set(PACKAGE.findall((ROOT / "requirements.lock").read_text()))
    assert all(any(p["name"] == "python:sha256" for p in part["properties"]) for part in bill["components"])
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
