"""One step of the CUDA engine as a sequence of operations.

    gate, [plan of the sequences that decode], embed, [plan of the prompts],
    L x [norm, qkv, [RoPE of prompts], attention, o, add, norm, MLP or experts, add],
    norm, head, sample + publish

In front of a matmul of many rows with weights in fp8, its input is quantised.

A model with norms behind attention and MLP adds what they give (AddNorm). Layers that differ in their
rotation, or in how many keys a token sees, have a plan each for the sequences that decode.

In a step with prompts, what lies behind the last layer's attention is for the batch slots' last tokens alone,
which
are gathered there; where that layer has experts, they are gathered for the last norm.

Neighbours that one kernel serves are fused afterwards (fusion.py); which kernel serves what is the choice's
matter (gpu_backend/ops/choice.py). A capture fixes capacities and addresses only (C6). Matmuls run at the
shape's capacity: rows of padding tokens hold zeros or finite values of earlier steps, and nothing reads them.
"""

from __future__ import annotations

from gpu_backend.abi import StepKind
from gpu_backend.element import Element, compute_element
from gpu_backend.engines.base import Shape
from gpu_backend.engines.native.model import DeviceLayer, NativeModel, heads_of
from gpu_backend.models.description import Model
from gpu_backend.models.quantization import Form
from gpu_backend.ops import operations as ops
from gpu_backend.ops.attention import (
    DecodeAttention,
    DecodePlan,
    LayerAttention,
    PrefillAttention,
    PrefillPlan,
    Rope,
)
from gpu_backend.ops.choice import serves
from gpu_backend.ops.matrix import Buffer, Matrix
from gpu_backend.ops.operations import Epilogue, Norm, Operation, Role
from gpu_backend.ops.quantize import quantize_for
from gpu_backend.ops.skinny_cut import SKINNY_MAX_ROWS


def decoding_slots(shape: Shape, max_batch: int) -> int:
    """Sequences that decode in a step of `shape`, at most."""
    if shape.kind == StepKind.PREFILL:
        return 0
    return shape.batch_slots if shape.kind == StepKind.DECODE else min(shape.batch_slots, max_batch)


def has_tail(config: Model, shape: Shape) -> bool:
    """Whether what lies behind the last layer's attention is for the batch slots' last tokens alone."""
    return shape.kind != StepKind.DECODE and not config.has_experts(config.n_layers - 1)


class StepBuilder:
    """The operations of a step of one shape."""

    def __init__(self, model: NativeModel, shape: Shape) -> None:
        self._model = model
        self._config = config = model.config
        self._shape = shape
        self._half = compute_element(config.dtype)
        self._decodes, self._prompts = shape.kind != StepKind.PREFILL, shape.kind != StepKind.DECODE
        self._lanes = decoding_slots(shape, model.limits.max_batch)
        self._heads = heads_of(config)
        self._residual = Buffer("residual", shape.tokens, config.hidden, Element.FP32)
        self._attention = Buffer("attention", shape.tokens, config.attention_width, self._half)
        self._logits = Buffer("logits", shape.batch_slots, config.vocab_size, Element.FP32)
        processed = Buffer("processed", shape.batch_slots, config.vocab_size, Element.FP32)
        self._sample = ops.Sample(self._logits, processed if model.limits.processors else None)

    def whole(self) -> list[Operation]:
        """A decode step whose layers are one operation."""
        config = self._config
        model = ops.DecodeModel(
            self._shape.batch_slots,
            self._model.limits.max_context,
            config.n_layers,
            self._heads,
            config.hidden,
            config.intermediate,
            self._half,
            self._model.cache.element,
            self._beyond(),
            self._logits,
            self._layer_forms()[0],
        )
        return [ops.Gate(), model, self._sample]

    def copies(self) -> list[Operation]:
        """A copy step."""
        return [ops.Gate(), ops.CopyPages(self._model.cache)]

    def _beyond(self) -> str:
        """What the model has beyond what a whole step as one operation covers."""
        config = self._config
        kinds = {
            "experts": config.experts is not None,
            "bias": config.qkv_bias or config.o_bias,
            "sinks of attention": config.sinks,
            "windows": config.windows != (None,),
            "norms behind attention and MLP": config.sandwich_norms,
            "queries that grow with their position": any(rope.growth for rope in config.ropes),
            "several rotations": len(config.ropes) > 1,
            "scale of the embedding": config.embed_scale != 1.0,
            "layers in several types": len(self._layer_forms()) > 1,
        }
        return ", ".join(kind for kind, there in kinds.items() if there)

    def _layer_forms(self) -> list[Form | None]:
        """Those of the scales of the layers' matrices, each once; None is of halves."""
        layers = self._model.weights.layers
        matrices = (m for layer in layers for m in (layer.qkv, layer.o, layer.gate_up, layer.down))
        return list(dict.fromkeys(matrix.scale_form for matrix in matrices))

    def build(self) -> list[Operation]:
        """The step, an operation a row of the table above."""
        shape, weights = self._shape, self._model.weights
        mixed = shape.kind == StepKind.MIXED
        out: list[Operation] = [ops.Gate()]
        if self._decodes:
            sizes = (self._lanes, mixed, self._heads)
            out += [DecodePlan(*sizes, reach, shape.verifies) for reach in weights.reaches]
        out.append(ops.Embed(weights.embed, self._residual, self._config.embed_scale))
        plan = PrefillPlan(shape.tokens, shape.batch_slots, self._heads)
        unbounded = any(reach.window is None for reach in weights.reaches)
        if self._prompts and unbounded and serves("prefill_plan", plan, self._model.target):
            out.append(plan)
        rows = (self._residual, self._attention)
        for index, layer in enumerate(weights.layers):
            out += self._attend(index, layer)
            if index + 1 == len(weights.layers) and has_tail(self._config, shape):
                out.append(gather := self._gather())
                rows = (gather.to_residual, gather.to_attention)
            out += self._project(layer, *rows)
            out += self._experts(layer) if layer.router else self._mlp(layer, rows[0])
        return [*out, *self._head(rows[0]), self._sample]

    def _attend(self, index: int, layer: DeviceLayer) -> list[Operation]:
        """attention(rope(qkv(norm(residual)))), and this step's keys and values into the cache. The residual
        gets the bias of o, which is to add its products to it, before that: behind the norm."""
        config, model = self._config, self._model
        qkv = Buffer("qkv", self._shape.tokens, config.qkv_width, self._half)
        norm = self._norm(layer.input_norm)
        out = self._product(Role.QKV, norm, layer.qkv, self._residual, qkv, adds=layer.o_bias)
        where = (self._heads, layer.reach, index, model.cache)
        norms = (layer.q_norm, layer.k_norm, config.norm_eps, layer.qkv_bias)
        extras = (layer.kv_scales, layer.sinks)
        of = LayerAttention(*where, qkv, self._attention, *norms, *extras)
        if (
            self._prompts
        ):  # first: their attention may then begin during that of the sequences that decode (E24)
            out.append(Rope(of))
        if self._decodes:
            mixed, verifies = self._shape.kind == StepKind.MIXED, self._shape.verifies
            out.append(DecodeAttention(self._lanes, mixed, of, verifies))
        if self._prompts:
            whole = Buffer("qkv", model.limits.max_step_tokens, config.qkv_width, self._half)
            of = LayerAttention(*where, whole, self._attention, *norms, *extras)
            out.append(PrefillAttention(self._shape.tokens, of, after_decode=self._decodes))
        return out

    def _gather(self) -> ops.GatherLast:
        """The batch slots' last tokens behind attention."""
        batch_slots, config = self._shape.batch_slots, self._config
        residual = Buffer("last_residual", batch_slots, config.hidden, Element.FP32)
        attention = Buffer("last_attention", batch_slots, config.attention_width, self._half)
        return ops.GatherLast(self._residual, self._attention, residual, attention)

    def _project(self, layer: DeviceLayer, residual: Buffer, attention: Buffer) -> list[Operation]:
        """residual += o(attention)"""
        return self._add(Role.O, layer.o, attention, residual, layer.attention_out_norm)

    def _add(
        self, role: Role, weight: Matrix, x: Buffer, residual: Buffer, norm: Matrix | None
    ) -> list[Operation]:
        """residual += norm(x times the weight)"""
        if norm is None:
            return self._matmul(role, weight, x, residual, Epilogue.ADD)
        out = Buffer("sublayer", residual.rows, residual.columns, self._half)
        added = ops.AddNorm(out, self._norm(norm), residual, self._normed(residual))
        return [*self._matmul(role, weight, x, out, Epilogue.STORE), added]

    def _matmul(
        self, role: Role, weight: Matrix, x: Buffer, out: Buffer, epilogue: Epilogue
    ) -> list[Operation]:
        """out = x times the weight. Many rows meet a weight in fp8 in fp8: the tensor cores multiply that
        twice as fast."""
        if weight.element is not Element.FP8 or x.rows <= SKINNY_MAX_ROWS:
            return [ops.MatMul(role, weight, x, out, epilogue)]
        x_fp8 = quantize_for(weight, x)
        return [x_fp8, ops.MatMul(role, weight, x_fp8.out, out, epilogue, x_fp8.scales)]

    def _mlp(self, layer: DeviceLayer, residual: Buffer) -> list[Operation]:
        """residual += down(activation(gate(norm(residual))) * up(norm(residual)))"""
        product = Buffer("product", residual.rows, self._config.intermediate, self._half)
        norm, gated = self._norm(layer.mlp_norm), Epilogue.GATED
        gate_up = self._product(Role.GATE_UP, norm, layer.gate_up, residual, product, gated)
        return [*gate_up, *self._add(Role.DOWN, layer.down, product, residual, layer.mlp_out_norm)]

    def _experts(self, layer: DeviceLayer) -> list[Operation]:
        """residual += what the experts make of norm(residual)"""
        experts = self._config.experts
        assert experts is not None
        assert layer.router is not None
        routing = ops.Routing(experts.count, experts.per_token, experts.renormalise)
        weights = (self._norm(layer.mlp_norm), layer.router, layer.gate_up, layer.down)
        rows = (self._residual, self._normed(self._residual))
        biases = (layer.router_bias, layer.gate_up_bias, layer.down_bias)
        return [ops.Moe(routing, experts.intermediate, *weights, *rows, *biases)]

    def _head(self, residual: Buffer) -> list[Operation]:
        """Logits of the batch slots' last tokens."""
        norm, head, shape = self._norm(self._model.weights.final_norm), self._model.weights.head, self._shape
        if shape.kind == StepKind.DECODE or has_tail(self._config, shape):
            return self._product(Role.HEAD, norm, head, residual, self._logits, Epilogue.STORE_FP32)
        gathered = Buffer("gathered", shape.batch_slots, self._config.hidden, self._half)
        product = ops.MatMul(Role.HEAD, head, gathered, self._logits, Epilogue.STORE_FP32)
        return [ops.GatherNorm(residual, norm, gathered), product]

    def _product(
        self,
        role: Role,
        norm: Norm,
        weight: Matrix,
        residual: Buffer,
        out: Buffer,
        epilogue: Epilogue = Epilogue.STORE,
        adds: Matrix | None = None,
    ) -> list[Operation]:
        """out = norm(residual) times the weight; residual += adds"""
        normed = self._normed(residual)
        return [
            ops.RmsNorm(residual, norm, normed, adds=adds),
            *self._matmul(role, weight, normed, out, epilogue),
        ]

    def _norm(self, weight: Matrix) -> Norm:
        return Norm(weight, self._config.norm_eps)

    def _normed(self, residual: Buffer) -> Buffer:
        return Buffer("normed", residual.rows, residual.columns, self._half)
