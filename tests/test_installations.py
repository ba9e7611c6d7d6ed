"""Each command starts with the extra that the pages name for it, and nothing else."""

from __future__ import annotations

import pytest
from installation import blink_with, packages_with

from ringbuffer.version import install


def test_the_helper_tells_installations_apart() -> None:
    """Else the tests below would hold of anything."""
    assert {"uvicorn", "h11"} <= packages_with("frontend"), "h11: uvicorn depends on it"
    assert not {"uvicorn", "cuda-bindings"} & packages_with()
    told = blink_with((), "events", "--help").stderr
    assert f" is missing: {install('frontend')}" in told


@pytest.mark.parametrize(
    ("command", "extras"),
    [
        ("backend", ("gpu",)),
        ("backend", ()),
        ("frontend", ("frontend",)),
        ("serve", ("frontend", "gpu")),
        ("doctor", ()),
        ("explain", ()),
        ("events", ("events",)),
    ],
)
def test_a_command_needs_no_package_of_another_installation(command: str, extras: tuple[str, ...]) -> None:
    ran = blink_with(extras, command, "--help")
    assert (ran.returncode, ran.stderr) == (0, "")
