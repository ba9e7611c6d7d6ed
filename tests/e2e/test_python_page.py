"""The examples of docs/python.md do what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from limits import PROGRAM_S
from serve_process import ROOT

PAGE = (ROOT / "docs" / "python.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)


def test_each_example_has_its_output() -> None:
    assert len(EXAMPLES) == PAGE.count("```python") > 3


@pytest.mark.parametrize(
    "number", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, len(EXAMPLES)))]
)
def test_an_example_prints_what_the_page_says(number: int, tmp_path: Path) -> None:
    code, output = EXAMPLES[number]
    script = tmp_path / "example.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == output
