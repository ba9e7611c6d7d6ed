"""What a step must read and compute, and what it took."""

from __future__ import annotations

from dataclasses import dataclass

from bench.sustained import Sustained

from gpu_backend.abi import StepKind
from gpu_backend.element import Element, compute_element
from gpu_backend.engines.native.model import matrix_of
from gpu_backend.models.description import Model
from gpu_backend.ops.costs import FP8_SPEED
from gpu_backend.ops.skinny_cut import SKINNY_MAX_ROWS

LAST = "last "  # matrices of the last layer where its rows are the batch slots'


@dataclass(frozen=True)
class Operation:
    """All launches of one operation in a step."""

    name: str
    launches: int
    bytes: float
    flops: float
    floor_us: float
    us: float
    sustained: Sustained | None = None


@dataclass(frozen=True)
class Load:
    """Rows that decode at `context` tokens each, and the first `prompt` tokens of one prompt."""

    rows: int
    prompt: int
    context: int

    @property
    def kind(self) -> StepKind:
        if not self.prompt:
            return StepKind.DECODE
        return StepKind.MIXED if self.rows else StepKind.PREFILL

    @property
    def tokens(self) -> int:
        return self.rows + self.prompt

    @property
    def batch_slots(self) -> int:
        return self.rows + (self.prompt > 0)


@dataclass(frozen=True)
class Step:
    """`tokens` in all, of which `rows` decode."""

    kind: str
    tokens: int
    rows: int
    context: int
    floor_us: float
    us: float
    operations: list[Operation]
    sustained: Sustained | None = None


ATTENTION = ("decode_attention", "flash_attention", "prefill_attention")


class Costs:
    """By the names of matrices and operations. Bytes are those of weights, keys and values; of experts, those
    that as many random choices are expected to name. Floating-point operations count as those of halves.
    """

    def __init__(self, config: Model, cached: Element) -> None:
        """`cached`: the type of keys and values."""
        self._config, self._cached = config, cached
        element, weights = compute_element(config.dtype), dict(config.layers[0].weights())
        weights["head"] = config.head or config.embed
        mlp = ("gate_up", "down") if config.experts is None else ("router",)
        self.matrices = {name: weights[name].n_elements for name in ("qkv", "o", *mlp, "head")}
        self._bytes = {name: matrix_of(weight, element).n_bytes for name, weight in weights.items()}
        self._in_fp8 = {name for name, weight in weights.items() if weight.scales}

    def of(self, name: str, load: Load) -> tuple[float, float]:
        """Bytes and floating-point operations of one launch. What is called "last" is for a token a batch
        slot."""
        config, tokens = self._config, load.tokens
        matrix, experts = name.removeprefix(LAST).split(" ")[0], config.experts
        if matrix in self.matrices:
            rows = load.batch_slots if matrix == "head" or name.startswith(LAST) else tokens
            return self._bytes[matrix], self._flops(matrix, rows, 2 * rows * self.matrices[matrix])
        if experts is not None and name.startswith("moe_") and ("gate_up" in name or "down" in name):
            part = "gate_up" if "gate_up" in name else "down"
            size = config.hidden * experts.intermediate * (2 if part == "gate_up" else 1)
            chosen = 1 - (1 - experts.per_token / experts.count) ** tokens
            flops = 2 * size * tokens * experts.per_token
            return self._bytes[part] * chosen, self._flops(part, tokens, flops)
        if name in ATTENTION:
            token_bytes = 2 * self._cached.n_bytes * config.n_kv_heads * config.head_dim
            if name == "decode_attention":
                return load.rows * (load.context + 1) * token_bytes, 0
            pairs = load.prompt * (load.prompt + 1) / 2
            return load.prompt * token_bytes, 4 * pairs * config.n_heads * config.head_dim
        return 0, 0

    def _flops(self, matrix: str, rows: int, flops: float) -> float:
        """Those of many rows with a matrix in fp8 take less time, as if they were fewer."""
        return flops / FP8_SPEED if matrix in self._in_fp8 and rows > SKINNY_MAX_ROWS else flops

    def step(self, load: Load) -> tuple[float, float]:
        """Of a whole step, whatever kernels it is made of."""
        layers = self._config.n_layers
        each = [*(m for m in self.matrices if m != "head"), "decode_attention", "flash_attention"]
        each += ["moe_gate_up", "moe_down"] if self._config.experts is not None else []
        costs = [*([self.of(name, load) for name in each] * layers), self.of("head", load)]
        if load.prompt and self._config.experts is None:
            for name in ("o", "gate_up", "down"):
                costs[each.index(name)] = self.of(LAST + name, load)
        return sum(b for b, _ in costs), sum(f for _, f in costs)
