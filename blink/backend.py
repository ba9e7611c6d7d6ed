"""blink backend: the provisioning plane alone."""

from __future__ import annotations

import argparse
import os

from blink import child, systemd
from blink.address import host_port
from blink.config_file import add_config_flag
from blink.errors import CommandError
from blink.flags import Flag, add_flags, checked, count, given, ordinal, ring_name
from blink.model_directory import add_model_arguments, model_directory, public_name
from blink.sizes import format_bytes, parse_memory, write_bytes
from gpu_backend.backend import SchedulerHangs, run
from gpu_backend.devices.select import ENGINES
from gpu_backend.messages import say
from gpu_backend.models.quantization import ROUNDINGS
from gpu_backend.options import KV_CACHE_DTYPES, SCHEDULING_POLICIES, BackendOptions, parse_target
from gpu_backend.processors.source import parse_sources
from gpu_backend.rdma.options import RdmaOptions
from gpu_backend.schedulers.base import SchedulerKind
from gpu_backend.speculation import parse_acceptance, parse_share, parse_speculation, write_speculation
from ringbuffer.rdma.exchange_key import VARIABLE, ring_key

DESCRIPTION = """Loads a model, starts the scheduler, and serves requests that frontends put into the ring.
SIGTERM and SIGINT let open requests finish; a second one ends at once."""

RING = Flag(
    "--ring",
    "ring",
    "NAME",
    "the ring's name, /dev/shm/blink-NAME; the frontends are given the same",
    ring_name,
)
LEASES = Flag("--leases", "leases", "N", "frontends that may be attached at the same time", count)
FLAGS = (
    Flag("--device", "device", "DEVICE",
         "auto, gpu or cpu; auto takes the GPU, and the CPU emulation where there is none",
         choices=("auto", "gpu", "cpu")),
    Flag("--gpu", "gpu", "N", "serve from this GPU, counted from 0 (default: the first)", ordinal),
    Flag("--engine", "engine", "ENGINE",
         "what computes steps on a GPU: native runs blink's kernels and cuBLAS, tensorrt runs TensorRT's "
         "plans for what stands between attention (docs/tensorrt.md)", choices=tuple(ENGINES)),
    Flag("--scheduler", "scheduler", "KIND",
         "gpu, or to compare with it a host thread: blocking, pipelined or async",
         choices=tuple(kind.value for kind in SchedulerKind)),
    Flag("--transport", "transport", "TRANSPORT",
         "how frontends on this host reach the ring: shm, pinned host memory, or cuda_ipc, GPU memory",
         choices=("shm", "cuda_ipc")),
    Flag("--slots", "slots", "N",
         "requests that the ring can hold, waiting ones included; rounded up to a multiple of 16 a frontend",
         count),
    Flag("--max-context", "max_context", "TOKENS",
         "prompt and answer together (default: the model's, or what the KV cache holds)", count,
         also=("--max-model-len",)),
    Flag("--ring-memory", "ring_memory", "SIZE",
         "memory of prompts and answers that the ring holds, for example 256MiB (default: by --slots, "
         "--max-batch and the context, at most 1 GiB unless one request for each frontend needs more)",
         parse_memory, write=write_bytes),
    Flag("--max-batch", "max_batch", "ROWS",
         "requests decoded together (default: 128 on a GPU, 32 on a CPU)", count,
         also=("--max-num-seqs",)),
    Flag("--max-prefill-tokens", "max_prefill_tokens", "TOKENS",
         "prompt tokens in one step; longer prompts are split (default: 2048 on a GPU, 512 on a CPU)", count,
         also=("--max-num-batched-tokens",)),
    Flag("--kv-memory", "kv_memory", "SIZE",
         "memory of the KV cache, for example 8GiB; what --max-batch cannot use holds the prefix cache "
         "(default: what --max-batch can use, within 90 % of the free GPU memory, or 1 GiB on a CPU)",
         parse_memory, write=write_bytes),
    Flag("--kv-cache-dtype", "kv_cache_dtype", "TYPE",
         "type of the KV cache: fp8, which holds twice the tokens of bf16, or bf16 (fp16 in a model of that "
         "type); auto takes fp8 for checkpoints that were made for it", choices=KV_CACHE_DTYPES),
    Flag("--host-kv-memory", "host_kv_memory", "SIZE",
         "host memory for pages of the prefix cache that the KV cache has no room for, for example 64GiB "
         "(default: none)", parse_memory, write=write_bytes),
    Flag("--grammar-memory", "grammar_memory", "SIZE",
         "memory of the grammars that structured answers are held to: all those of requests that run, and as "
         "many others as fit", parse_memory, show=format_bytes, write=write_bytes),
    Flag("--page-size", "page_size", "TOKENS", "tokens of a KV page, a power of two", count,
         also=("--block-size",)),
    Flag("--no-prefix-cache", "prefix_cache", None,
         "compute every prompt from its beginning: no keys and values outlive their request", switch=True,
         also=("--no-enable-prefix-caching",)),
    Flag("--scheduling-policy", "scheduling_policy", "POLICY",
         "fcfs: clients take turns, and the requests of each are served in order; priority: requests with a "
         "lower `priority` come before all others", choices=SCHEDULING_POLICIES),
    Flag("--batch-invariant", "batch_invariant", None,
         "compute steps of up to 64 rows with the same kernels, however many requests and guesses they have",
         switch=True),
    Flag("--speculative-config", "speculative_config", "JSON",
         'guess the next tokens of an answer from its own text and check them in one step, for example '
         '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 2} '
         'or {"method": "suffix", "num_speculative_tokens": 5} (default: no guesses)',
         parse_speculation, write=write_speculation, also=("-sc",)),
    Flag("--simulate-acceptance", "simulate_acceptance", "P1,P2,...",
         "accept guesses by chance, for measurements with random weights: the n-th with chance Pn, if those "
         "before it are (default: they are compared)", parse_acceptance),
    Flag("--simulate-edits", "simulate_edits", "SHARE",
         "make each answer repeat its prompt but for some tokens, for measurements with random weights: "
         "SHARE of them are the prompt's (default: an answer is what the model says)", parse_share),
    Flag("--logits-processor", "logits_processors", "[NAME=]MODULE:FUNCTION",
         "a Python function that changes logits, compiled by Numba, for requests that name it in "
         "`logits_processors` (docs/logits-processors.md); may be given several times (default: none)",
         parse_sources, show=lambda _: "none", many=True),
    Flag("--kv-events", "kv_events", "N",
         "tell a router or `blink events` which blocks the prefix cache stores and removes, through a log of "
         "N of them in the ring", count, show=lambda _: "off"),
    Flag("--mixed-share", "mixed_share", "TOKENS",
         "prompt tokens in a step beside requests that are being answered, at least: more bring prompts in "
         "sooner, fewer keep the time between two tokens short (default: what costs those requests little)",
         count),
    Flag("--target-itl", "target_itl", "MS",
         "milliseconds between two tokens of a request: a step has no more of prompts than fits, but always "
         "some; of very long prompts only now and then, where that helps (default: none; a very long prompt "
         "makes that time up to 2.6 times as long on average)", parse_target),
    Flag("--min-itl", "min_itl", "MS",
         "milliseconds between two steps without prompts, at least: they wait for company, so far from "
         "saturation tokens need less energy (default: none; a token comes as soon as it can)", parse_target),
    Flag("--threads", "threads", "N", "threads that compute, on the CPU (default: one a core)", count),
    Flag("--served-model-name", "model_name", "NAME",
         "the model's name in requests and answers (default: the directory's name)"),
    Flag("--quantization", "quantization", "KIND",
         "round a bf16 or fp16 model's linear layers while it is loaded: to fp8, with a scale for each row, "
         "or fp8-block, with one for 128 x 128 elements; or to four bits: int4, symmetric in groups of 64, "
         "or mxfp4 (default: as the checkpoint is)",
         choices=tuple(ROUNDINGS)),
    Flag("--random-weights", "random_weights", None,
         "serve random weights of the model's shape, for measurements", switch=True),
)  # fmt: skip

RDMA_FLAGS = (
    Flag("--rdma-device", "rdma_device", "DEVICE",
         "RDMA device to use (default: the one that has the address of --rdma-listen, else the first)"),
    Flag("--rdma-gid-index", "gid_index", "N", "GID of that device (default: chosen like the device)",
         ordinal),
    Flag("--ring-key-file", "key_file", "FILE",
         f"file with the key that these frontends share with the backend (default: ${VARIABLE})",
         check=ring_key),
)  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    add_model_arguments(parser)
    add_config_flag(parser)
    add_flags(parser, "backend", BackendOptions, (RING, LEASES, *FLAGS))
    parser.add_argument(
        "--rdma-listen",
        type=checked(host_port),
        metavar="HOST:PORT",
        help="let frontends on other hosts set themselves up here, and reach the ring over RDMA",
    )
    add_flags(parser, "frontends on other hosts", RdmaOptions, RDMA_FLAGS)
    child.add_child_flags(parser)


def main(namespace: argparse.Namespace) -> int:
    on_hangup = child.begin(namespace)
    values = public_name(namespace.model) | given(namespace, (RING, LEASES, *FLAGS))
    rdma = given(namespace, RDMA_FLAGS)
    if namespace.rdma_listen:
        host, port = namespace.rdma_listen
        values["rdma"] = RdmaOptions(host=host, port=port, **rdma)
    elif rdma:
        raise CommandError("the flags for frontends on other hosts need --rdma-listen HOST:PORT")
    options = BackendOptions(model_directory(namespace.model, namespace.revision), **values)
    service = systemd.Service()

    def ready() -> None:
        child.report_ready(namespace.ready_fd)
        service.ready()

    try:
        return run(options, ready, service.lives, on_hangup)
    except SchedulerHangs as error:
        say(f"error: {error}")
        os._exit(1)
