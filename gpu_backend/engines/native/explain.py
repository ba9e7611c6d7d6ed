"""What the CUDA engine would capture for a model on a named GPU, without one: `blink explain`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpu_backend.abi import StepKind
from gpu_backend.arithmetic import ceil_div
from gpu_backend.engines.base import Limits, Shape
from gpu_backend.engines.graph_grid import GraphGrid
from gpu_backend.engines.kv_pages import fitted
from gpu_backend.engines.native.lowering import OWN_KERNELS, Lowering, buffer_bytes, kernel_names
from gpu_backend.engines.native.model import NativeModel
from gpu_backend.engines.native.sizing import page_bytes, pages_that_fit, weight_bytes, with_mixed_share
from gpu_backend.engines.native.step import StepBuilder
from gpu_backend.models.description import Model
from gpu_backend.ops.candidate import Choice
from gpu_backend.ops.costs import Cost, Load, total
from gpu_backend.ops.gpu import Gpu
from gpu_backend.ops.launch import LibraryGemm, PlanCall, Work
from gpu_backend.ops.operations import DecodeModel, Gate, MatMul, Operation, RmsNorm, Sample

KINDS = {StepKind.DECODE: "decode", StepKind.PREFILL: "prefill", StepKind.MIXED: "mixed"}
VERIFY = "verify"
# By kind, and whether drafts are verified: tokens of shapes that stand for others; whether the largest does.
REPRESENTATIVE = (
    (StepKind.DECODE, False, (1, 8, 32), True),
    (StepKind.PREFILL, False, (512,), True),
    (StepKind.MIXED, False, (256,), False),
    (StepKind.DECODE, True, (32,), False),
)
CACHED_TOKENS = 1024  # tokens in the cache of a row that decodes, unless the user says another number


@dataclass(frozen=True)
class LaunchRow:
    """One kernel. `kernel` is its C++ instance, or a library's call; `cluster` 0 means none."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: int
    shared_bytes: int


@dataclass(frozen=True)
class Row:
    """`count` operations of a step that are alike. Bytes, flops and floor are those of all of them."""

    count: int
    operation: str
    family: str
    launches: tuple[LaunchRow, ...]
    bytes: float
    flops: float
    floor_us: float
    bound: str
    refused: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Step:
    """One captured shape, filled as `load` says."""

    kind: str
    tokens: int
    batch_slots: int
    load: Load
    rows: tuple[Row, ...]
    launches: int
    bytes: float
    floor_us: float


@dataclass(frozen=True)
class Explanation:
    """Bytes by name of what is allocated; `kv_pages` fit beside it into nine tenths of the GPU's memory.

    Not `all_counted`: a library's plans need memory beside that, and nobody knows how much before they are
    built, so that fewer pages fit.
    """

    gpu: Gpu
    limits: Limits
    steps: tuple[Step, ...]
    shapes: int
    kernels: int
    weight_bytes: int
    buffers: dict[str, int]
    page_bytes: int
    kv_pages: int
    all_counted: bool


def explain(
    config: Model,
    wanted: Limits,
    gpu: Gpu,
    context: int,
    every: bool = False,
    lowering: Lowering = OWN_KERNELS,
) -> Explanation:
    """Of all shapes with `every`, else of a few that stand for the others; of steps as `lowering` makes them.

    Raises ValueError for a model that does not fit, and NoKernel where no kernel serves an operation.
    """
    limits = with_mixed_share(wanted, config)
    shapes = GraphGrid(limits).shapes
    free_bytes, chip = gpu.memory_bytes, gpu.chip
    pages = pages_that_fit(config, limits, shapes, free_bytes, chip, lowering=lowering)
    limits = fitted(limits, pages, asked=False)
    model = NativeModel.described(config, limits, chip)
    steps = {shape: lowering.lower(model, shape) for shape in shapes}
    chosen = shapes if every else representative(shapes)
    return Explanation(
        gpu,
        limits,
        tuple(_step(model, shape, steps[shape], gpu, context) for shape in chosen),
        len(shapes),
        len(kernel_names(steps.values())),
        weight_bytes(config),
        buffer_bytes(steps.values()),
        page_bytes(config, limits),
        pages,
        lowering.scratch_bytes is not None,
    )


def is_verify(shape: Shape) -> bool:
    """Whether its steps have no prompts and may have drafts."""
    return shape.verifies and shape.kind == StepKind.DECODE


def representative(shapes: Sequence[Shape]) -> list[Shape]:
    """Decode steps of 1, 8 and 32 rows and of the most, prefill steps of 512 tokens and of the most, a mixed
    step of about 256 tokens, and one of about 32 that verifies drafts: as far as there are such."""
    out: list[Shape] = []
    for kind, verifies, wanted, has_most in REPRESENTATIVE:
        of_kind = [shape for shape in shapes if (shape.kind, is_verify(shape)) == (kind, verifies)]
        if not of_kind:
            continue
        most = [of_kind[-1]] if has_most else []
        nearest = [min(of_kind, key=lambda shape: (abs(shape.tokens - n), shape.batch_slots)) for n in wanted]
        out += [shape for shape in of_kind if shape in (*nearest, *most)]
    return out


def load_of(shape: Shape, limits: Limits, context: int) -> Load:
    """Of a full step: a prefill step has one prompt, a mixed one a prompt and rows in half of its batch
    slots, and rows whose drafts are verified have as many as they may."""
    if is_verify(shape):
        rows = ceil_div(shape.tokens, 1 + limits.max_drafts)
        return Load(rows, context, 0, 0, shape.tokens - rows)
    if shape.kind == StepKind.DECODE:
        return Load(shape.batch_slots, context, 0, 0)
    rows = 0 if shape.kind == StepKind.PREFILL else min(ceil_div(shape.batch_slots, 2), limits.max_batch)
    return Load(rows, context if rows else 0, 1, shape.tokens - rows)


def _step(model: NativeModel, shape: Shape, choices: list[Choice], gpu: Gpu, context: int) -> Step:
    load = load_of(shape, model.limits, context)
    groups: dict[tuple[str, str, tuple[LaunchRow, ...]], list[Choice]] = {}
    for choice in choices:
        launches = tuple(_launch(work) for work in choice.launches)
        groups.setdefault((describe(choice), choice.name, launches), []).append(choice)
    rows = []
    for (operation, family, launches), alike in groups.items():
        spent = sum((total(_computed(choice), load) for choice in alike), Cost())
        if isinstance(alike[0].op, DecodeModel):
            spent = total(_inside(model, shape), load)
        figures = (spent.bytes, spent.flops, spent.floor_us(gpu), spent.bound(gpu))
        rows.append(Row(len(alike), operation, family, launches, *figures, alike[0].refused))
    floor_us = sum(row.floor_us for row in rows)
    n_launches = sum(len(choice.launches) for choice in choices)
    where = (VERIFY if is_verify(shape) else KINDS[shape.kind], shape.tokens, shape.batch_slots)
    return Step(*where, load, tuple(rows), n_launches, sum(row.bytes for row in rows), floor_us)


def _inside(model: NativeModel, shape: Shape) -> list[Operation]:
    """What a DecodeModel stands for. Norms are part of the matmuls that read them."""
    outside = (Gate, RmsNorm, Sample)
    return [op for op in StepBuilder(model, shape).build() if not isinstance(op, outside)]


def _computed(choice: Choice) -> tuple[Operation, ...]:
    """What the choice computes: of a library's plan, all that it has."""
    first = next(iter(choice.launches), None)
    return first.operations if isinstance(first, PlanCall) else (choice.op,)


def _launch(work: Work) -> LaunchRow:
    if isinstance(work, LibraryGemm):
        return LaunchRow("cublasGemmEx", (0, 0, 0), (0, 0, 0), 0, 0)
    if isinstance(work, PlanCall):
        return LaunchRow("plan", (0, 0, 0), (0, 0, 0), 0, 0)
    cluster = work.cluster if work.cluster > 1 else 0
    return LaunchRow(work.kernel, work.grid, work.block, cluster, work.shared_bytes)


def describe(choice: Choice) -> str:
    """The operation in words: its name, and the sizes of a matmul; of a library's plan, its matmuls."""
    op = choice.op
    if isinstance(first := next(iter(choice.launches), None), PlanCall):
        rows = first.writes[0][1].rows
        roles = [part.role.value for part in first.operations if isinstance(part, MatMul)]
        return f"{', '.join(roles)} ({rows} {'row' if rows == 1 else 'rows'})"
    if not isinstance(op, MatMul):
        name = type(op).__name__
        fused = {"norm": getattr(op, "norm_after", None), "Quantize": getattr(op, "quantize", None)}
        return " + ".join([name, *(part for part, of in fused.items() if of)])
    sizes = f"{op.m} x {op.weight.rows} x {op.k}"
    before = "norm, " if op.norm else "scaled " if op.takes else ""
    after = " + router" if op.router else " + norm" if op.leaves else ""
    return f"{before}{op.role.value}{after} ({sizes})"
