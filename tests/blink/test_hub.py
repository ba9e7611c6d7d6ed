"""Models by their names on a hub, which is a server of this test's."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from blink import backend, cli, hub, serve
from blink.errors import CommandError
from blink.model_directory import demo_directory, model_directory

pytest.importorskip("huggingface_hub", reason="needs scripts/setup hub")

NAME = "Owner/Model-1B"
COMMIT = "1" * 40
FILES = {
    "config.json": b'{"a": 1}',
    "tokenizer.json": b"{}",
    "model-00001-of-00001.safetensors": b"weights",
    "consolidated.safetensors": b"the same once more",
    "original/params.json": b"{}",
    "onnx/model.safetensors": b"for another program",
    "additional_chat_templates/tool_use.jinja": b"{{ messages }}",
    "additional_chat_templates/notes.md": b"words",
    "README.md": b"words",
}


class Hub(BaseHTTPRequestHandler):
    """As much of a hub as a download asks for."""

    asked: list[str]

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.asked.append(self.path)
        path = self.path.partition("?")[0]
        owner_and_name = "/".join(path.removeprefix("/api/models").split("/")[1:3])
        if owner_and_name == "Owner/Gated":
            return self.send(403, b"{}", {"X-Error-Code": "GatedRepo"})
        if owner_and_name == "Owner/Broken":
            return self.send(500, b"{}", {})
        if owner_and_name != NAME:
            return self.send(401, b"{}", {"X-Error-Code": "RepoNotFound"})
        if path.startswith("/api/models/"):
            return self.send_listing(path)
        name = path.split("/", 5)[5]
        content = FILES[name]
        headers = {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
        return self.send(200, content, headers)

    def send_listing(self, path: str) -> None:
        if "/revision/" in path and path.rsplit("/", 1)[1] not in ("main", COMMIT):
            return self.send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        if "/tree/" in path:
            entries: Any = [
                {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for name, content in FILES.items()
            ]
        else:
            entries = {"id": NAME, "sha": COMMIT, "siblings": [{"rfilename": name} for name in FILES]}
        return self.send(200, json.dumps(entries).encode(), {"content-type": "application/json"})

    def send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"content-length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def at_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What the hub is asked; downloads go to an empty cache."""
    asked: list[str] = []
    handler = type("Handler", (Hub,), {"asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        use_hub(f"http://127.0.0.1:{server.server_port}", tmp_path / "cache", monkeypatch)
        yield asked
        server.shutdown()


def use_hub(url: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """huggingface_hub reads its variables when it is imported."""
    from huggingface_hub import constants

    monkeypatch.setenv("HF_ENDPOINT", url)
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


def test_a_model_is_downloaded_once_without_what_nobody_reads(at_hub: list[str]) -> None:
    directory = model_directory(NAME)
    assert {path.name for path in directory.iterdir()} == {
        "config.json", "tokenizer.json", "model-00001-of-00001.safetensors", "additional_chat_templates",
    }  # fmt: skip
    templates = directory / "additional_chat_templates"
    assert [path.name for path in templates.iterdir()] == ["tool_use.jinja"]
    assert (templates / "tool_use.jinja").read_bytes() == FILES["additional_chat_templates/tool_use.jinja"]
    assert (directory / "config.json").read_bytes() == FILES["config.json"]
    before = [path for path in at_hub if "/resolve/" in path]
    assert model_directory(NAME) == directory
    assert [path for path in at_hub if "/resolve/" in path and "HEAD" not in path][len(before) :] == []


def test_a_frontend_downloads_no_weights(at_hub: list[str]) -> None:
    directory = model_directory(NAME, weights=False)
    names = {"config.json", "tokenizer.json", "additional_chat_templates"}
    assert {path.name for path in directory.iterdir()} == names


@pytest.mark.parametrize(
    ("name", "revision", "message"),
    [
        ("Owner/Gated", None, "Owner/Gated is given only to those who have agreed to its terms"),
        ("Owner/Nothing", None, "has no model Owner/Nothing, or has it for others only"),
        (NAME, "no-such", f"{NAME} has no revision no-such"),
        ("Owner/Broken", None, "answers 500; try again later"),
    ],
)
def test_what_the_hub_refuses_is_told_with_what_to_do(
    at_hub: list[str], name: str, revision: str | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)
    with pytest.raises(CommandError) as told:
        model_directory(name, revision)
    assert message in str(told.value)
    assert "\n" not in str(told.value)


def test_a_hub_that_cannot_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_hub("http://127.0.0.1:9", tmp_path, monkeypatch)
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)
    assert cli.main(["serve", NAME]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"blink serve: error: {NAME} is no directory here, is not in the cache, and ")
    assert "http://127.0.0.1:9 cannot be reached from here: download it on another machine" in line


def test_a_model_in_the_cache_needs_no_hub(at_hub: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    directory = model_directory(NAME)
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert model_directory(NAME) == directory
    with pytest.raises(CommandError, match="HF_HUB_OFFLINE forbids to ask for it"):
        model_directory("Owner/Other")


def test_the_model_has_its_name_and_not_its_cache_directorys(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = cli.build_parser("serve")
    options = serve.supervisor_options(parser.parse_args(["serve", NAME]), "/cache/snapshots/1", 1)
    assert f"--served-model-name={NAME}" in options.backend
    options = serve.supervisor_options(
        parser.parse_args(["serve", NAME, "--served-model-name=mine"]), "/cache/snapshots/1", 1
    )
    assert "--served-model-name=mine" in options.backend
    monkeypatch.setattr(backend, "model_directory", lambda *_: demo_directory())
    served: list[Any] = []
    monkeypatch.setattr(backend, "run", lambda options, *_: served.append(options) or 0)
    assert cli.main(["backend", NAME]) == 0
    assert served[0].model_name == NAME


def test_directories_and_paths_are_no_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "mine").mkdir(parents=True)
    for text in ("models/mine", "/models/mine", "./models/mine", "demo", "a/b/c", "~/m", "a/", "a/.."):
        assert not hub.is_hub_name(text), text
    assert hub.is_hub_name("models/other")
    with pytest.raises(CommandError, match="--revision is for models on the hub"):
        model_directory(str(demo_directory()), "main")
