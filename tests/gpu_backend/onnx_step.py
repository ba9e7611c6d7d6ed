"""Steps whose segments onnxruntime runs on the CPU, from the ONNX that plans are built of. Numpy does what is
ours between them.

Everything is kept in fp32 arrays, whose values are those of the buffers' own types.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper

from gpu_backend.cuda.chip import Chip
from gpu_backend.element import HALF_TYPES, Element
from gpu_backend.engines.base import Limits, Shape
from gpu_backend.engines.native.model import DeviceLayer, NativeModel, matrix_of, reaches_of
from gpu_backend.engines.native.step import StepBuilder
from gpu_backend.engines.tensorrt.onnx_graph import TYPES, onnx_model
from gpu_backend.engines.tensorrt.segments import Segment, Tensor, segmented
from gpu_backend.models.half import half_bits, to_float32
from gpu_backend.models.registry import read_model
from gpu_backend.ops import operations as ops
from gpu_backend.ops.attention import (
    DecodeAttention,
    DecodePlan,
    LayerAttention,
    PrefillAttention,
    PrefillPlan,
    Rope,
)
from gpu_backend.ops.matrix import Buffer, Matrix
from gpu_backend.weights.checkpoint import Checkpoint

Floats = NDArray[np.float32]
CHIP = Chip(100, (8, 9))


class Token(NamedTuple):
    sequence: int
    position: int
    id: int
    sampled: bool  # its logits are asked for


def in_element(thing: Any, element: Element) -> Any:
    """A copy in which everything of a half type is of `element`."""
    if isinstance(thing, Element):
        return element if thing in HALF_TYPES else thing
    if isinstance(thing, tuple):
        return tuple(in_element(part, element) for part in thing)
    if not is_dataclass(thing):
        return thing
    return replace(thing, **{f.name: in_element(getattr(thing, f.name), element) for f in fields(thing)})


def rounded(values: Floats, element: Element) -> Floats:
    if element is Element.FP32:
        return values
    bits = half_bits(values, "float32", element.dtype)
    return to_float32(bits.view(np.float16) if element is Element.FP16 else bits, element.dtype)


def runnable(graph: bytes, element: Element) -> bytes:
    """The ONNX model with inputs and outputs in fp32. onnxruntime multiplies no bfloat16 on the CPU: such a
    product stands between casts here, which is what a product means that is accumulated in fp32."""
    model = onnx.load_from_string(graph)
    nodes = []
    for value in model.graph.input:
        kind = value.type.tensor_type
        if kind.elem_type != TensorProto.FLOAT:
            given = f"{value.name}_given"
            nodes.append(helper.make_node("Cast", [given], [value.name], to=kind.elem_type))
            value.name, kind.elem_type = given, TensorProto.FLOAT
    for node in model.graph.node:
        if node.op_type != "Gemm" or element is not Element.BF16:
            nodes.append(node)
            continue
        operands = [f"{node.name}_of_{name}" for name in node.input]
        for name, operand in zip(node.input, operands, strict=True):
            nodes.append(helper.make_node("Cast", [name], [operand], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Gemm", operands, [f"{node.name}_float32"], transB=1))
        nodes.append(helper.make_node("Cast", [f"{node.name}_float32"], node.output, to=TYPES[element]))
    for value in model.graph.output:
        kind = value.type.tensor_type
        if kind.elem_type != TensorProto.FLOAT:
            taken = f"{value.name}_taken"
            nodes.append(helper.make_node("Cast", [value.name], [taken], to=TensorProto.FLOAT))
            value.name, kind.elem_type = taken, TensorProto.FLOAT
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())


class Session:
    """A segment's ONNX, on the CPU."""

    def __init__(self, graph: bytes, element: Element) -> None:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
        made = runnable(graph, element)
        self._session = onnxruntime.InferenceSession(made, options, providers=["CPUExecutionProvider"])

    def run(self, inputs: Sequence[Floats]) -> list[Floats]:
        """Inputs and outputs in the segment's order."""
        names = [value.name for value in self._session.get_inputs()]
        made: list[Floats] = self._session.run(None, dict(zip(names, inputs, strict=True)))
        return made


class OnnxModel:
    """A model of a directory, whose steps are run as `element` has it, or in fp32."""

    def __init__(self, directory: Path, limits: Limits, element: Element) -> None:
        self.config = config = read_model(directory)
        self._element = element
        self._arrays: dict[int, Floats] = {}  # by the addresses that matrices have here
        checkpoint = Checkpoint(directory)

        def placed(weight: Any) -> Matrix:
            return matrix_of(weight, compute, self._place(rounded(checkpoint.stacked(weight), element)))

        described = NativeModel.described(config, limits, CHIP)
        compute = described.weights.embed.element
        reaches = reaches_of(
            config, lambda rope: self._place(rope.table(config.head_dim, limits.max_context))
        )
        layers = tuple(
            DeviceLayer(
                reach=reaches[layer.rope, layer.window],
                **{name: placed(weight) for name, weight in layer.weights()},
            )
            for layer in config.layers
        )
        embed = placed(config.embed)
        weights = replace(
            described.weights,
            embed=embed,
            layers=layers,
            final_norm=placed(config.final_norm),
            head=embed if config.head is None else placed(config.head),
            reaches=tuple(reaches.values()),
        )
        self._model = replace(described, weights=weights)
        self._sessions: dict[bytes, Session] = {}
        self._buffers: dict[str, Floats] = {}
        self._keys: dict[tuple[int, int, int], tuple[Floats, Floats]] = {}  # layer, sequence, position

    def _place(self, array: Floats) -> int:
        self._arrays[256 * (1 + len(self._arrays))] = array
        return 256 * len(self._arrays)

    def run(self, shape: Shape, decoding: Sequence[Token], prompts: Sequence[Token] = ()) -> Floats:
        """The logits of the sampled tokens, [n][vocab]. Rows of padding hold zeros."""
        self._tokens, self._decodes = [*decoding, *prompts], len(decoding)
        for item in segmented(StepBuilder(self._model, shape).build(), self.config.activation):
            self._run(in_element(item, self._element))
        logits = self._buffers["logits"]
        return logits[: sum(token.sampled for token in self._tokens)]

    def _run(self, item: ops.Operation | Segment) -> None:
        match item:
            case Segment():
                self._run_segment(item)
            case ops.Embed():
                out = self._zeros(item.out)
                table = self._arrays[item.table.address]
                for row, token in enumerate(self._tokens):
                    out[row] = table[token.id] * np.float32(item.scale)
            case DecodeAttention():
                self._attend(item.of, range(self._decodes))
            case PrefillAttention():
                self._attend(item.of, range(self._decodes, len(self._tokens)))
            case ops.GatherLast():
                last = [row for row, token in enumerate(self._tokens) if token.sampled]
                for of, to in (
                    (item.residual, item.to_residual),
                    (item.attention, item.to_attention),
                ):
                    self._zeros(to)[: len(last)] = self._buffers[of.name][last]
            case ops.Gate() | DecodePlan() | PrefillPlan() | Rope() | ops.Sample():
                pass  # of attention's operations, those above do everything
            case _:
                raise AssertionError(f"{type(item).__name__} is in no dense step")

    def _zeros(self, buffer: Buffer) -> Floats:
        self._buffers[buffer.name] = np.zeros((buffer.rows, buffer.columns), np.float32)
        return self._buffers[buffer.name]

    def _run_segment(self, segment: Segment) -> None:
        graph = onnx_model(segment)
        if graph not in self._sessions:
            self._sessions[graph] = Session(graph, self._element)
        made = self._sessions[graph].run([self._input(tensor) for tensor in segment.inputs])
        for tensor, value in zip(segment.outputs, made, strict=True):
            assert isinstance(tensor.operand, Buffer)
            assert value.shape == tensor.shape
            self._buffers[tensor.operand.name] = value

    def _input(self, tensor: Tensor) -> Floats:
        if isinstance(tensor.operand, Buffer):
            return self._buffers[tensor.operand.name][: tensor.operand.rows]
        return self._arrays[tensor.operand.address].reshape(tensor.shape)

    def _attend(self, of: LayerAttention, rows: Sequence[int]) -> None:
        heads, group = of.heads, of.heads.ratio
        if 0 in rows:
            self._zeros(of.out)
        queries: dict[int, Floats] = {}
        for row in rows:
            qkv = self._buffers[of.qkv.name][row]
            if of.bias:
                qkv = qkv + self._arrays[of.bias.address].reshape(-1)
            x = qkv.reshape(-1, heads.dim)
            token, last_key = self._tokens[row], heads.q + heads.kv
            q = self._turned(of, of.q_norm, x[: heads.q], token.position)
            k = self._turned(of, of.k_norm, x[heads.q : last_key], token.position)
            queries[row] = rounded(q, self._element)
            cached = rounded(k, self._element), rounded(x[last_key:], self._element)
            self._keys[of.layer, token.sequence, token.position] = cached
        for row, q in queries.items():
            token = self._tokens[row]
            first = max(0, token.position + 1 - of.reach.window) if of.reach.window else 0
            seen = [self._keys[of.layer, token.sequence, at] for at in range(first, token.position + 1)]
            k, v = (np.repeat(np.stack(part), group, axis=1) for part in zip(*seen, strict=True))
            scores = np.einsum("hd,phd->hp", q, k) / np.sqrt(np.float32(heads.dim))
            shares = np.exp(scores - scores.max(axis=1, keepdims=True))
            mixed = np.einsum("hp,phd->hd", shares / shares.sum(axis=1, keepdims=True), v)
            self._buffers[of.out.name][row] = rounded(mixed.reshape(-1).astype(np.float32), self._element)

    def _turned(self, of: LayerAttention, norm: Matrix | None, x: Floats, position: int) -> Floats:
        if norm:
            mean = np.mean(x * x, axis=1, keepdims=True)
            x = x / np.sqrt(mean + np.float32(of.eps)) * self._arrays[norm.address].reshape(-1)
        frequency, magnitude = self._arrays[of.reach.rope.address].T
        a, b = np.split(x, 2, axis=1)
        angle = np.float32(position) * frequency
        c, s = np.cos(angle) * magnitude, np.sin(angle) * magnitude
        return np.concatenate([a * c - b * s, b * c + a * s], axis=1)
