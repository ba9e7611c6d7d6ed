"""The command `blink`. Each subcommand is a module of this package with `configure` and `main`."""

from __future__ import annotations

import argparse
import importlib
import itertools
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from blink import stderr
from blink.config_file import with_files
from blink.flags import LACKS, suggestion
from blink.vllm_flags import instead
from ringbuffer.version import install, version

COMMANDS = {
    "serve": "serve a model: a backend and its frontends on this machine",
    "backend": "the provisioning plane alone",
    "frontend": "the HTTP server alone, for a running backend",
    "batch": "answer a file of requests",
    "dynamo": "a worker of NVIDIA Dynamo",
    "events": "follow what a running backend's prefix cache holds",
    "bench": "measure a server, a scheduler or a transport",
    "explain": "which kernels serve a model, and what they take at least",
    "doctor": "what this machine can do, and what is missing",
}
EPILOG = """examples:
  blink serve demo                   the model that comes with blink, at http://127.0.0.1:8000
  blink serve smollm2                SmolLM2-135M-Instruct, which answers questions
  blink serve /models/Llama-3.1-8B   your own
  blink serve --help                 every flag, with units and defaults"""
EXTRAS = {
    "matplotlib": "bench",
    "pynvml": "bench",
    "huggingface_hub": "hub",
    "zmq": "events",
    "opentelemetry": "tracing",
}  # the extra that brings a package, where not [frontend]
FLAG = re.compile("--?[a-zA-Z]")
CONTROLS = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}  # of a terminal
INTERNAL_ERROR = 70  # sysexits.h, EX_SOFTWARE


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, and that knows of files with flags."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        words = list(sys.argv[1:] if args is None else args)
        if self._subparsers is None:  # a command's own flags
            self._check_flags(words)
            words = with_files(self, words)
        return super().parse_known_args(words, namespace)

    def _check_flags(self, words: list[str]) -> None:
        """Tells of a flag that the command does not have, before its value is taken for something else."""
        for word in itertools.takewhile(lambda word: word != "--", words):
            name = word.partition("=")[0]
            if not FLAG.match(name) or name in self._option_string_actions:
                continue
            if known_to_vllm := instead(name):
                self.error(f"there is no flag {name}: {known_to_vllm}")
            lacks = f". {lacking}" if (lacking := self.get_default(LACKS)) else ""
            self.error(f"there is no flag {name}{suggestion(name, list(self._option_string_actions))}{lacks}")

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def build_parser(*chosen: str) -> argparse.ArgumentParser:
    """All commands, but only the chosen one with its flags: the others' modules may need other packages."""
    parser = Parser(
        prog="blink",
        description="Serves language models with the scheduler on the GPU, behind an OpenAI-compatible API.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"blink {version()}")
    add_commands(parser, COMMANDS, "blink", chosen)
    return parser


def add_commands(
    parser: argparse.ArgumentParser, summaries: Mapping[str, str], package: str, chosen: Sequence[str]
) -> None:
    """Adds the modules of `package` named by `summaries`; a package with COMMANDS has commands of its own."""
    commands = parser.add_subparsers(dest=f"{package} command", metavar="COMMAND", required=True)
    for name, summary in summaries.items():
        command = commands.add_parser(name, help=summary, allow_abbrev=False)
        if chosen[:1] != (name,):
            continue
        module = importlib.import_module(f"{package}.{name}")
        if hasattr(module, "COMMANDS"):
            command.description = module.DESCRIPTION
            add_commands(command, module.COMMANDS, module.__name__, chosen[1:])
        else:
            module.configure(command)
            command.set_defaults(main=module.main)
            command.add_argument("--debug", action="store_true", help="show tracebacks of errors")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command. Returns its exit status: 0, 1 after an error that was told, 2 for wrong usage."""
    stderr.install()
    words = list(sys.argv[1:] if argv is None else argv)
    chosen = [word for word in words if not word.startswith("-")]
    try:
        namespace = build_parser(*chosen).parse_args(words)
        return int(namespace.main(namespace))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if "--debug" in words:
            raise
        text, status = _told(error)
        print(f"blink {chosen[0]}: error: {text.translate(CONTROLS)}", file=sys.stderr)
        return status


def _told(error: Exception) -> tuple[str, int]:
    """What the user is told of an error, and the exit status."""
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        extra = EXTRAS.get(package, "frontend")
        return f"the package {package} is missing: {install(extra)}", 1
    # Parsers raise ValueError, the system OSError, our own classes are RuntimeErrors; the rest are bugs.
    if isinstance(error, RuntimeError | ValueError | OSError):
        return str(error), 1
    return f"{error!r}; run again with --debug and report the traceback", INTERNAL_ERROR
