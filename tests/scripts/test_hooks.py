"""The hook before a commit, in a clone of the repository: what is staged is judged, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from limits import PROGRAM_S

ROOT = Path(__file__).resolve().parents[2]
MODULE, HEADER, PAGE = "ringbuffer/client.py", "ringbuffer/grammar.h", "ringbuffer/README.md"


def git(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    identity = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "core.hooksPath=scripts/hooks"]
    command = ["git", "-C", str(directory), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_S)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the hook as it is here, and this environment's tools."""
    directory = tmp_path_factory.mktemp("clone")
    if git(ROOT, "clone", "--quiet", "--shared", str(ROOT), str(directory)).returncode != 0:
        pytest.skip("needs git and a checkout")
    hook = directory / "scripts/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_bytes((ROOT / "scripts/hooks/pre-commit").read_bytes())
    hook.chmod(0o755)
    (directory / ".venv").symlink_to(sys.prefix)
    return directory


@pytest.fixture
def stage(clone: Path) -> Callable[[str, str, str], None]:
    """Stages a file with one text in another's place. Nothing else is changed."""
    git(clone, "reset", "--quiet", "--hard")

    def change(name: str, old: str, new: str) -> None:
        text = (clone / name).read_text()
        assert old in text
        (clone / name).write_text(text.replace(old, new, 1))
        git(clone, "add", name)

    return change


@pytest.mark.parametrize(
    ("name", "old", "new", "told"),
    [
        (MODULE, "\nfrom ", f"\n# {'x' * 109}\nfrom ", "ruff check --fix"),
        (MODULE, "\nfrom ", "\nimport os\nfrom ", "ruff check --fix"),
        (MODULE, "\n\n\n", "\n\n\nx = [ ]\n\n\n", "ruff format"),
        (HEADER, "#define BLINK_GRAMMAR_H\n", "#define BLINK_GRAMMAR_H\nint   x;\n", "clang-format -i"),
        (HEADER, "MAX_STACK 32u", "MAX_STACK 64u", "scripts/generate_abi.py"),
        (PAGE, "](", "](../no-such-page.md) [x](", "mend the pages"),
    ],
    ids=["a long line", "an unused import", "Python's format", "C++'s format", "a stale view", "a link"],
)
def test_a_fault_that_is_staged_stops_the_commit(
    clone: Path, stage: Callable[[str, str, str], None], name: str, old: str, new: str, told: str
) -> None:
    stage(name, old, new)
    before = git(clone, "rev-parse", "HEAD").stdout
    done = git(clone, "commit", "-m", "a fault")
    assert done.returncode == 1
    assert told in done.stderr
    assert done.stderr.count("pre-commit: mend") == 1
    assert git(clone, "rev-parse", "HEAD").stdout == before


def test_only_what_is_staged_is_judged(clone: Path, stage: Callable[[str, str, str], None]) -> None:
    stage(MODULE, "\nfrom ", "\n# staged\nfrom ")
    for name in (MODULE, HEADER):
        (clone / name).write_text("is no program [\n")
    done = git(clone, "commit", "-m", "no fault")
    assert done.returncode == 0, done.stderr
    assert "# staged" in git(clone, "show", f"HEAD:{MODULE}").stdout


def test_what_a_commit_takes_from_the_working_tree_is_judged(
    clone: Path, stage: Callable[[str, str, str], None]
) -> None:
    """`git commit FILE` has an index of its own."""
    stage(MODULE, "\nfrom ", "\n# staged\nfrom ")
    (clone / MODULE).write_text("x = [ ]\n")
    done = git(clone, "commit", "-m", "a fault", MODULE)
    assert done.returncode == 1
    assert "ruff format" in done.stderr


def test_a_commit_without_the_tools_is_told(clone: Path, stage: Callable[[str, str, str], None]) -> None:
    stage(MODULE, "\nfrom ", "\nimport os\nfrom ")
    tools = clone / ".venv"
    tools.rename(clone / "aside")
    try:
        done = git(clone, "commit", "-m", "unchecked")
    finally:
        (clone / "aside").rename(tools)
    assert done.returncode == 0, done.stderr
    assert "nothing is checked" in done.stderr
