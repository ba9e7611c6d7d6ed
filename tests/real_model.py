"""SmolLM2-135M-Instruct, whose directory scripts/real_model makes: what it is asked, and what transformers
says.

An engine's greedy answer is compared with transformers' token by token, each given the engine's own tokens
before it: the whole answer is transformers' own where every token is, and one that differs hides no other.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from fp8_rounding import round_to_fp8
from limits import WAIT_S
from numpy.typing import NDArray
from serving import serving
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.models.llama import modeling_llama

from blink import smollm2
from gpu_backend.models import fourbit, fp8
from gpu_backend.models.fp8 import dequantized
from gpu_backend.models.quantization import Form, ScaleForm
from ringbuffer.abi import Reason
from ringbuffer.client import RingClient
from ringbuffer.extents import logprobs

TEXTS = {path.stem: path.read_text() for path in sorted((Path(__file__).parent / "texts").glob("*.txt"))}
QUESTIONS = (
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "Name the planets in order,\nbeginning   12   with the nearest.",
    "What is 17*3? And 2024 - 1999?",
    "Summarize: " + "The quick brown fox jumps over the lazy dog. " * 6,
    "Say hello.",
    "Ein Satz über Züge, bitte. Grüße!",
    "Écris une phrase sur l'été à Paris, s'il te plaît.",
    "¿Cuál es la capital de España?",
    "Какая столица России?",
    "Ποια είναι η πρωτεύουσα της Ελλάδας;",
    "ما هي عاصمة مصر؟ أجب بجملة واحدة.",
    "מהי בירת ישראל?",
    "भारत की राजधानी क्या है? १२३",
    "用一句话解释什么是人工智能。",
    "日本で一番高い山は何ですか。",
    "대한민국의 수도는 어디입니까?",
    "Tell me a joke about cats 🐱 and dogs 🐶👩🏽‍🚀.",
    "Write a Python function that reverses a string:\n\n```python\ndef reverse(text: str) -> str:\n```",
    'Write JSON with the keys "name" and "age".\r\n\t{"name": "Ada"}',
)
ANSWER_TOKENS = 48
FP8_LARGEST = 448.0
_rope = modeling_llama.apply_rotary_pos_emb
SCORED = {"prompt_logprob_words": 1}  # a descriptor's field: the log-probability of each token of the prompt


def made_directory() -> Path:
    """Skips the test where there is none."""
    path = smollm2.default_directory()
    if not smollm2.is_made(path):
        pytest.skip(f"needs {path}: run scripts/real_model")
    return path


class Reference:
    """transformers in fp32 over the weights' values. Of each text it takes at most `most` tokens."""

    most: int | None = None

    def __init__(self, directory: Path, device: str = "cpu") -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(directory)
        model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
        self.model = model.to(device).eval()

    def prompt(self, question: str) -> list[int]:
        """Of a chat with one message."""
        chat = [{"role": "user", "content": question}]
        tokens = self.tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)
        return list(tokens["input_ids"])

    def text(self, name: str) -> list[int]:
        return list(self.tokenizer(TEXTS[name])["input_ids"])[: self.most]

    @torch.no_grad()
    def logits(self, tokens: Sequence[int]) -> torch.Tensor:
        """[len(tokens)][vocab], of what comes after each."""
        return self.model(torch.tensor([tokens], device=self.model.device), use_cache=False).logits[0].cpu()

    def scores(self, tokens: Sequence[int]) -> NDArray[np.float64]:
        """[len(tokens) - 1]: the log-probability of each token but the first."""
        logs = torch.log_softmax(self.logits(tokens)[:-1], -1)
        return logs.gather(1, torch.tensor(tokens[1:])[:, None])[:, 0].double().numpy()

    def regrets(self, prompt: Sequence[int], answer: Sequence[int]) -> NDArray[np.float64]:
        """[len(answer)]: by how much each token's logit is below the largest, 0 where the token is greedy."""
        logits = self.logits([*prompt, *answer[:-1]])[len(prompt) - 1 :]
        chosen = logits.gather(1, torch.tensor(answer)[:, None])[:, 0]
        return (logits.amax(1) - chosen).double().numpy()


class RoundedReference(Reference):
    """The same with the layers' weights rounded to `form`, with keys and values to fp8 where `kv` says so,
    and with what the layers multiply, to fp8 by token, where `activations` says so.

    Weights are rounded as engines do it, whose scales are multiplied by: 1 in 2,000 elements is a tie that a
    division would round to the other neighbour.
    """

    def __init__(
        self,
        directory: Path,
        device: str = "cpu",
        *,
        form: Form = ScaleForm.ROW,
        kv: bool = False,
        activations: bool = False,
    ) -> None:
        super().__init__(directory, device)
        self._rope = _rope_and_rounding if kv else modeling_llama.apply_rotary_pos_emb
        for name, module in self.model.named_modules():
            if name.endswith("_proj"):
                weight = module.weight.data.cpu().numpy()
                module.weight.data = torch.from_numpy(rounded(weight, form)).to(device)
                if activations:
                    module.register_forward_pre_hook(
                        lambda _, inputs: (round_to_fp8(inputs[0], ScaleForm.ROW),)
                    )
            if kv and name.endswith("v_proj"):
                module.register_forward_hook(lambda _, inputs, values: _without_scale(values))

    def logits(self, tokens: Sequence[int]) -> torch.Tensor:
        with mock.patch.object(modeling_llama, "apply_rotary_pos_emb", self._rope):
            return super().logits(tokens)


def rounded(weight: NDArray[np.float32], form: Form) -> NDArray[np.float32]:
    """What is left of a matrix."""
    if isinstance(form, ScaleForm):
        return dequantized(*fp8.quantize(weight, form))
    return fourbit.quantize(weight, form).values()


def _rope_and_rounding(*arguments: Any, **more: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys are cached as they are after the rotation."""
    queries, keys = _rope(*arguments, **more)
    return queries, _without_scale(keys)


def _without_scale(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(-FP8_LARGEST, FP8_LARGEST).to(torch.float8_e4m3fn).to(x.dtype)


@dataclass(frozen=True)
class Measured:
    """What an engine computed: the scores of each text, and the answers with the tokens that ended them."""

    scores: dict[str, NDArray[np.float64]]
    answers: list[list[int]]


def measure(
    directory: Path,
    ring: str,
    reference: Reference,
    *flags: str,
    device: str,
    texts: Collection[str] = TEXTS,
    questions: Sequence[str] = QUESTIONS,
) -> Measured:
    """By a backend with these flags, through its ring. All questions are open at once."""
    with serving(ring, *flags, device=device, model=directory) as (_, region):
        client = RingClient(region)
        scored = {name: client.submit(reference.text(name), 1, **SCORED) for name in texts}
        client.wait([*scored.values()], WAIT_S)
        asked = [client.submit(reference.prompt(question), ANSWER_TOKENS) for question in questions]
        client.wait(asked, WAIT_S)
        client.close()
        region.close()
    assert {stream.reason for stream in (*scored.values(), *asked)} <= {Reason.LENGTH, Reason.EOS}
    scores = {
        name: logprobs(stream.prompt_logprobs[1:])[1][:, 0].astype(np.float64)
        for name, stream in scored.items()
    }
    return Measured(scores, [stream.tokens for stream in asked])


def perplexity(scores: NDArray[np.float64]) -> float:
    return float(np.exp(-scores.mean()))
