"""A segment as ONNX: what it computes, in the types in which the CUDA engine computes it.

Norms, activations and sums are in fp32. Products are of the model's half type, accumulated in fp32 and
rounded to that type before they are added to the residual or taken as logits; our own kernels add what they
have accumulated. To ask for a product in fp32 is no way out: TensorRT then copies the weight into fp32.
"""

from __future__ import annotations

from typing import Any

import onnx
from onnx import TensorProto, helper

from gpu_backend.element import Element
from gpu_backend.engines.tensorrt.segments import PlanOperation, Segment, Tensor, writes
from gpu_backend.models.abi import Activation
from gpu_backend.ops.matrix import Buffer, Matrix
from gpu_backend.ops.operations import AddNorm, Epilogue, MatMul, Norm, RmsNorm

OPSET = 23  # the first with RMSNormalization
IR_VERSION = 11  # that came with it
TYPES = {
    Element.BF16: TensorProto.BFLOAT16,
    Element.FP16: TensorProto.FLOAT16,
    Element.FP32: TensorProto.FLOAT,
}


def onnx_model(segment: Segment) -> bytes:
    """The segment as an ONNX model of fixed shapes. Segments of layers that are alike give the same bytes."""
    graph = helper.make_graph(
        SegmentGraph(segment).nodes(),
        segment.name,
        [_value(tensor) for tensor in segment.inputs],
        [_value(tensor) for tensor in segment.outputs],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    return bytes(model.SerializeToString(deterministic=True))


def _value(tensor: Tensor) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(tensor.name, TYPES[tensor.operand.element], tensor.shape)


class SegmentGraph:
    """The nodes of a segment, operation by operation."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._nodes: list[onnx.NodeProto] = []
        # What holds a buffer's contents so far: an input, or what the operation before has made of it.
        self._now = {tensor.name: tensor.name for tensor in segment.activations}

    def nodes(self) -> list[onnx.NodeProto]:
        segment = self._segment
        outputs = {tensor.name for tensor in segment.outputs}
        last = {writes(op).name: index for index, op in enumerate(segment.operations)}
        for index, (op, weight) in enumerate(zip(segment.operations, segment.weights, strict=True)):
            buffer = writes(op).name
            ends = last[buffer] == index and f"{buffer}_out" in outputs
            out = f"{buffer}_out" if ends else f"{buffer}_{index}"
            self._add(op, weight.name, out)
            self._now[buffer] = out
        return self._nodes

    def _add(self, op: PlanOperation, weight: str, out: str) -> None:
        match op:
            case RmsNorm():
                self._cast(self._norm(self._read(op.x), op.norm, weight), op.out.element, out)
            case AddNorm():
                normed = self._norm(self._float(op.x, self._read(op.x)), op.norm, weight)
                self._node("Add", [self._read(op.residual), normed], out)
            case MatMul():
                self._product(op, weight, out)

    def _product(self, op: MatMul, weight: str, out: str) -> None:
        if op.epilogue is Epilogue.STORE:
            self._gemm(op, weight, out)
            return
        product = self._gemm(op, weight, f"{weight}_product")
        if op.epilogue is Epilogue.GATED:
            self._cast(self._gated(op, product), op.out.element, out)
        elif op.epilogue is Epilogue.ADD:
            self._node("Add", [self._read(op.out), self._float(op.weight, product)], out)
        else:
            self._cast(product, op.out.element, out)

    def _gemm(self, op: MatMul, weight: str, out: str) -> str:
        """Halves of halves. TensorRT may accumulate a product of fp16 in fp16, which overflows, unless it
        stands between casts to fp32 and back, which become part of its kernel."""
        x = self._read(op.x)
        if op.weight.element is not Element.FP16:
            return self._node("Gemm", [x, weight], out, transB=1)
        operands = [self._float(op.x, x), self._float(op.weight, weight)]
        return self._cast(self._node("Gemm", operands, f"{weight}_sum", transB=1), Element.FP16, out)

    def _gated(self, op: MatMul, product: str) -> str:
        """activation(gate) * up, in fp32; the product has the gates' columns first. It is cut before it is
        cast: between two of TensorRT's kernels it then takes half the memory."""
        halves = [f"{product}_gate", f"{product}_up"]
        self._nodes.append(helper.make_node("Split", [product], halves, axis=-1, num_outputs=2))
        gate, up = (self._float(op.weight, half) for half in halves)
        if self._segment.activation is Activation.GELU_TANH:
            active = self._node("Gelu", [gate], f"{gate}_active", approximate="tanh")
        else:
            share = self._node("Sigmoid", [gate], f"{gate}_share")
            active = self._node("Mul", [gate, share], f"{gate}_active")
        return self._node("Mul", [active, up], f"{product}_gated")

    def _norm(self, x: str, norm: Norm, weight: str) -> str:
        """In fp32, of x in fp32."""
        factor = self._float(norm.weight, weight)
        return self._node("RMSNormalization", [x, factor], f"{weight}_normed", axis=-1, epsilon=norm.eps)

    def _float(self, of: Buffer | Matrix, name: str) -> str:
        """`name`, of the type of `of`, in fp32."""
        return name if of.element is Element.FP32 else self._cast(name, Element.FP32, f"{name}_float")

    def _cast(self, x: str, to: Element, out: str) -> str:
        return self._node("Cast", [x], out, to=TYPES[to])

    def _read(self, buffer: Buffer) -> str:
        return self._now[buffer.name]

    def _node(self, kind: str, inputs: list[str], out: str, **attributes: Any) -> str:
        self._nodes.append(helper.make_node(kind, inputs, [out], name=out, **attributes))
        return out
