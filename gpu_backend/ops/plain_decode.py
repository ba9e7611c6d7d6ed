"""Attention of the sequences that decode on any GPU: RoPE, and then the kernel that attends for prompts
(kernels/ops/attention/prefill_attention.h), to which a sequence that decodes is a prompt of one token.

A tile of 64 queries then has one that counts, and no sequence's keys are split among blocks. It is there so
that every GPU serves; Hopper's way is decode_attention.py.
"""

from __future__ import annotations

from gpu_backend.ops.attention import DecodeAttention, DecodePlan
from gpu_backend.ops.elementwise import Always, rope_launch
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import Launch
from gpu_backend.ops.prefill_attention import plain_launch


class NoDecodePlan(Always):
    """PlainDecode needs none."""

    name = "no_decode_plan"

    def launches(self, op: DecodePlan, target: Target) -> list[Launch]:
        return []


class PlainDecode(Always):
    name = "plain_decode"

    def launches(self, op: DecodeAttention, target: Target) -> list[Launch]:
        """In a mixed step they are among the first tokens."""
        return [
            rope_launch(op.of, op.batch_slots, decodes=True),
            plain_launch(op.of, op.batch_slots, decodes=True),
        ]
