"""What a step must read and compute, and what it took."""

from __future__ import annotations

from dataclasses import dataclass

from bench.sustained import Sustained

from gpu_backend.abi import StepKind
from gpu_backend.cuda.product import HALF_BYTES
from gpu_backend.models.description import Model

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
    that as many random choices are expected to name."""

    def __init__(self, config: Model) -> None:
        self._config = config
        mlp = ("gate_up", "down") if config.experts is None else ("router",)
        each = {
            name: weight.n_elements
            for name, weight in config.layers[0].weights()
            if name in ("qkv", "o", *mlp)
        }
        self.matrices = {**each, "head": config.embed.n_elements}

    def of(self, name: str, load: Load) -> tuple[float, float]:
        """Bytes and floating-point operations of one launch. What is called "last" is for a token a batch
        slot."""
        config, tokens = self._config, load.tokens
        matrix, experts = name.removeprefix(LAST).split(" ")[0], config.experts
        if matrix in self.matrices:
            rows = load.batch_slots if matrix == "head" or name.startswith(LAST) else tokens
            return HALF_BYTES * self.matrices[matrix], 2 * rows * self.matrices[matrix]
        if experts is not None and name.startswith("moe_") and ("gate_up" in name or "down" in name):
            size = config.hidden * experts.intermediate * (2 if "gate_up" in name else 1)
            chosen = experts.count * (1 - (1 - experts.per_token / experts.count) ** tokens)
            return HALF_BYTES * size * chosen, 2 * size * tokens * experts.per_token
        if name in ATTENTION:
            token_bytes = 2 * HALF_BYTES * config.n_kv_heads * config.head_dim
            if name == "decode_attention":
                return load.rows * (load.context + 1) * token_bytes, 0
            pairs = load.prompt * (load.prompt + 1) / 2
            return load.prompt * token_bytes, 4 * pairs * config.n_heads * config.head_dim
        return 0, 0

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
