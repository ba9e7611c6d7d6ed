"""`--config FILE`: flags in TOML and YAML, beside those of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from blink import backend, cli, frontend, serve
from blink.errors import CommandError
from blink.flags import given
from blink.vllm_flags import INSTEAD
from gpu_backend.speculation import Speculation
from nic_frontend.options import FrontendOptions

TOML = """
model = "demo"
max_batch = 16
kv-memory = "2GiB"
no-prefix-cache = true
allowed-origins = ["https://a.b", "*"]
frontends = 2
"""
YAML = """
model: demo
max-batch: 16
kv_memory: 2GiB
no-prefix-cache: true
allowed-origins: ["https://a.b", "*"]
frontends: 2
"""


def written(directory: Path, name: str, text: str) -> str:
    path = directory / name
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(("name", "text"), [("c.toml", TOML), ("c.yaml", YAML)])
def test_a_file_says_what_flags_say(name: str, text: str, tmp_path: Path) -> None:
    words = ["serve", f"--config={written(tmp_path, name, text)}"]
    namespace = cli.build_parser("serve").parse_args(words)
    assert (namespace.model, namespace.frontends) == ("demo", 2)
    assert given(namespace, backend.FLAGS) == {"max_batch": 16, "kv_memory": 2 << 30, "prefix_cache": False}
    assert given(namespace, frontend.FLAGS) == {"allowed_origins": ("https://a.b", "*")}


def test_a_mapping_is_what_a_flag_of_json_takes(tmp_path: Path) -> None:
    """As vLLM's files have it."""
    text = "model: demo\nspeculative-config:\n  method: ngram\n  num_speculative_tokens: 4\n"
    words = ["serve", f"--config={written(tmp_path, 'c.yaml', text)}"]
    namespace = cli.build_parser("serve").parse_args(words)
    assert given(namespace, backend.FLAGS) == {"speculative_config": Speculation(4, 5, 5)}


def test_the_command_line_comes_before_the_file_and_children_get_both(tmp_path: Path) -> None:
    path = written(tmp_path, "c.toml", TOML)
    words = ["serve", "other", "--max-batch=8", "--config", path]
    namespace = cli.build_parser("serve").parse_args(words)
    assert namespace.model == "other"
    options = serve.supervisor_options(namespace, "other", 1234)
    assert {"--max-batch=8", f"--kv-memory={2 << 30}B", "--no-prefix-cache"} < set(options.backend)
    assert "--max-batch=16" not in options.backend


def test_a_key_in_a_file_is_not_on_a_command_line(tmp_path: Path) -> None:
    path = written(tmp_path, "c.yaml", "model: demo\napi-key: secret\n")
    options = serve.supervisor_options(
        cli.build_parser("serve").parse_args(["serve", "--config", path]), "demo", 1
    )
    assert "secret" not in " ".join([*options.backend, *options.frontend])
    assert options.environment[frontend.API_KEY_VARIABLE] == "secret"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max-bach: 8", "c.yaml: there is no flag --max-bach; did you mean --max-batch?"),
        ("kv-memory: 8", "c.yaml: kv-memory: '8' is 8 bytes; write a unit"),
        ("device: tpu", "c.yaml: device: 'tpu' is none of auto, gpu, cpu"),
        ("no-prefix-cache: maybe", "no-prefix-cache is a switch: write true, or leave it out"),
        ("max-batch:", "max-batch takes a value, found None"),
        ("model: 3", "model must be a name or a directory, found 3"),
        ("- 1", "must hold names and values"),
        ("a: [", "is not valid YAML"),
        ("config: other.yaml", "there is no flag --config"),
    ],
)
def test_what_a_file_says_wrong_is_told_with_its_name(text: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, "c.yaml", text)
    with pytest.raises(CommandError) as told:
        cli.build_parser("serve").parse_args(["serve", "--config", path])
    assert message in str(told.value)
    assert path in str(told.value)
    assert "\n" not in str(told.value)


def test_a_file_that_is_not_there_or_no_toml(tmp_path: Path) -> None:
    parser = cli.build_parser("serve")
    with pytest.raises(CommandError, match=r"cannot read /no/such.toml"):
        parser.parse_args(["serve", "--config=/no/such.toml"])
    path = written(tmp_path, "c.conf", "port: 8000")
    with pytest.raises(CommandError, match=r"is not valid TOML \(a YAML file ends in .yaml\)"):
        parser.parse_args(["serve", "--config", path])


def test_a_single_plane_reads_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[FrontendOptions] = []
    monkeypatch.setattr("nic_frontend.server.serve", lambda options, *_: served.append(options))
    path = written(tmp_path, "c.toml", 'model = "demo"\nport = 9000\n')
    assert cli.main(["frontend", "--config", path]) == 0
    assert served[0].port == 9000


def test_what_is_told_of_a_flag_of_vllm_is_about_no_flag_that_exists() -> None:
    known = {name for flag in (*backend.FLAGS, *frontend.FLAGS) for name in (flag.name, *flag.also)}
    assert not known & set(INSTEAD)
