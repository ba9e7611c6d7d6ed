"""The descriptor of a request: each value in the field of its name, wherever the ring's layout has it."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from nic_frontend.api.schema.generation import Generation
from nic_frontend.api.schema.rows import descriptor_values
from nic_frontend.errors import ApiError, unavailable
from nic_frontend.ring.request import PATIENCE, Arrival, Mailbox, PatientMailbox, Request, Sampling
from ringbuffer import abi

SAMPLING = Sampling(
    max_tokens=11, seed=2**63 + 5, min_tokens=3, ignore_eos=True, stop_ids=(8, 9),
    values=descriptor_values(Generation(
        temperature=0.5, top_p=0.25, min_p=0.125, top_k=7, repetition_penalty=1.5, presence_penalty=-0.5,
        frequency_penalty=0.75, priority=-5,
    )),
)  # fmt: skip
WRITTEN: dict[str, Any] = {
    "sequence": 0, "epoch": 0, "prompt_tokens": 4, "max_tokens": 11, "min_tokens": 3, "seed": 2**63 + 5,
    "salt": [0, 0], "temperature": 0.5, "top_p": 0.25, "min_p": 0.125, "top_k": 7, "repetition_penalty": 1.5,
    "presence_penalty": -0.5, "frequency_penalty": 0.75, "priority": -5, "n_processors": 0,
    "flags": abi.RequestFlags.IGNORE_EOS, "ticket": 0,
    "client": 77, "n_stop_ids": 2, "stop_ids": [8, 9] + [0] * 13, "prompt_offset": 0, "prompt_room": 0,
    "output_offset": 0, "output_room": 0, "logprob_words": 0, "prompt_logprob_words": 0, "n_biases": 0,
    "ban_words": 0, "grammar_offset": 0, "grammar_words": 0, "grammar_name": 0, "grammar_crc32c": 0,
    "crc32c": 0,
}  # fmt: skip


def written() -> bytes:
    async def write() -> bytes:  # a mailbox belongs to the task that makes it
        prompt = np.arange(4, dtype=np.uint32)
        return Request(0, prompt, SAMPLING, Mailbox(1), 0.0, client=77).descriptor()

    return asyncio.run(write())


def fields() -> list[tuple[Any, ...]]:
    return list(abi.Descriptor.descr)


@pytest.mark.parametrize("backwards", [False, True])
def test_values_are_written_by_name(monkeypatch: pytest.MonkeyPatch, backwards: bool) -> None:
    if backwards:
        monkeypatch.setattr(abi, "Descriptor", np.dtype(fields()[::-1]))
    found = np.frombuffer(written(), dtype=abi.Descriptor)[0]
    assert {name: found[name].tolist() for name in abi.Descriptor.names or ()} == WRITTEN


def test_a_field_too_many_or_too_few_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    known = fields()
    monkeypatch.setattr(abi, "Descriptor", np.dtype([*known, ("colour", "<u4")]))
    with pytest.raises(KeyError, match="colour"):
        written()
    monkeypatch.setattr(abi, "Descriptor", np.dtype(known[1:]))
    with pytest.raises(KeyError, match="sequence"):
        written()


def test_a_patient_handler_is_woken_by_the_end_or_by_many_tokens() -> None:
    async def work() -> None:
        mailbox = PatientMailbox(1)
        first, second = (Request(i, np.arange(4, dtype=np.uint32), SAMPLING, mailbox, 0.0) for i in range(2))

        async def taken_after(*arrivals: Arrival) -> list[tuple[int, list[int], int | None]] | None:
            """None: the handler was not woken."""
            for arrival in arrivals:
                mailbox.put(arrival)
                await asyncio.sleep(0)
            if not taking.done():
                return None
            return [(arrival.request.index, arrival.tokens, arrival.reason) for arrival in await taking]

        taking = asyncio.ensure_future(mailbox.take())
        await asyncio.sleep(0)
        assert await taken_after(Arrival(first, [1], None), Arrival(first, [2], None)) is None
        told = np.zeros((1, 1), np.uint64)
        assert await taken_after(Arrival(second, [3], None), Arrival(second, [4], None, told)) is None
        ended = await taken_after(Arrival(first, [5], None), Arrival(first, [6], abi.Reason.EOS))
        assert ended == [
            (0, [1, 2], None), (1, [3], None), (1, [4], None), (0, [5], None), (0, [6], abi.Reason.EOS),
        ]  # fmt: skip
        taking = asyncio.ensure_future(mailbox.take())
        await asyncio.sleep(0)
        tokens = list(range(PATIENCE))
        assert await taken_after(*(Arrival(second, [token], None) for token in tokens[:-1])) is None
        assert await taken_after(Arrival(second, tokens[-1:], None)) == [(1, tokens, None)]
        taking = asyncio.ensure_future(mailbox.take())
        await asyncio.sleep(0)
        mailbox.put(Arrival(second, [7], None))
        mailbox.fail(unavailable("it is gone"))
        with pytest.raises(ApiError, match="it is gone"):
            await taking

    asyncio.run(work())
