"""What `blink dynamo` can be told: Dynamo's flags, the frontend's, and those of a backend of its own."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from blink import backend, frontend
from blink.backend_process import START_TIMEOUT_S, BackendProcess
from blink.dynamo.installed import needing_dynamo
from blink.errors import CommandError
from blink.flags import LACKS, add_flags, arguments, checked, given, seconds
from blink.model_directory import model_directory
from blink.ring_claim import RingClaim
from gpu_backend.options import BackendOptions, described_model
from nic_frontend.options import FrontendOptions, VerbsRing

if TYPE_CHECKING:
    from dynamo.common.backend.worker import WorkerConfig

KV_EVENTS = 4096  # records of a backend's log, where its prefix cache tells of all that it holds

FRONTEND_FLAGS = (
    *frontend.OWN_FLAGS,
    *(flag for flag in frontend.FLAGS if flag.field in ("drain_timeout_s", "slot_wait_s")),
)
# The frontend names the model, and Dynamo's requests have no priority.
BACKEND_FLAGS = tuple(flag for flag in backend.FLAGS if flag.field not in ("model_name", "scheduling_policy"))


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a Hugging Face model directory, 'demo' or 'smollm2'")
    frontend.add_place(
        parser, None, "the ring of a backend that runs on this host, by name or path (default: start one)"
    )
    parser.add_argument(
        "--start-timeout",
        type=checked(seconds),
        default=START_TIMEOUT_S,
        metavar="SECONDS",
        help="give up when a backend of its own does not serve after this long (default: %(default)g)",
    )
    add_flags(parser, "worker", FrontendOptions, FRONTEND_FLAGS)
    add_flags(parser, "a backend on another host", VerbsRing, frontend.RDMA_FLAGS)
    add_flags(parser, "a backend of its own", BackendOptions, BACKEND_FLAGS)
    add_dynamo_flags(parser)


def add_dynamo_flags(parser: argparse.ArgumentParser) -> None:
    """Those of every worker of Dynamo's, or a line on how to get them: blink's own are listed without."""
    try:
        with needing_dynamo():
            from dynamo.common.configuration.groups.runtime_args import DynamoRuntimeArgGroup
    except CommandError as error:
        parser.formatter_class = argparse.RawDescriptionHelpFormatter  # no line break within the command
        parser.epilog = f"Dynamo's own flags are missing here: {error}"
        parser.set_defaults(**{LACKS: parser.epilog})
        return
    DynamoRuntimeArgGroup().add_arguments(parser)


def chosen_backend(namespace: argparse.Namespace) -> BackendProcess | None:
    """The backend that is to be started; None where the worker attaches to one that runs.

    Raises CommandError, and what `described_model` does for a model that cannot be served.
    """
    flags = given(namespace, BACKEND_FLAGS)
    if namespace.ring or namespace.connect:
        if flags:
            names = ", ".join(flag.name for flag in BACKEND_FLAGS if flag.field in flags)
            raise CommandError(
                f"{names}: give them to the backend that runs, or leave out --ring and --connect"
            )
        return None
    directory = model_directory(namespace.model)
    options = BackendOptions(directory, **flags)
    described_model(options)  # refuse what cannot be served before anything is started
    if options.prefix_cache and options.host_kv_memory is None:
        flags.setdefault("kv_events", KV_EVENTS)
    return BackendProcess(
        directory,
        arguments(flags, BACKEND_FLAGS),
        RingClaim("dynamo", "workers of Dynamo's"),
        start_timeout_s=namespace.start_timeout,
        start_option="--start-timeout",
    )


def frontend_options(namespace: argparse.Namespace, own: BackendProcess | None) -> FrontendOptions:
    """`own`: the backend that is to be started, as `chosen_backend` returns it. Raises CommandError."""
    ring = frontend.chosen_ring(namespace) if own is None else own.ring
    directory = model_directory(namespace.model)
    values: dict[str, Any] = {"served_model_name": directory.resolve().name}
    return FrontendOptions(ring=ring, model_dir=directory, **values | given(namespace, FRONTEND_FLAGS))


def worker_config(namespace: argparse.Namespace, options: FrontendOptions) -> WorkerConfig:
    """What Dynamo's flags and environment say of this worker."""
    from dynamo.common.backend.worker import WorkerConfig
    from dynamo.common.configuration.groups.runtime_args import DynamoRuntimeConfig
    from dynamo.common.utils.runtime import parse_endpoint

    runtime = DynamoRuntimeConfig.from_cli_args(namespace)
    runtime.validate()
    if runtime.endpoint:
        runtime.namespace, runtime.component, runtime.endpoint = parse_endpoint(runtime.endpoint)
    return WorkerConfig.from_runtime_config(
        runtime, model_name=str(options.model_dir), served_model_name=options.served_model_name
    )
