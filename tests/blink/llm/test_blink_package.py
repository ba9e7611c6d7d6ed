"""`import blink` costs nothing, and gives what programs use when they ask for it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from limits import PROGRAM_S

import blink
from blink import llm


def test_import_blink_imports_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import blink; print(*(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PROGRAM_S, check=True
    )
    assert not {name.partition(".")[0] for name in done.stdout.split()} & {"numpy", "msgspec", "nic_frontend"}


def test_what_is_public_is_told_to_type_checkers_too() -> None:
    source = Path(blink.__file__).read_text()
    assert sorted(re.findall(r"import (\w+) as \1", source)) == sorted(llm.__all__)
    for name in llm.__all__:
        assert getattr(blink, name) is getattr(llm, name)


def test_other_names_are_no_attributes() -> None:
    for name in ("Nothing", "nothing", "__path_of_nothing__"):
        with pytest.raises(AttributeError, match=f"module 'blink' has no attribute '{name}'"):
            getattr(blink, name)
