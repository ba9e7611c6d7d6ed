"""The command line: flags, help, and errors of one line with the mend."""

from __future__ import annotations

import argparse
import dataclasses
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given as with_examples
from hypothesis import strategies as st
from limits import PROGRAM_S
from serve_process import ROOT

from blink import backend, cli, frontend, serve
from blink.flags import add_flags, arguments, defaults, given
from blink.model_directory import demo_directory
from gpu_backend.models.registry import ARCHITECTURES
from gpu_backend.options import BackendOptions
from nic_frontend.options import FrontendOptions
from ringbuffer.region import ring_path
from ringbuffer.version import install

TABLES = {
    "backend": (BackendOptions, (backend.RING, backend.LEASES, *backend.FLAGS)),
    "frontend": (FrontendOptions, (*frontend.OWN_FLAGS, *frontend.FLAGS)),
}


@pytest.mark.parametrize("name", TABLES)
def test_flags_name_fields_and_the_dataclass_alone_has_defaults(name: str) -> None:
    options, flags = TABLES[name]
    fields = {field.name for field in dataclasses.fields(options)}
    assert {flag.field for flag in flags} <= fields
    parser = argparse.ArgumentParser()
    add_flags(parser, name, options, flags)
    assert vars(parser.parse_args([])) == {}


@with_examples(
    st.fixed_dictionaries(
        {},
        optional={
            "device": st.sampled_from(["auto", "gpu", "cpu"]),
            "slots": st.integers(1, 4096),
            "kv_memory": st.integers(1, 2**40),
            "model_name": st.text(st.characters(codec="utf-8", exclude_categories=("Cc",)), min_size=1),
            "random_weights": st.just(True),
        },
    )
)
def test_a_child_reads_what_the_supervisor_was_given(values: dict[str, object]) -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, "backend", BackendOptions, backend.FLAGS)
    assert given(parser.parse_args(arguments(values, backend.FLAGS)), backend.FLAGS) == values


def test_an_api_key_is_not_on_the_frontends_command_line() -> None:
    parser = cli.build_parser("serve")
    namespace = parser.parse_args(["serve", "demo", "--api-key=secret", "--port=0"])
    options = serve.supervisor_options(namespace, "demo", 1234)
    assert "secret" not in " ".join([*options.backend, *options.frontend])
    assert options.environment[frontend.API_KEY_VARIABLE] == "secret"


def test_an_empty_variable_is_no_api_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The unit's environment file has it empty. And the ring is the one that `blink backend` makes."""
    monkeypatch.setenv(frontend.API_KEY_VARIABLE, "")
    served: list[FrontendOptions] = []
    monkeypatch.setattr("nic_frontend.server.serve", lambda options, *_: served.append(options))
    assert cli.main(["frontend", "demo"]) == 0
    assert served[0].api_key is None
    assert served[0].ring == ring_path(BackendOptions(Path()).ring)


def test_each_plane_gets_its_own_flags() -> None:
    words = [
        "serve",
        "m",
        "--frontends=3",
        "--host=::1",
        "--allowed-origins=https://A.b,*",
        "--max-body=1MiB",
        "--kv-memory=2GiB",
        "--max-model-len=1024",
        "--slots=64",
    ]
    options = serve.supervisor_options(cli.build_parser("serve").parse_args(words), "m", 1234)
    assert options.url == "http://[::1]:1234/v1"
    assert options.n_frontends == 3
    assert {
        "--leases=3",
        f"--kv-memory={2 << 30}B",
        "--slots=64",
        "--max-context=1024",
        "--ring=serve-1234",
    } < set(options.backend)
    assert {"--host=::1", "--port=1234", f"--max-body={1 << 20}B", "--ring=serve-1234"} < set(
        options.frontend
    )
    assert "--allowed-origins=https://a.b,*" in options.frontend
    assert not set(options.frontend) & {"--slots=64", "--leases=3"}


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_is_complete(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "--lease-fd" not in text
    flags = {"serve": (*backend.FLAGS, *frontend.FLAGS)} | {
        name: table for name, (_, table) in TABLES.items()
    }
    for flag in flags.get(command, ()):
        assert flag.name in text


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("zmq.sugar", "events"),
        ("opentelemetry.sdk", "tracing"),
        ("huggingface_hub", "hub"),
        ("yaml", "frontend"),
    ],
)
def test_a_package_that_is_missing_is_named_with_the_mend(
    module: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def main(_: argparse.Namespace) -> int:
        raise ModuleNotFoundError(name=module)

    monkeypatch.setattr("blink.doctor.main", main)
    assert cli.main(["doctor"]) == 1
    package = module.partition(".")[0]
    assert capsys.readouterr().err == (
        f"blink doctor: error: the package {package} is missing: {install(extra)}\n"
    )


def test_help_of_all_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    text = capsys.readouterr().out
    assert all(command in text for command in cli.COMMANDS)


@pytest.fixture
def broken_model(tmp_path: Path) -> Path:
    """A model directory of an architecture that nobody serves."""
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_text((demo_directory() / name).read_text())
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["MambaForCausalLM"]}))
    return tmp_path


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "blink", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PROGRAM_S, check=False)


def check_error(printed: str, message: str) -> None:
    assert message in printed
    assert len(printed.splitlines()) == 1, printed
    assert printed.startswith("blink")
    assert "<" not in printed  # what Python calls a value


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "arguments are required: COMMAND"),
        (("nope",), "invalid choice: 'nope'"),
        (("serve",), "arguments are required: MODEL"),
        (("serve", "demo", "--device=tpu"), "argument --device: invalid choice: 'tpu'"),
        (("serve", "demo", "--scheduler=foo"), "invalid choice: 'foo' (choose from"),
        (("serve", "demo", "--quantization=int3"), "invalid choice: 'int3' (choose from"),
        (("serve", "demo", "--kv-memory=lots"), "'lots' is not a size; write for example 512MiB or 8GiB"),
        (("serve", "demo", "--frontends=33"), "33 frontends are too many; at most 32"),
        (("serve", "demo", "--port=70000"), "70000 is not a port"),
        (("serve", "demo", "--slots=0"), "0 is less than 1"),
        (("serve", "demo", "--max-body=1e400"), "'1e400' is not a size; write for example 512MiB or 8GiB"),
        (("serve", "demo", "--api-key="), "the key is empty"),
        (("serve", "demo", "--allowed-origins=https://a.example/"), "'https://a.example/' is no origin"),
        (("serve", "demo", "--kv-memory", "8"), "'8' is 8 bytes; write a unit, for example 8GiB"),
        (("serve", "demo", "--max-batsh", "8"), "no flag --max-batsh; did you mean --max-batch? (see blink "),
        (("serve", "--frobnicate", "demo"), "there is no flag --frobnicate"),
        (("bench", "serve", "u", "--concurency=4"), "--concurrency? (see blink bench serve --help)"),
        (("serve", "demo", "--gpu-memory-utilization=0.9"), "use --kv-memory SIZE"),
        (("serve", "demo", "--tensor-parallel-size", "2"), "one model runs on one GPU"),
        (("serve", "demo", "-tp", "2"), "there is no flag -tp: one model runs on one GPU"),
        (("serve", "demo", "-O3"), "there is no flag -O3: steps are captured graphs"),
        (("serve", "demo", "--compilation-config.level=3"), "steps are captured graphs"),
        (("serve", "demo", "--max_model_len=512"), "did you mean --max-model-len?"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_told_in_one_line(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(list(words))
    assert ended.value.code == 2
    check_error(capsys.readouterr().err, message)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("serve", "/no/such/dir"), "no directory /no/such/dir: give a Hugging Face model directory"),
        (("serve", "/"), "/ has no config.json and no tokenizer.json"),
        (("backend", "demo", "--device=cpu", "--ring=a/b"), "cannot make a ring in a: No such file or "
         "directory; a name has no slash"),
        (("serve", "demo", "--quantization=fp8-block"), "have 320 rows, which must be multiples of 128"),
        (("serve", "demo", "--host=192.0.2.1"), "192.0.2.1 is not an address of this machine"),
        (("serve", "demo", "--host=no.such.host.invalid"), "is not an address of this machine"),
        (("frontend", "demo", "--ring=none", "--attach-timeout=0"), "start `blink backend` first"),
        (("backend", "demo", "--device=cpu", "--max-context=9999"), "the model takes at most 2048 tokens"),
        (("backend", "demo", "--device=cpu", "--kv-memory=1KiB"), "raise --kv-memory"),
        (("backend", "demo", "--device=cpu", "--host-kv-memory=1KiB"), "raise --host-kv-memory"),
        (("backend", "demo", "--device=cpu", "--host-kv-memory=1GiB", "--no-prefix-cache"),
         "leave out --no-prefix-cache"),
        (("backend", "demo", "--device=cpu", "--host-kv-memory=1GiB", "--scheduler=async"),
         "needs the prefix cache, which async does not have"),
    ],
)  # fmt: skip
def test_errors_are_one_line_with_the_mend(words: tuple[str, ...], message: str) -> None:
    done = run(*words)
    assert done.returncode == 1, done.stderr
    check_error(done.stderr, message)


def test_an_unsupported_model_is_refused_before_anything_starts(broken_model: Path) -> None:
    done = run("serve", str(broken_model))
    assert done.returncode == 1
    supported = f"supported are {', '.join(ARCHITECTURES)}"
    assert done.stderr == f"blink serve: error: architectures: MambaForCausalLM; {supported}\n"


@pytest.mark.parametrize("command", ["serve", "frontend"])
def test_a_port_in_use(command: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        flags = ["--ring=none"] if command == "frontend" else []
        done = run(command, "demo", f"--port={port}", *flags)
    assert done.returncode == 1
    assert f"port {port} of 127.0.0.1 is in use by another process: choose another with --port" in done.stderr


def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("numpy", "gpu_backend.cuda.probe", "blink.checks", "blink.doctor"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert cli.main(["doctor"]) == 1
    assert f"the package numpy is missing: {install('frontend')}" in capsys.readouterr().err


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = f"{sys.executable} -m blink doctor | head -n 1"
    done = subprocess.run(
        command, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=PROGRAM_S, check=False
    )
    assert done.stdout == "machine\n"
    assert done.stderr == ""


def test_debug_shows_the_traceback() -> None:
    done = run("serve", "/no/such/dir", "--debug")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "CommandError: no directory" in done.stderr


def test_a_bug_says_how_to_report_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(text: str, revision: str | None) -> Path:
        raise KeyError(text)

    monkeypatch.setattr(serve, "model_directory", fail)
    assert cli.main(["serve", "demo"]) == cli.INTERNAL_ERROR
    assert "KeyError('demo'); run again with --debug and report the traceback" in capsys.readouterr().err


def test_defaults_come_from_the_dataclass() -> None:
    assert defaults(FrontendOptions)["port"] == FrontendOptions(ring=Path(), model_dir=Path()).port
