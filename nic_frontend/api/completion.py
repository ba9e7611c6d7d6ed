"""/v1/completions: its prompts, and the job that it becomes."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nic_frontend.api.constraint import Constraint, blocks_of
from nic_frontend.api.controls import controls_of
from nic_frontend.api.fields import article, check_tokens, is_token_list
from nic_frontend.api.job import Job
from nic_frontend.api.limits import Limits
from nic_frontend.api.notes import on_fields, refuse_unsupported
from nic_frontend.api.parameters import check_streams_no_prompt_logprobs, parse
from nic_frontend.api.schema.checked import checked
from nic_frontend.api.schema.generation import CompletionRequest
from nic_frontend.api.served import Served
from nic_frontend.api.structure import content_of
from nic_frontend.api.text_answer import TextAnswer
from nic_frontend.errors import bad_request
from nic_frontend.parsing.answer_form import TEXT_ALONE
from nic_frontend.text.tokenizer import Tokenizer

DEFAULT_TOKENS = 16  # as in OpenAI's API


async def parse_completion(
    body: dict[str, Any],
    served: Served,
    default_tokens: int | None = DEFAULT_TOKENS,
    *,
    cuts_answer: bool = False,
) -> Job:
    """`prompt` is a string, an array of strings, an array of tokens, or an array of those. `default_tokens`
    and `cuts_answer` are as of Parameters.
    """
    refuse_unsupported(body, CompletionRequest)
    request = checked(body, CompletionRequest)
    tokenizer, limits = served.tokenizer, served.limits
    told = None if isinstance(request.logprobs, bool) else request.logprobs
    parameters = parse(
        request,
        limits,
        max_tokens=request.max_tokens,
        max_tokens_field="max_tokens",
        default_tokens=default_tokens,
        cuts_answer=cuts_answer,
        logprobs=told,
        prompt_logprobs=_of_prompt(request, told),
        controls=await controls_of(request, served),
    )
    special = request.add_special_tokens is not False
    given = _prompts(request.prompt, parameters.n, limits, cut=parameters.cuts)
    texts = [prompt for prompt in given if isinstance(prompt, str)]
    encoded = iter(await tokenizer.encode(texts, special=special, param="prompt"))
    prompts = [next(encoded) if isinstance(prompt, str) else await _array(prompt, limits) for prompt in given]
    prompts = [parameters.truncated(prompt, limits) for prompt in prompts]
    for prompt in prompts:
        parameters.answer_tokens(len(prompt), limits, "prompt")
    if parameters.cuts:
        given = [prompt.tolist() for prompt in prompts]
    echoes = await _echoes(given, tokenizer) if request.echo else [""] * len(given)
    echoes = [echo for echo in echoes for _ in range(parameters.n)]
    constraint = Constraint(content_of(request))
    grammars = await blocks_of(constraint, TEXT_ALONE, served)
    names = served.texts(by_id=request.return_tokens_as_token_ids)
    answer = TextAnswer(False, served.name, parameters, echoes, names)
    warnings = on_fields(body, CompletionRequest)
    return Job(parameters, prompts, "prompt", answer, grammars=grammars, warnings=warnings)


def _of_prompt(request: CompletionRequest, logprobs: int | None) -> int | None:
    """How many of the likeliest tokens are to be told beside each of the prompt's. An echo has as many as the
    answer.

    Raises ApiError 400 for what does not go together.
    """
    if request.logprobs is True:
        raise bad_request("'logprobs' must be an integer, it is a boolean", "logprobs", "invalid_type")
    if request.max_tokens == 0 and not request.echo and request.prompt_logprobs is None:
        raise bad_request(
            "'max_tokens' must be at least 1 without 'echo', it is 0", "max_tokens", "invalid_value"
        )
    check_streams_no_prompt_logprobs(request)
    wanted = [request.prompt_logprobs, logprobs if request.echo else None]
    return max((n for n in wanted if n is not None), default=None)


async def _array(tokens: list[int], limits: Limits) -> NDArray[np.uint32]:
    check_tokens("prompt", tokens, limits.vocab_size)
    await asyncio.sleep(0)  # other streams' turn, between two prompts of a megabyte each
    return np.array(tokens, dtype=np.uint32)


async def _echoes(given: list[str | list[int]], tokenizer: Tokenizer) -> list[str]:
    decoded = iter(await tokenizer.decode([prompt for prompt in given if not isinstance(prompt, str)]))
    return [prompt if isinstance(prompt, str) else next(decoded) for prompt in given]


def _prompts(prompt: Any, n: int, limits: Limits, *, cut: bool) -> list[str | list[int]]:
    """The prompts. Their number and, unless they will be `cut`, their lengths are checked before anything is
    done with each (F10).
    """
    if prompt is None:
        raise bad_request("'prompt' is missing", "prompt", "missing_required_parameter")
    several = isinstance(prompt, list) and type(next(iter(prompt), None)) is not int
    listed = prompt if several else [prompt]
    limits.check_choices(len(listed), n, "prompt")
    if not listed or "" in listed:
        raise bad_request("'prompt' is empty", "prompt", "invalid_value")
    for tokens in listed:
        if isinstance(tokens, list):
            limits.max_answer(1 if cut and tokens else len(tokens), "prompt")
    for i, item in enumerate(listed):
        if not isinstance(item, str) and not is_token_list(item):
            raise _wrong_prompt(item, f"prompt[{i}]" if several else "prompt")
    return listed


def _wrong_prompt(item: Any, where: str) -> Exception:
    """Names what is no prompt, or the first token in it that is none."""
    expected = "a string or an array of token ids"
    if isinstance(item, list):
        at = next(i for i, token in enumerate(item) if type(token) is not int)
        where, item, expected = f"{where}[{at}]", item[at], "a token id"
    return bad_request(f"'{where}' must be {expected}, it is {article(item)}", "prompt", "invalid_type")
