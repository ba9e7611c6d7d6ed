"""AsyncLLM on a mock backend: answers as they come, in parts or whole, and ends before their time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fixtures import *  # noqa: F403
from harness import StartBackend
from limits import WAIT_S
from mock_backend import MockBackend
from waiting import wait_until

from blink import AsyncLLM, PromptError, RequestOutput, RequestOutputKind, SamplingParams

PROMPT = [10, 11, 12]


@asynccontextmanager
async def attached(backend: MockBackend, model_dir: Path) -> AsyncIterator[AsyncLLM]:
    async with await asyncio.to_thread(AsyncLLM, model_dir, ring=backend.path, attach_timeout=WAIT_S) as llm:
        yield llm


async def outputs_of(llm: AsyncLLM, prompt: Any, **params: Any) -> list[RequestOutput]:
    return [output async for output in llm.generate(prompt, SamplingParams(**params))]


def run(
    start: StartBackend, model_dir: Path, work: Callable[[AsyncLLM, MockBackend], Any], **options: Any
) -> Any:
    backend = start(**options)

    async def main() -> Any:
        async with attached(backend, model_dir) as llm:
            return await work(llm, backend)

    return asyncio.run(main())


def test_outputs_have_all_so_far_what_is_new_or_only_the_end(
    start_backend: StartBackend, model_dir: Path
) -> None:
    async def work(llm: AsyncLLM, backend: MockBackend) -> None:
        whole = list(range(4, 34))
        while len(cumulative := await outputs_of(llm, PROMPT, max_tokens=30, n=2)) <= 5:
            backend.step_s *= 2  # a busy machine lets many tokens come together
            assert backend.step_s < 2
        for output in cumulative:
            for choice in output.outputs:
                assert choice.token_ids == whole[: len(choice.token_ids)]
        assert [output.finished for output in cumulative] == [False] * (len(cumulative) - 1) + [True]
        kinds = RequestOutputKind
        deltas = await outputs_of(llm, PROMPT, max_tokens=30, n=2, logprobs=0, output_kind=kinds.DELTA)
        for index in (0, 1):
            choices = [output.outputs[index] for output in deltas]
            assert [token for choice in choices for token in choice.token_ids] == whole
            assert sum(len(choice.logprobs or ()) for choice in choices) == 30
            text = "".join(choice.text for choice in choices)
            assert text == cumulative[-1].outputs[index].text
        (last,) = await outputs_of(llm, PROMPT, max_tokens=30, n=2, output_kind=kinds.FINAL_ONLY)
        assert [choice.token_ids for choice in last.outputs] == [whole, whole]

    run(start_backend, model_dir, work, step_s=0.005)


def test_who_leaves_or_is_cancelled_ends_the_request(start_backend: StartBackend, model_dir: Path) -> None:
    async def work(llm: AsyncLLM, backend: MockBackend) -> None:
        stream = llm.generate(PROMPT, SamplingParams(max_tokens=400))
        async for _ in stream:
            break
        await stream.aclose()
        task = asyncio.create_task(outputs_of(llm, PROMPT, max_tokens=400))
        while not backend.open_rows():
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(wait_until, lambda: backend.open_rows() == 0)

    run(start_backend, model_dir, work, step_s=0.5)  # so that none ends by itself while it is waited for


def test_abort_ends_a_stream_with_what_it_has(start_backend: StartBackend, model_dir: Path) -> None:
    async def work(llm: AsyncLLM, backend: MockBackend) -> None:
        params = SamplingParams(max_tokens=400)
        last: RequestOutput | None = None
        async for output in llm.generate(PROMPT, params, "mine"):
            if last is None:
                with pytest.raises(ValueError, match="'mine' is that of an open request"):
                    await anext(llm.generate(PROMPT, params, "mine"))
                await llm.abort("mine")
            last = output
        assert last is not None
        assert (last.request_id, last.finished) == ("mine", True)
        assert last.outputs[0].finish_reason == "abort"
        assert 0 < len(last.outputs[0].token_ids) < 400
        await llm.abort(["mine", "others"])
        await asyncio.to_thread(wait_until, lambda: backend.open_rows() == 0)

    run(start_backend, model_dir, work, step_s=0.02)


def test_a_callers_ids_may_be_numbers(start_backend: StartBackend, model_dir: Path) -> None:
    """Beside requests that have none."""

    async def work(llm: AsyncLLM, _: MockBackend) -> None:
        params = SamplingParams(max_tokens=400)
        ids = [str(i) for i in range(6)]
        streams = [llm.generate(PROMPT, params, name) for i in ids for name in (i, None)]
        found = [(await anext(stream)).request_id for stream in streams]
        assert found[::2] == ids
        assert len(set(found)) == len(found)
        await llm.abort(found)
        for stream in streams:
            assert [output.finished async for output in stream][-1]

    run(start_backend, model_dir, work, step_s=0.02)


def test_far_more_streams_than_slots(start_backend: StartBackend, model_dir: Path) -> None:
    async def work(llm: AsyncLLM, _: MockBackend) -> None:
        found = await asyncio.gather(*(outputs_of(llm, [20 + i], max_tokens=5) for i in range(200)))
        assert [outputs[-1].prompt_token_ids for outputs in found] == [[20 + i] for i in range(200)]
        assert all(outputs[-1].outputs[0].token_ids == [4, 5, 6, 7, 8] for outputs in found)

    run(start_backend, model_dir, work, n_slots=16)


def test_errors_are_the_streams_own(start_backend: StartBackend, model_dir: Path) -> None:
    async def work(llm: AsyncLLM, _: MockBackend) -> None:
        good = asyncio.create_task(outputs_of(llm, PROMPT, max_tokens=50))
        with pytest.raises(PromptError, match=r"^'prompt' has the token 99999") as raised:
            await outputs_of(llm, [99999])
        assert raised.value.index is None
        talk = [{"role": "user", "content": "hi"}]
        chat = [output async for output in llm.chat(talk, SamplingParams(max_tokens=2))]
        assert chat[-1].prompt == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
        assert len((await good)[-1].outputs[0].token_ids) == 50

    run(start_backend, model_dir, work)


def test_close_ends_streams(start_backend: StartBackend, model_dir: Path) -> None:
    async def work(llm: AsyncLLM, backend: MockBackend) -> None:
        task = asyncio.create_task(outputs_of(llm, PROMPT, max_tokens=400))
        while not backend.open_rows():
            await asyncio.sleep(0.005)
        await asyncio.to_thread(llm.shutdown)
        with pytest.raises(RuntimeError, match="this LLM has been closed"):
            await task
        with pytest.raises(RuntimeError, match="this LLM has been closed"):
            await outputs_of(llm, PROMPT)

    run(start_backend, model_dir, work, step_s=0.02)
