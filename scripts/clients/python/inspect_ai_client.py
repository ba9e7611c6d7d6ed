"""inspect-ai: a task whose answers are judged, with log-probabilities, over chats and over responses."""

# packages: inspect-ai openai
# model: demo

from __future__ import annotations

import os
import tempfile

from _client import V1, versions

os.environ["OPENAI_BASE_URL"] = V1

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate

SAMPLES = [
    Sample(input="What is next after Tuesday?", target="Wednesday"),
    Sample(input="Add 603 and 7.", target="610"),
    Sample(input="Sort the numbers 48, 26, 71.", target="26, 48, 71"),
]

with tempfile.TemporaryDirectory() as directory:
    for over_responses in (False, True):
        config = GenerateConfig(temperature=0.0, max_tokens=60, logprobs=True, top_logprobs=3)
        model = get_model("openai/demo", config=config, responses_api=over_responses, memoize=False)
        (log,) = eval(
            Task(dataset=SAMPLES, solver=generate(), scorer=includes()),
            model=model, log_dir=directory, display="none",
        )  # fmt: skip
        assert log.status == "success", log.error
        assert log.results is not None
        assert log.results.scores[0].metrics["accuracy"].value == 1, log.results
        assert log.samples is not None
        for sample in log.samples:
            logprobs = sample.output.choices[0].logprobs
            assert logprobs is not None, sample.output
            for token in logprobs.content:
                assert token.top_logprobs is not None
                assert token.top_logprobs[0].logprob >= token.logprob
print(versions("inspect-ai", "openai"))
