"""Where a step's intermediate results lie."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Activations:
    """Addresses of the buffers that all steps share (C4), sized for the largest shape. T tokens, L lanes."""

    residual: int  # [T][hidden] fp32
    normed: int  # [T][hidden]
    qkv: int  # [T][heads + 2 kv_heads][head_dim]
    attention: int  # [T][heads][head_dim]
    gate_up: int  # [T][2][intermediate], of shapes whose silu * mul is a kernel of its own
    product: int  # [T][intermediate]
    logits: int  # [L][vocab] fp32
    attention_plan: int  # of a decode step's attention (kernels/ops/attention_plan.h)
    turns: int  # [L][head_dim / 2][2] fp32, of its RoPE
    partial: int  # its partial results: words of kernels/ops/exchange.h, zero between kernels
    sums: int  # of squares, that a product leaves for the norm after it (kernels/ops/wide_end.h)
    gathered: int = 0  # [L][hidden], normed, where the last layer's rows are all tokens
    last_residual: int = 0  # [L][hidden] fp32, of the lanes' last tokens behind the last layer's attention
    last_attention: int = 0  # [L][heads][head_dim] of the same
    exchange: int = 0  # of the decoder kernel (kernels/decoder/arguments.h), zero between kernels
    leavers: int = 0  # its uint32, zero between kernels
    prefill_plan: int = 0  # [1 + units] PrefillUnit
    # Of a mixture of experts; P pairs are T tokens times the experts of each.
    router_logits: int = 0  # [T][experts] fp32
    expert_choice: int = 0  # [P] uint32
    expert_weight: int = 0  # [P] fp32
    expert_plan: int = 0  # [1 + units] ExpertUnit
    expert_pairs: int = 0  # [P] uint32
    expert_product: int = 0  # [P][expert intermediate], by expert
    expert_rows: int = 0  # [P][hidden]
    router_sums: int = 0  # of one token [SUM_PLACES][experts] int64, zero between layers (router_part.h)
    router_arrivals: int = 0  # [STREAM_TOKENS / ROUTER_TOKENS] uint32, zero between kernels
