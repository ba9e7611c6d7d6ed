"""A step of the CUDA engine on expressions: the logits that its model has, and loads of its shapes."""

from __future__ import annotations

from symbolic_attention import SymbolicAttention
from symbolic_experts import SymbolicExperts
from symbolic_operands import Load
from symbolic_plan import Expression

from gpu_backend.abi import StepKind
from gpu_backend.engines.base import Limits, Shape


class SymbolicStep(SymbolicAttention, SymbolicExperts):
    def expected(self, token: int) -> Expression:
        """The logits that the model has of a token of the last step."""
        x: Expression = ("embed", self._id, token)
        for i in range(self.config.n_layers):
            qkv = ("times", f"qkv{i}", ("norm", f"input_norm{i}", x))
            layer = self.config.layers[i]
            norms = (f"q_norm{i}", f"k_norm{i}") if layer.q_norm else (None, None)
            bias = f"qkv_bias{i}" if layer.qkv_bias else None
            turned = ("rope", *norms, bias, self._rope_name(i), i, qkv)
            sinks = f"sinks{i}" if layer.sinks else None
            attended = ("times", f"o{i}", ("attention", i, layer.window or 0, sinks, turned))
            if layer.o_bias:
                x = ("add", x, f"o_bias{i}")
            if layer.attention_out_norm:
                attended = ("norm", f"attention_out_norm{i}", attended)
            x = ("add", x, attended)
            normed = ("norm", f"mlp_norm{i}", x)
            if self.config.has_experts(i):
                logits: Expression = ("times", f"router{i}", normed)
                choice = ("choice", ("add", logits, f"router_bias{i}") if layer.router_bias else logits)
                biases = [f"{of}_bias{i}" if layer.gate_up_bias else None for of in ("gate_up", "down")]
                product = ("experts' silu", f"gate_up{i}", biases[0], normed, choice)
                x = ("add", x, ("sum", ("experts' down", f"down{i}", product), biases[1], choice))
            else:
                made = ("times", f"down{i}", ("silu", ("times", f"gate_up{i}", normed)))
                if layer.mlp_out_norm:
                    made = ("norm", f"mlp_out_norm{i}", made)
                x = ("add", x, made)
        return ("times", "head", ("norm", "final_norm", x))

    def _rope_name(self, i: int) -> str:
        """Of the table of layer i, which is the first of those with its rotation and its window."""
        kinds = [(layer.rope, layer.window) for layer in self.config.layers]
        return f"rope{list(dict.fromkeys(kinds)).index(kinds[i])}"


def loads(shape: Shape, limits: Limits) -> list[Load]:
    """As full as `shape` allows, and as empty."""
    if shape.kind == StepKind.DECODE:
        return [Load(n, n, tuple(range(n))) for n in {shape.tokens, max(1, shape.tokens - 1)}]
    out = []
    for full in (True, False):
        prompts = min(limits.max_prefill_slots, shape.batch_slots, shape.tokens) if full else 1
        most = min(limits.max_batch, shape.batch_slots - prompts, shape.tokens - prompts)
        decoding = 0 if shape.kind == StepKind.PREFILL else most if full else 1
        tokens = shape.tokens if full else decoding + 1
        ends = [decoding + (i + 1) * (tokens - decoding) // prompts - 1 for i in range(prompts)]
        out.append(Load(tokens, decoding, (*range(decoding), *ends)))
    return out
