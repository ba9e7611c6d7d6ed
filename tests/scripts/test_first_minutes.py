"""The transcript in docs/ is of the commands that the script runs now."""

from __future__ import annotations

import re

import first_minutes


def test_the_page_has_every_command_of_the_script() -> None:
    page = first_minutes.PAGE.read_text()
    told = [line.removeprefix("$ ") for line in page.splitlines() if line.startswith("$ ")]
    wanted = [
        command
        for step in first_minutes.STEPS
        for command in (*step.commands, *([step.serves] if step.serves else []))
    ]
    assert told == wanted
    assert re.findall("^## (.*)", page, re.MULTILINE) == [step.title for step in first_minutes.STEPS]


def test_the_page_names_no_directory_of_the_machine_that_it_was_made_on() -> None:
    assert not re.search(r"/(?:tmp|root|home|work)/", first_minutes.PAGE.read_text())
