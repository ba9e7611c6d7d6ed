"""Modules import downwards only: the packages' order is written here, and no two modules need each other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("ringbuffer", "gpu_backend", "nic_frontend", "blink")
# From the bottom up: a module imports from its own layer and from those before it. A module belongs to the
# longest name here that it starts with.
LAYERS = (
    ("ringbuffer",),
    ("gpu_backend.abi", "gpu_backend.arithmetic", "gpu_backend.messages", "gpu_backend.progress"),
    ("gpu_backend.megakernel_abi", "gpu_backend.kernel_abi", "gpu_backend.scheduler_abi"),
    ("gpu_backend.models",),
    ("gpu_backend.weights",),
    ("gpu_backend.element",),
    ("gpu_backend.cuda",),
    ("gpu_backend.ops",),
    ("gpu_backend.host_library",),
    ("gpu_backend.processors",),
    ("gpu_backend.engines",),
    ("gpu_backend.engines.native", "gpu_backend.engines.reference"),
    ("gpu_backend.engines.tensorrt",),
    ("gpu_backend.schedulers",),
    ("gpu_backend.rdma",),
    ("gpu_backend.devices",),
    ("gpu_backend",),
    (
        "nic_frontend.abi",
        "nic_frontend.errors",
        "nic_frontend.library",
        "nic_frontend.library_file",
        "nic_frontend.options",
    ),
    ("nic_frontend.processes",),
    ("nic_frontend.store",),
    ("nic_frontend.text",),
    ("nic_frontend.templates",),
    ("nic_frontend.grammar",),
    ("nic_frontend.parsing",),
    ("nic_frontend.harmony",),
    ("nic_frontend.compiling",),
    ("nic_frontend.transport",),
    ("nic_frontend.ring",),
    ("nic_frontend.http",),
    ("nic_frontend.observe",),
    ("nic_frontend.api",),
    ("nic_frontend",),
    ("blink",),
)


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.AST, modules: set[str]) -> Iterator[str]:
    """The modules of ours that `tree` imports, wherever it does: in a function, for types alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                for name in (f"{node.module}.{alias.name}", node.module):
                    if name in modules:
                        yield name
                        break


def import_graph(root: Path, packages: tuple[str, ...]) -> dict[str, set[str]]:
    """Module -> the modules of `packages` that it imports."""
    paths = [path for package in packages for path in sorted((root / package).rglob("*.py"))]
    modules = {module_name(path): path for path in paths if "_sources" not in path.parts}
    return {name: set(imported(ast.parse(path.read_text()), set(modules))) for name, path in modules.items()}


def layer(module: str) -> int:
    """Index of the module's layer. A package without a place above is in its parent's."""
    names = {name: index for index, layer in enumerate(LAYERS) for name in layer}
    fitting = [name for name in names if f"{module}.".startswith(f"{name}.")]
    return names[max(fitting, key=len)]


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    return import_graph(ROOT, PACKAGES)


def test_the_graph_sees_what_modules_import(graph: dict[str, set[str]]) -> None:
    """Else the two tests below would hold of anything."""
    assert "gpu_backend.devices.select" in graph["gpu_backend.backend"]
    assert "gpu_backend.abi" in graph["gpu_backend.schedulers.setup"]  # from gpu_backend import abi
    assert "nic_frontend.options" in graph["blink.frontend"]


def test_no_two_modules_need_each_other(graph: dict[str, set[str]]) -> None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("these import each other: " + " <- ".join(error.args[1]))


def test_no_module_imports_from_a_layer_above_its_own(graph: dict[str, set[str]]) -> None:
    upward = [
        f"{module} imports {name}"
        for module, names in graph.items()
        for name in sorted(names)
        if layer(name) > layer(module)
    ]
    assert not upward, "\n".join(upward)
