"""The command `blink`. Each subcommand is a module of this package with `configure` and `main`."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

COMMANDS = {
    "serve": "serve a model: a backend and its frontends on this machine",
    "backend": "the provisioning plane alone",
    "frontend": "the HTTP server alone, for a running backend",
    "doctor": "what this machine can do, and what is missing",
}
EPILOG = """examples:
  blink serve demo                   the model that comes with blink, at http://127.0.0.1:8000
  blink serve /models/Llama-3.1-8B   your own
  blink serve --help                 every flag, with units and defaults"""
INTERNAL_ERROR = 70  # sysexits.h, EX_SOFTWARE


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def build_parser(chosen: str | None) -> argparse.ArgumentParser:
    """All commands, but only the chosen one with its flags: the others' modules may need other packages."""
    parser = Parser(
        prog="blink",
        description="Serves language models with the scheduler on the GPU, behind an OpenAI-compatible API.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"blink {_version()}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, allow_abbrev=False)
        if name == chosen:
            module = importlib.import_module(f"blink.{name}")
            module.configure(command)
            command.set_defaults(main=module.main)
            command.add_argument("--debug", action="store_true", help="show tracebacks of errors")
    return parser


def _version() -> str:
    try:
        return importlib.metadata.version("blink-serving")
    except importlib.metadata.PackageNotFoundError:
        return "(in place, not installed)"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command. Returns its exit status: 0, 1 after an error that was told, 2 for wrong usage."""
    words = list(sys.argv[1:] if argv is None else argv)
    chosen = next((word for word in words if not word.startswith("-")), None)
    try:
        namespace = build_parser(chosen).parse_args(words)
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
        print(f"blink {chosen}: error: {text}", file=sys.stderr)
        return status


def _told(error: Exception) -> tuple[str, int]:
    """What the user is told of an error, and the exit status."""
    if isinstance(error, ModuleNotFoundError):
        return f"the package {error.name} is missing: pip install 'blink-serving[frontend]'", 1
    # Parsers raise ValueError, the system OSError, our own classes are RuntimeErrors; the rest are bugs.
    if isinstance(error, RuntimeError | ValueError | OSError):
        return str(error), 1
    return f"{error!r}; run again with --debug and report the traceback", INTERNAL_ERROR
