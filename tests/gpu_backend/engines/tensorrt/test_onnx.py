"""What plans are written as, executed by onnxruntime on the CPU: steps' logits, and layers of real sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from model_factory import longrope, make_model
from numpy.typing import NDArray

pytest.importorskip("onnxruntime", reason="needs onnxruntime, of the extra test")

from onnx_step import Floats, OnnxModel, Session, Token, in_element, rounded
from plan_segments import segments

from gpu_backend.abi import StepKind
from gpu_backend.element import Element
from gpu_backend.engines.base import Limits, Shape
from gpu_backend.engines.tensorrt.onnx_graph import onnx_model
from gpu_backend.engines.tensorrt.segments import Segment
from gpu_backend.ops.operations import AddNorm, Epilogue, MatMul, Norm, RmsNorm

LIMITS = Limits(
    max_batch=8, max_context=256, max_prefill_tokens=64, max_prefill_slots=4, page_size=16, total_pages=64
)
# The largest error of a logit, as a share of the largest logit, lies between these.
BOUNDS = {Element.FP32: (0.0, 1e-5), Element.FP16: (1e-4, 4e-3), Element.BF16: (1e-3, 3e-2)}
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"family": "llama"},
    "llama-tied": {"family": "llama", "tie_word_embeddings": True},
    "mistral": {"family": "mistral"},
    "ministral": {"family": "ministral"},
    "qwen2": {"family": "qwen2"},
    "qwen3": {"family": "qwen3"},
    "phi3": {"family": "phi3"},
    "phi4-mini": {
        "family": "phi3",
        "rope_parameters": {**longrope(6, LIMITS.max_context), "partial_rotary_factor": 0.75},
        "original_max_position_embeddings": LIMITS.max_context,
    },
    "gemma3": {"family": "gemma3"},
}
FAST = ("llama", "qwen2", "qwen3", "phi3", "gemma3")


class Sequences:
    """Tokens of several sequences, and the logits that transformers has of them."""

    def __init__(self, oracle: Any) -> None:
        self._ids = np.random.default_rng(1).integers(3, oracle.config.vocab_size, (3, 42))
        with torch.no_grad():
            self._logits = oracle(torch.from_numpy(self._ids)).logits.numpy()

    def tokens(self, sequence: int, begin: int, end: int) -> list[Token]:
        """The last one is sampled."""
        ids = self._ids[sequence]
        return [Token(sequence, i, int(ids[i]), i + 1 == end) for i in range(begin, end)]

    def logits(self, fed: list[Token]) -> NDArray[np.float32]:
        return np.stack([self._logits[token.sequence, token.position] for token in fed if token.sampled])


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.slow] * (name not in FAST)) for name in MODELS],
)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Sequences]:
    directory = tmp_path_factory.mktemp(request.param)
    oracle = make_model(directory, dtype=torch.bfloat16, **MODELS[request.param])
    return directory, Sequences(oracle)


@pytest.mark.parametrize("element", BOUNDS, ids=lambda element: element.dtype)
def test_steps_give_the_logits_of_transformers(model: tuple[Path, Sequences], element: Element) -> None:
    """Prompts, prompts beside sequences that decode, and sequences that decode, in shapes with padding. In a
    half type only what is rounded on the way differs, as the weights are bfloat16."""
    directory, sequences = model
    steps, tokens = OnnxModel(directory, LIMITS, element), sequences.tokens
    errors = []
    for shape, decoding, prompts in (
        (Shape(StepKind.PREFILL, 64, 4), [], [*tokens(0, 0, 33), *tokens(1, 0, 20)]),
        (Shape(StepKind.MIXED, 64, 8), [*tokens(0, 33, 34), *tokens(1, 20, 21)], tokens(2, 0, 40)),
        (Shape(StepKind.DECODE, 4, 4), [*tokens(2, 40, 41), *tokens(0, 34, 35), *tokens(1, 21, 22)], []),
    ):
        got, expected = steps.run(shape, decoding, prompts), sequences.logits([*decoding, *prompts])
        errors.append(np.abs(got - expected).max() / np.abs(expected).max())
    least, most = BOUNDS[element]
    assert least <= max(errors) < most


REAL: dict[str, dict[str, Any]] = {
    "llama-3-8b": {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-5,
    },
    "qwen2.5-7b": {
        "architectures": ["Qwen2ForCausalLM"],
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "rms_norm_eps": 1e-6,
    },
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "element"),
    [("llama-3-8b", Element.FP32), ("qwen2.5-7b", Element.BF16)],
)
def test_a_layer_of_real_sizes(tmp_path: Path, name: str, element: Element) -> None:
    """What stands between two layers' attention, against the formulas in fp32."""
    config = {**REAL[name], "num_hidden_layers": 2, "vocab_size": 512, "max_position_embeddings": 4096}
    segment = segments(tmp_path, {**config, "dtype": "bfloat16"}, Shape(StepKind.DECODE, 4, 4))[1]
    segment = in_element(segment, element)
    numbers = np.random.default_rng(0).standard_normal(1_000_003, np.float32)  # which is a prime number
    inputs = []
    for tensor in segment.inputs:
        values = np.resize(numbers, tensor.shape)
        if len(tensor.shape) == 1:
            values = 1 + values / 4
        elif tensor in segment.weights:
            values /= np.sqrt(np.float32(tensor.shape[1]))
        inputs.append(rounded(values, element))
    got, expected = Session(onnx_model(segment), element).run(inputs), formulas(segment, inputs)
    errors = [np.abs(g - e).max() / np.abs(e).max() for g, e in zip(got, expected, strict=True)]
    least, most = BOUNDS[element]
    assert least <= max(errors) < most


def formulas(segment: Segment, inputs: list[Floats]) -> list[Floats]:
    """Outputs of a segment, with nothing rounded on the way."""
    values = {tensor.name: value for tensor, value in zip(segment.inputs, inputs, strict=True)}

    def norm(x: Floats, of: Norm, weight: Floats) -> Floats:
        return x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + np.float32(of.eps)) * weight

    for op, tensor in zip(segment.operations, segment.weights, strict=True):
        weight = values[tensor.name]
        match op:
            case RmsNorm():
                values[op.out.name] = norm(values[op.x.name], op.norm, weight)
            case AddNorm():
                values[op.residual.name] = values[op.residual.name] + norm(values[op.x.name], op.norm, weight)
            case MatMul():
                product = values[op.x.name] @ weight.T
                if op.epilogue is Epilogue.GATED:
                    gate, up = np.split(product, 2, axis=1)
                    product = gate / (1 + np.exp(-gate)) * up
                elif op.epilogue is Epilogue.ADD:
                    product = values[op.out.name] + product
                values[op.out.name] = product
    return [values[tensor.name.removesuffix("_out")] for tensor in segment.outputs]
