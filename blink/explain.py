"""blink explain: which kernels serve a model on a GPU, and what they must at least take. It needs no GPU."""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from blink.bench.tables import table
from blink.flags import checked, count
from blink.model_directory import model_directory
from gpu_backend.devices.gpu import GpuServingDevice
from gpu_backend.devices.select import ENGINES, NATIVE
from gpu_backend.engines.native.explain import CACHED_TOKENS, Explanation, LaunchRow, Row, Step, explain
from gpu_backend.models.description import Model
from gpu_backend.models.quantization import ROUNDINGS
from gpu_backend.models.registry import read_model
from gpu_backend.ops.gpu import GPUS
from gpu_backend.options import KV_CACHE_DTYPES, BackendOptions, wanted_limits
from gpu_backend.weights.checkpoint import Checkpoint
from gpu_backend.weights.layout import as_stored
from gpu_backend.weights.safetensors import CheckpointError

DESCRIPTION = """Prints what a backend would capture for a model: for each size of a step the kernels, with
the bytes they move, their floating-point operations and the time that the GPU needs at least; then the
buffers, the KV pages and the weights. It needs no GPU and loads no weights."""
HEADS = ("count", "operation", "kernel", "grid x block", "shared KB", "MB", "GFLOP", "floor us", "bound by")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a model directory, a name on the hub, 'demo', 'smollm2', or the path of a config.json",
    )
    parser.add_argument("--gpu", choices=sorted(GPUS), default="h200", help="(default: h200)")
    parser.add_argument(
        "--max-batch", type=checked(count), metavar="N", help="(default: that of the backend)"
    )
    parser.add_argument("--max-context", type=checked(count), metavar="N", help="in tokens")
    parser.add_argument("--max-prefill-tokens", type=checked(count), metavar="N", help="of a step")
    parser.add_argument(
        "--context",
        type=checked(count),
        default=CACHED_TOKENS,
        metavar="TOKENS",
        help=f"that rows which decode have in the cache (default: {CACHED_TOKENS})",
    )
    parser.add_argument(
        "--engine", choices=tuple(ENGINES), default=NATIVE, help="as the backend's (default: native)"
    )
    parser.add_argument(
        "--quantization", choices=tuple(ROUNDINGS), help="as the backend's (default: as the model is)"
    )
    parser.add_argument(
        "--kv-cache-dtype", choices=KV_CACHE_DTYPES, default="auto", help="as the backend's (default: auto)"
    )
    parser.add_argument("--all", action="store_true", help="every captured size, not a few of them")
    parser.add_argument("--why", action="store_true", help="why kernels that would be faster do not serve")
    parser.add_argument("--json", action="store_true", help="for programs; has the reasons, too")


def main(namespace: argparse.Namespace) -> int:
    config = config_of(namespace.model, namespace.quantization)
    options = BackendOptions(
        Path(namespace.model),
        max_context=namespace.max_context,
        max_batch=namespace.max_batch,
        max_prefill_tokens=namespace.max_prefill_tokens,
        kv_cache_dtype=namespace.kv_cache_dtype,
        grammar_memory=0,  # no kernel's time depends on it, and a config.json alone has no tokenizer
    )
    limits = wanted_limits(options, config, GpuServingDevice.defaults)
    gpu = GPUS[namespace.gpu]
    lowering = ENGINES[namespace.engine].lowering
    explanation = explain(config, limits, gpu, namespace.context, namespace.all, lowering)
    if namespace.json:
        print(json.dumps(asdict(explanation), indent=1))
    else:
        print("\n\n".join(report(explanation, namespace.why)))
    return 0


def config_of(model: str, quantization: str | None) -> Model:
    """Of a directory, or of a config.json alone. Raises UnsupportedModel, FileNotFoundError.

    Where the weights are not there to tell, or are damaged, they are as config.json says.
    """
    form = ROUNDINGS[quantization] if quantization else None
    if not model.endswith(".json"):
        directory = model_directory(model, weights=False)
        described = read_model(directory, form)
        with suppress(CheckpointError):
            described = as_stored(described, Checkpoint(directory))
        return described
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copy(model, Path(scratch) / "config.json")
        return read_model(Path(scratch), form)


def report(explanation: Explanation, why: bool) -> list[str]:
    """Paragraphs."""
    gpu, limits = explanation.gpu, explanation.limits
    shown = f"{len(explanation.steps)} of {explanation.shapes} captured sizes"
    head = (
        f"On an {gpu.name} ({gpu.multiprocessors} multiprocessors, {gpu.read_bytes_s / 1e12:.1f} TB/s, "
        f"{gpu.half_flops / 1e12:.0f} TFLOP/s), batch {limits.max_batch}, context {limits.max_context}: "
        f"{shown}, {explanation.kernels} kernel instances."
    )
    return [head, *(step_text(step, why) for step in explanation.steps), memory_text(explanation)]


def step_text(step: Step, why: bool) -> str:
    """A line and a table."""
    load = step.load
    cached = counted(load.context, "cached token")
    filled = [f"{counted(load.rows, 'row')} to decode, with {cached} each"] if load.rows else []
    filled += [counted(load.drafts, "draft")] if load.drafts else []
    filled += [f"a prompt of {counted(load.prompt_tokens, 'token')}"] if load.prompts else []
    title = (
        f"{step.kind} step of {counted(step.tokens, 'token')} and {counted(step.batch_slots, 'batch slot')} "
        f"({', '.join(filled)}): {step.launches} launches, {step.bytes / 1e6:,.0f} MB, "
        f"at least {step.floor_us:,.0f} us"
    )
    lines = [line for row in step.rows for line in row_lines(row)]
    text = f"{title}\n\n{table(HEADS, lines)}"
    refused = {f"{row.operation}: not {name}, {reason}" for row in step.rows for name, reason in row.refused}
    return "\n".join([text, "", *sorted(refused)]) if why and refused else text


def row_lines(row: Row) -> list[tuple[str, ...]]:
    """A line for each launch; the first has the figures of all."""
    figures = (
        f"{row.bytes / 1e6:,.1f}", f"{row.flops / 1e9:,.1f}", f"{row.floor_us:,.1f}",
        row.bound if row.floor_us else "",
    )  # fmt: skip
    first, *others = row.launches
    head = (f"{row.count} x", row.operation, *launch_cells(row.family, first), *figures)
    return [head, *(("", "", *launch_cells("", other), "", "", "", "") for other in others)]


def launch_cells(family: str, launch: LaunchRow) -> tuple[str, str, str]:
    """Kernel, grid and block, shared memory."""
    name = launch.kernel.replace("blink::", "").replace("__nv_bfloat16", "bf16").replace("__half", "fp16")
    named = f"{family}: {name}" if family else name
    if not launch.block[0]:
        return named, "", ""
    grid = "x".join(str(n) for n in launch.grid if n > 1) or "1"
    cluster = f", clusters of {launch.cluster}" if launch.cluster else ""
    shared = f"{launch.shared_bytes / 1024:.0f}" if launch.shared_bytes else ""
    return named, f"{grid} x {launch.block[0]}{cluster}", shared


def memory_text(explanation: Explanation) -> str:
    """Weights, buffers and the KV cache."""
    limits, page, pages = explanation.limits, explanation.page_bytes, explanation.kv_pages
    buffers = sorted(explanation.buffers.items(), key=lambda item: -item[1])
    rows = [(name, f"{size / 1e6:,.2f}") for name, size in buffers]
    lines = (
        f"Memory: weights {explanation.weight_bytes / 1e9:.2f} GB, buffers "
        f"{sum(explanation.buffers.values()) / 1e6:,.0f} MB.",
        f"A KV page has {limits.page_size} tokens and {page / 1e6:.2f} MB. Beside weights and buffers "
        f"{pages:,} of them, for {pages * limits.page_size:,} tokens,",
        f"fit into 90 % of {explanation.gpu.memory_bytes / 1e9:.0f} GB; the batch can use at most "
        f"{limits.max_batch * limits.pages_per_sequence:,}.",
    )
    fewer = "Fewer fit: what the library's plans work in is known when they are built, and not counted."
    told = lines if explanation.all_counted else (*lines, fewer)
    return "\n".join([*told, "", table(("buffer", "MB"), rows)])


def counted(n: int, what: str) -> str:
    """ "1 row", "2 rows" """
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"
