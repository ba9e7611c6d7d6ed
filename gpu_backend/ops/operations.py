"""The operations of a step, each described once, as data: what is computed of which operands.

Which kernel serves an operation is found by gpu_backend.ops.choice. Sizes are counts of elements; m counts
rows of activations, which are tokens, or batch slots behind the last layer's attention. Attention's own
operations are in attention.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from gpu_backend.element import Element
from gpu_backend.models.quantization import Form, ScaleForm
from gpu_backend.ops.attention import DecodeAttention, DecodePlan, Heads, PrefillAttention, PrefillPlan, Rope
from gpu_backend.ops.matrix import Buffer, KvCache, Matrix


@dataclass(frozen=True)
class Norm:
    """RMSNorm: x / sqrt(mean(x^2) + eps) * weight."""

    weight: Matrix
    eps: float


class Epilogue(Enum):
    """What a matmul does with its result; the value is the constant's name in C++."""

    STORE = "kEpilogueHalf"  # in the weight's type
    STORE_FP32 = "kEpilogueFloat"
    ADD = "kEpilogueAdd"  # to what is in `out`, fp32
    GATED = "kEpilogueSilu"  # activation(gate) * up, of a weight [2][n][k] with gate and up rows


class Role(Enum):
    """Which of a model's matrices a matmul multiplies by."""

    QKV = "qkv"
    O = "o"  # noqa: E741
    GATE_UP = "gate_up"
    DOWN = "down"
    ROUTER = "router"
    HEAD = "head"


@dataclass(frozen=True)
class SumsOfSquares:
    """For a norm that is split between two matmuls (E19): `count` sums of squares of each of `buffer`'s rows.

    The first matmul leaves its output times `norm.weight` in `scaled`, and the sums; the second multiplies
    `scaled`, and its outputs by the factor that the sums give.
    """

    norm: Norm
    scaled: Buffer
    buffer: Buffer
    count: int


@dataclass(frozen=True)
class FusedRouter:
    """The router of one token's experts: its input is the norm of a matmul's output (fused_router.h)."""

    norm: Norm
    router: Matrix
    sums: Buffer


@dataclass(frozen=True)
class MatMul:
    """out[m][n] of x[m][k] times the weight [n][k] transposed.

    `x_scales`: x is in fp8, as Quantize makes both of it. The last five fields are what fusion makes of
    neighbours: `norm`: x is fp32, and normed on the way; `takes`, `leaves`: the parts of a norm between two
    matmuls; `ahead`: the next matmul, some of whose weights it may bring to L2; `router`: what it computes
    beside.
    """

    role: Role
    weight: Matrix
    x: Buffer
    out: Buffer
    epilogue: Epilogue
    x_scales: Buffer | None = None
    norm: Norm | None = None
    takes: SumsOfSquares | None = None
    leaves: SumsOfSquares | None = None
    ahead: MatMul | None = None
    router: FusedRouter | None = None

    @property
    def m(self) -> int:
        return self.x.rows

    @property
    def k(self) -> int:
        return self.x.columns

    @property
    def n(self) -> int:
        return self.out.columns

    @property
    def ends_step(self) -> bool:
        """Behind the head no weights are read any more."""
        return self.role is Role.HEAD


@dataclass(frozen=True)
class Gate:
    """Waits for the step before (E2)."""


@dataclass(frozen=True)
class CopyPages:
    """Pages of the KV cache to host memory or back, as the step says, and the step's completion."""

    cache: KvCache


@dataclass(frozen=True)
class Embed:
    """out = the embeddings of the step's tokens times `scale`."""

    table: Matrix
    out: Buffer
    scale: float


@dataclass(frozen=True)
class Quantize:
    """x = out * scales, row by row, with `out` in fp8: one scale for each row, or for each row and 128
    columns, as `form` is by row or by block (kernels/ops/quantize.h)."""

    x: Buffer
    out: Buffer
    scales: Buffer
    form: ScaleForm


@dataclass(frozen=True)
class RmsNorm:
    """out = norm(x), row by row.

    `adds` [1][columns]: x += adds, once it has been normed. What fusion makes of neighbours: `quantize`, of
    `out`, which is not written then.
    """

    x: Buffer
    norm: Norm
    out: Buffer
    quantize: Quantize | None = None
    adds: Matrix | None = None


@dataclass(frozen=True)
class AddNorm:
    """residual += norm(x), row by row: the output of a sublayer whose norm stands behind it.

    What fusion makes of neighbours: `norm_after`, the norm of the sum, which is left in `normed`; and
    `quantize`, of that norm, which is left in fp8 alone then.
    """

    x: Buffer
    norm: Norm
    residual: Buffer
    normed: Buffer
    norm_after: Norm | None = None
    quantize: Quantize | None = None


@dataclass(frozen=True)
class GatherLast:
    """The batch slots' last tokens of the residual and of attention's output."""

    residual: Buffer
    attention: Buffer
    to_residual: Buffer
    to_attention: Buffer


@dataclass(frozen=True)
class GatherNorm:
    """out = norm(x) of the batch slots' last tokens."""

    x: Buffer
    norm: Norm
    out: Buffer


@dataclass(frozen=True)
class Routing:
    """A token takes the `per_token` of `count` experts that its router scores highest. `renormalise`: the
    weights of a token's experts sum to 1."""

    count: int
    per_token: int
    renormalise: bool


@dataclass(frozen=True)
class Moe:
    """residual += the weighted sum of the experts that the router chooses for each token's norm.

    `gate_up` has [count][2][intermediate] rows, `down` [count][hidden]; their biases have as many elements,
    and that of the router `count`. The last three fields are what fusion makes of neighbours: `routed`: the
    matmul before has computed the router's logits; `norm_after`: the norm of the sum, which is left in
    `normed`; `adds`: what the residual gets behind that norm, as in RmsNorm.
    """

    routing: Routing
    intermediate: int
    norm: Norm
    router: Matrix
    gate_up: Matrix
    down: Matrix
    residual: Buffer
    normed: Buffer
    router_bias: Matrix | None = None
    gate_up_bias: Matrix | None = None
    down_bias: Matrix | None = None
    routed: bool = False
    norm_after: Norm | None = None
    adds: Matrix | None = None

    @property
    def tokens(self) -> int:
        return self.residual.rows

    @property
    def hidden(self) -> int:
        return self.residual.columns

    @property
    def pairs(self) -> int:
        """Of a token and an expert."""
        return self.tokens * self.routing.per_token


@dataclass(frozen=True)
class DecodeModel:
    """All layers of a decode step, from embedding to logits, as one operation.

    `max_context` bounds the keys of a row, in tokens. `beyond`: what the model has beyond layers of norm,
    attention over all keys, norm and MLP, in words; "" if nothing. `cached`: the type of keys and values.
    `weight_scales`: the form of the layers' matrices where they are narrow, None if they are of `element`.
    """

    batch_slots: int
    max_context: int
    layers: int
    heads: Heads
    hidden: int
    intermediate: int
    element: Element
    cached: Element
    beyond: str
    logits: Buffer
    weight_scales: Form | None = None


@dataclass(frozen=True)
class Sample:
    """Samples a token a batch slot, and publishes the step. `processed`: as large as the logits, where logits
    processors put what they return; None where there are none."""

    logits: Buffer
    processed: Buffer | None = None


Operation = (
    MatMul | Gate | CopyPages | Embed | Quantize | RmsNorm | AddNorm | GatherLast | GatherNorm | DecodePlan
    | DecodeAttention | Rope | PrefillPlan | PrefillAttention | Moe | DecodeModel | Sample
)  # fmt: skip
