"""What an installation with some extras has, of the packages that are installed here."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PROJECT = "blink-serving"
# Runs blink's command where modules that are named first cannot be imported.
PROGRAM = """
import sys
from importlib.machinery import PathFinder

class There(PathFinder):
    missing = set(sys.argv.pop(1).split(","))

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] not in cls.missing:
            return super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = There
from blink.cli import main
sys.exit(main())
"""


def requirements(name: str, extra: str) -> list[Requirement]:
    """What a package with an extra depends on here; of the project, as the checkout has it."""
    if name == PROJECT:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        lines = project["optional-dependencies"][extra] if extra else project["dependencies"]
        return [Requirement(line) for line in lines]
    try:
        found = map(Requirement, importlib.metadata.requires(name) or [])
    except importlib.metadata.PackageNotFoundError:  # of another platform, or not installed here
        return []
    return [one for one in found if one.marker is None or one.marker.evaluate({"extra": extra})]


def packages_with(*extras: str) -> set[str]:
    """The project, what it depends on with these extras, and what that depends on."""
    found: set[tuple[str, str]] = set()
    open_ones = [(PROJECT, extra) for extra in ("", *extras)]
    while open_ones:
        name, extra = one = open_ones.pop()
        if one in found:
            continue
        found.add(one)
        for needed in requirements(name, extra):
            open_ones += [(canonicalize_name(needed.name), more) for more in ("", *needed.extras)]
    return {name for name, _ in found}


def blink_with(extras: tuple[str, ...], *words: str) -> subprocess.CompletedProcess[str]:
    """The command, by a Python that lacks what an installation with these extras lacks."""
    there = packages_with(*extras)
    missing = [
        module
        for module, packages in importlib.metadata.packages_distributions().items()
        if there.isdisjoint(map(canonicalize_name, packages)) and module not in sys.stdlib_module_names
    ]
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, ",".join(missing), *words],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
