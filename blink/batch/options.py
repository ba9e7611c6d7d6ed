"""What `blink batch` can be told: the files, the backend, and what a frontend of its own does."""

from __future__ import annotations

import argparse
from pathlib import Path

from blink import backend, frontend
from blink.backend_process import START_TIMEOUT_S, BackendProcess
from blink.config_file import add_config_flag
from blink.errors import CommandError
from blink.files import CheckedPath, writable_file
from blink.flags import add_flags, arguments, checked, given, ring_name, seconds
from blink.model_directory import add_model_arguments, model_directory, public_name
from blink.ring_claim import RingClaim
from gpu_backend.options import BackendOptions, described_model
from nic_frontend.options import FrontendOptions
from ringbuffer.region import ring_path

OF_FRONTEND = (
    "request_timeout_s", "max_body_bytes", "max_choices", "max_prompt_tokens", "template_timeout_s",
    "template_memory_bytes", "chat_template", "tool_call_parser", "reasoning_parser",
)  # fmt: skip
FRONTEND_FLAGS = (
    *frontend.OWN_FLAGS,
    *(flag for flag in frontend.FLAGS if flag.field in OF_FRONTEND),
)
BACKEND_FLAGS = tuple(flag for flag in backend.FLAGS if flag.field != "model_name")  # the frontend has it


def _readable(path: Path) -> None:
    """Raises OSError where it is not."""
    with path.open("rb"):
        pass


def configure(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    parser.add_argument(
        "requests", metavar="IN.jsonl", action=CheckedPath, check=_readable, help="the requests"
    )
    parser.add_argument(
        "answers", metavar="OUT.jsonl", action=CheckedPath, check=writable_file,
        help="their answers, in the order in which they end; those that it has are not asked again",
    )  # fmt: skip
    parser.add_argument(
        "--ring", metavar="NAME", type=checked(ring_name),
        help="the ring of a backend that runs on this host, by name or path (default: start one)",
    )  # fmt: skip
    parser.add_argument(
        "--start-timeout", type=checked(seconds), default=START_TIMEOUT_S, metavar="SECONDS",
        help="give up when a backend of its own does not serve after this long (default: %(default)g)",
    )  # fmt: skip
    add_config_flag(parser)
    add_flags(parser, "requests", FrontendOptions, FRONTEND_FLAGS)
    add_flags(parser, "a backend of its own", BackendOptions, BACKEND_FLAGS)


def chosen(namespace: argparse.Namespace) -> tuple[FrontendOptions, BackendProcess | None]:
    """The frontend, and the backend that is to be started. Raises CommandError, and what `described_model`
    does for a model that cannot be served.
    """
    values = given(namespace, BACKEND_FLAGS)
    directory = model_directory(namespace.model, namespace.revision, weights=namespace.ring is None)
    process = None
    if namespace.ring is None:
        described_model(BackendOptions(directory, **values))  # refused before anything is started
        process = BackendProcess(
            directory,
            arguments(public_name(namespace.model) | values, backend.FLAGS),
            RingClaim("batch", "batches"),
            start_timeout_s=namespace.start_timeout,
            start_option="--start-timeout",
        )
    elif values:
        names = ", ".join(flag.name for flag in BACKEND_FLAGS if flag.field in values)
        raise CommandError(f"{names}: give them to the backend that runs, or leave out --ring")
    options = FrontendOptions(
        ring=ring_path(namespace.ring) if process is None else process.ring,
        model_dir=directory,
        slot_wait_s=None,  # all requests are this command's
        watchdog_s=None,  # nobody else would start it again
        **given(namespace, FRONTEND_FLAGS),
    )
    return options, process
