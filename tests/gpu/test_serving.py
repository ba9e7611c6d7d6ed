"""The whole backend on the GPU: scheduler, engine and ring, with nobody on the host in the loop."""

from __future__ import annotations

import os
import signal
import time

import pytest
from process_state import state_of, stop
from serving import Demo, items, serving

from ringbuffer.abi import Reason, RequestFlags

SHORT = ("add", "subtract", "sort_numbers", "reverse", "spell", "fact", "lookup")
LONG = ("count_long", "table")


def share_right(demo: Demo, chosen: list, streams: list) -> float:  # type: ignore[type-arg]
    return sum(demo.right(item, s) for item, s in zip(chosen, streams, strict=True)) / len(chosen)


def test_answers_are_right_and_end_with_the_models_end_token() -> None:
    with serving("gpu-tasks") as (_, region):
        demo = Demo(region)
        chosen = items(SHORT, 210) + items(LONG, 10)
        streams = demo.answer(chosen)
        assert share_right(demo, chosen, streams) >= 0.95
        assert all(s.reason == Reason.EOS for s in streams)
        stats = region.stats()
        assert stats["relaunches"] > 0  # the long answers take more than 120 steps
        assert stats["tokens"] == sum(len(s.tokens) for s in streams)
        demo.client.close()


def test_tokens_flow_while_the_backend_process_is_stopped() -> None:
    """32 streams with the host process SIGSTOPped from before the first to after the last token."""
    with serving("gpu-stopped") as (process, region):
        demo = Demo(region)
        chosen = items(SHORT, 24) + items(LONG, 8)
        before = demo.answer(chosen)
        stop(process.pid)
        steps = region.stats()["steps"]
        stopped = demo.answer(chosen)
        still = state_of(process.pid)
        os.kill(process.pid, signal.SIGCONT)
        assert still == "T"
        assert [s.tokens for s in stopped] == [s.tokens for s in before]
        assert [s.reason for s in stopped] == [s.reason for s in before]
        assert region.stats()["steps"] > steps + 120
        demo.client.close()


def test_preempted_requests_lose_nothing() -> None:
    """A KV cache for a few long answers only: requests are paused and come back, and answer the same."""
    chosen = items(LONG, 12)
    with serving("gpu-roomy") as (_, region):
        demo = Demo(region)
        roomy = demo.answer(chosen)
        assert region.stats()["preempted"] == 0
        demo.client.close()
    with serving("gpu-tight", "--kv-memory", "8MiB") as (_, region):
        demo = Demo(region)
        tight = demo.answer(chosen)
        assert region.stats()["preempted"] > 0
        assert [s.tokens for s in tight] == [s.tokens for s in roomy]
        assert share_right(demo, chosen, tight) >= 0.9
        demo.client.close()


def test_cancel_and_a_lost_lease_free_everything() -> None:
    with serving("gpu-cancel", "--leases", "2") as (_, region):
        pages = region.stats()["free_pages"]
        demo = Demo(region)
        prompt = demo.tokenizer.encode(items(LONG, 1)[0].prompt).ids
        streams = [demo.client.submit(prompt, 1900, flags=RequestFlags.IGNORE_EOS) for _ in range(8)]
        while not all(s.tokens for s in streams):
            for s in streams:
                demo.client.poll(s)
        for s in streams[:4]:
            demo.client.cancel(s)
        demo.client.wait(streams[:4], 5)
        assert {s.reason for s in streams[:4]} == {Reason.CANCELLED}
        demo.client.close()
        deadline = time.monotonic() + 2
        while region.stats()["running"] or region.stats()["free_pages"] != pages:
            assert time.monotonic() < deadline, region.stats()
            time.sleep(0.01)


@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_a_seed_gives_the_same_answer_in_any_batch(temperature: float) -> None:
    """Sampling depends on the logits, the seed and the position. Other rows change the GEMM's shape, and so
    the logits' last bits: the demo model's margins make that invisible nearly always."""
    with serving(f"gpu-seed-{temperature}") as (_, region):
        demo = Demo(region)
        item = items(("story",), 1)[0]
        prompt = demo.tokenizer.encode(item.prompt).ids

        def sampled() -> list[list[int]]:
            streams = [
                demo.client.submit(prompt, 60, seed=s, temperature=temperature, top_p=0.9) for s in range(8)
            ]
            demo.client.wait(streams, 30)
            return [s.tokens for s in streams]

        first, second = sampled(), sampled()
        assert first == second
        assert len({tuple(tokens) for tokens in first}) > 1
        demo.client.close()
