"""--chat-template FILE: what is no template is refused before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from blink.cli import main
from blink.frontend import check_template
from blink.model_directory import demo_directory


def test_files_of_jinja_are_taken(tmp_path: Path) -> None:
    (tmp_path / "mine.jinja").write_text("{% for m in messages %}{{ m.content }}{% break %}{% endfor %}")
    check_template(tmp_path / "mine.jinja")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{% for m in messages %}\n{% endfro %}", r"mine\.jinja: line 2 is no Jinja"),
        (" \n", r"mine\.jinja is empty"),
        ("{{" + "(" * 9999 + ")" * 9999 + "}}", r"mine\.jinja: it nests too deeply"),
        (b"\xff\xfe", r"mine\.jinja is not text in UTF-8"),
    ],
)
def test_what_is_no_jinja_is_refused_by_its_file(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = tmp_path / "mine.jinja"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message):
        check_template(path)


@pytest.mark.parametrize(
    "text", ["/nowhere/mine.jinja", "{{ messages[0].content }}", "{# x #}" * 200, "/tmp"]
)
def test_a_path_is_wanted_and_not_the_text_of_a_template(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused by `blink serve` itself, which starts nothing then."""
    assert (
        main(["serve", str(demo_directory()), "--device", "cpu", "--port", "0", "--chat-template", text]) != 0
    )
    error = capsys.readouterr().err
    assert "--chat-template: " in error
    assert "give the path of a file of Jinja, not the template's text" in error
    assert len(error) < 300
