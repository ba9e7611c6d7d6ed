"""The page's document and files: what may run there, and who may read them."""

from __future__ import annotations

import re

from harness import Frontend, StartFrontend, error_of
from mock_backend import MockBackend

from nic_frontend.observe.page.document import FOLDER, files


def policy(frontend: Frontend) -> dict[str, list[str]]:
    header = frontend.client.get("/").headers["content-security-policy"]
    return {part.split()[0]: part.split()[1:] for part in header.split(";")}


def test_nothing_but_the_servers_own_scripts_and_style_may_run(frontend: Frontend) -> None:
    page = frontend.client.get("/").text
    rules = policy(frontend)
    assert rules["default-src"] == rules["base-uri"] == rules["trusted-types"] == ["'none'"]
    assert rules["connect-src"] == rules["script-src"] == rules["style-src"] == ["'self'"]
    assert rules["require-trusted-types-for"] == ["'script'"]
    assert not re.findall(r"\s(?:on\w+|style)=\"|<style|<script[^>]*>[^<]", page)


def test_no_text_becomes_html_or_a_script() -> None:
    makers = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser|srcdoc"
    for path in FOLDER.rglob("*.js"):
        assert not re.findall(makers, path.read_text()), path


def test_all_addresses_are_relative_to_the_page(frontend: Frontend) -> None:
    """So that it works behind a path, too."""
    found = re.findall(r"(?:src|href)=\"([^\"]*)\"", frontend.client.get("/").text)
    assert {"page/main.js", "page/page.css", "docs", "metrics"} <= set(found)
    assert not [url for url in found if re.match(r"/|\w+:(?!image/)", url)]
    for path in FOLDER.rglob("*.js"):
        assert not re.findall(r"(?:from|import|call\()\s*\"/", path.read_text()), path


def test_each_file_is_served_with_its_type(frontend: Frontend) -> None:
    for path, file in files().items():
        answer = frontend.client.get(path)
        assert answer.content == file.content
        kind = {"css": "text/css", "js": "text/javascript"}.get(path.rpartition(".")[2], "text/html")
        assert answer.headers["content-type"] == f"{kind}; charset=utf-8"
        assert answer.headers["x-content-type-options"] == "nosniff"
        for imported in re.findall(r"^import (?:.* from )?\"(.*)\";$", answer.text, re.MULTILINE):
            assert str((FOLDER / path.removeprefix("/page/")).parent.joinpath(imported).resolve()) in {
                str(one) for one in FOLDER.rglob("*.js")
            }


def test_nothing_else_is_served_below_the_page(frontend: Frontend) -> None:
    for name in ("", "document.py", "page.html", "../document.py", "%2e%2e/live.py", "markdown"):
        assert error_of(frontend.client.get(f"/page/{name}"), 404)["code"] == "unknown_url"


def test_the_page_needs_no_key_and_the_machine_does(
    backend: MockBackend, start_frontend: StartFrontend
) -> None:
    frontend = start_frontend(backend, api_key="secret")
    for path in files():
        assert frontend.client.get(path).status_code == 200
    assert frontend.client.get("/live").status_code == 401
    state = frontend.client.get("/live", headers={"authorization": "Bearer secret"})
    assert state.json()["model"] == "tiny"
    assert state.headers["cache-control"] == "no-store"
