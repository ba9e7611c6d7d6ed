"""KV events over ZeroMQ as vLLM publishes them, for llm-d's prefix routing and others that read vLLM's.

A message has three frames: the topic, its number in 8 bytes, big-endian, and a batch in msgpack:
[time, events, rank], each event a map with its `type`. Whoever missed some asks the replay socket.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import msgspec
import zmq

from nic_frontend.observe.public_blocks import Cleared, RemovedRun, Run, StoredRun

RANK = 0  # of data parallelism: a backend is one GPU
MEDIUM = "GPU"
BUFFERED = 10_000  # batches that can be replayed
HIGH_WATER_MARK = 100_000  # messages that wait for a subscriber that is slow
END_OF_REPLAY = (-1).to_bytes(8, "big", signed=True)


def batch(runs: list[Run], block_size: int) -> bytes:
    """A message's last frame."""
    return msgspec.msgpack.encode([time.time(), [_event(run, block_size) for run in runs], RANK])


def _event(run: Run, block_size: int) -> dict[str, Any]:
    """vLLM's event of that name."""
    if isinstance(run, StoredRun):
        return {
            "type": "BlockStored",
            "block_hashes": run.hashes,
            "parent_block_hash": run.parent,
            "token_ids": run.token_ids,
            "block_size": block_size,
            "lora_id": None,
            "medium": MEDIUM,
            "lora_name": None,
        }
    if isinstance(run, RemovedRun):
        return {"type": "BlockRemoved", "block_hashes": run.hashes, "medium": MEDIUM}
    assert isinstance(run, Cleared)
    return {"type": "AllBlocksCleared"}


class ZmqEvents:
    """Publishes at `endpoint`: binds where it has a wildcard or is a file, else connects, as vLLM does."""

    def __init__(self, endpoint: str, topic: str, replay_endpoint: str | None, block_size: int) -> None:
        self._topic = topic.encode()
        self._block_size = block_size
        self._sent: deque[tuple[bytes, bytes]] = deque(maxlen=BUFFERED)
        self._n_sent = 0
        self._context = zmq.Context()
        self._publisher = self._context.socket(zmq.PUB)
        self._publisher.set_hwm(HIGH_WATER_MARK)
        self._publisher.setsockopt(zmq.LINGER, 0)
        self._replays: zmq.Socket[bytes] | None = None
        try:
            binds = "*" in endpoint or "::" in endpoint or endpoint.startswith(("ipc://", "inproc://"))
            (self._publisher.bind if binds else self._publisher.connect)(endpoint)
            if replay_endpoint is not None:
                self._replays = self._context.socket(zmq.ROUTER)
                self._replays.setsockopt(zmq.LINGER, 0)
                self._replays.bind(replay_endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise OSError(error.errno, f"{endpoint} or {replay_endpoint}: {error.strerror}") from error

    def publish(self, runs: list[Run]) -> None:
        if not runs:
            return
        number, payload = self._n_sent.to_bytes(8, "big"), batch(runs, self._block_size)
        self._publisher.send_multipart((self._topic, number, payload))
        self._sent.append((number, payload))
        self._n_sent += 1

    def answer_replays(self, timeout_s: float) -> None:
        """Waits for a request and sends what it asks for."""
        if self._replays is None:
            time.sleep(timeout_s)
            return
        if not self._replays.poll(int(timeout_s * 1000)):
            return
        frames = self._replays.recv_multipart()
        if len(frames) != 3 or len(frames[2]) != 8:
            return  # no such request
        client, _, first = frames
        for number, payload in self._sent:
            if number >= first:
                self._replays.send_multipart((client, b"", number, payload))
        self._replays.send_multipart((client, b"", END_OF_REPLAY, b""))

    def close(self) -> None:
        self._context.destroy(linger=0)
