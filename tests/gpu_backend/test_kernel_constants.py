"""What the host launches with is what the kernels are compiled with."""

from __future__ import annotations

from pathlib import Path
from struct import calcsize

import pytest

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-bindings: pip install 'blink-serving[gpu]'")

from gpu_backend.cuda import tensor_map
from gpu_backend.cuda.compile import compile_templates, source_root
from gpu_backend.ops import (
    decode_attention,
    exchange,
    gemv,
    megakernel,
    moe_one,
    moe_parts,
    moe_stream,
    moe_tiled,
    prefill_attention,
    resident_gemv,
    sampling,
    skinny_cut,
    tiled_cut,
)
from gpu_backend.ops.operations import Epilogue

CONSTANTS = {
    "kCutThreads": decode_attention.CUT_THREADS,
    "kAttentionThreads": decode_attention.ATTENTION_THREADS,
    "kAttentionSharedBytes": decode_attention.ATTENTION_SHARED_BYTES,
    "kPrefillThreads": prefill_attention.PREFILL_THREADS,
    "kPrefillQueries": prefill_attention.PREFILL_QUERIES,
    "kDecoderBlock": megakernel.DECODER_BLOCK,
    "kStreamThreads": gemv.STREAM_THREADS,
    "kStreamChunk": gemv.STREAM_CHUNK,
    "kStreamBlocks": gemv.STREAM_BLOCKS,
    "kStreamWarps * kStreamDepth<1> * kStreamChunk": gemv.STREAM_ROUND,
    "kRouterExperts": moe_stream.ROUTER_EXPERTS,
    "kRouterThreads": moe_stream.ROUTER_THREADS,
    "kRouterChunk": moe_stream.ROUTER_CHUNK,
    "kRouterTokens": moe_stream.ROUTER_TOKENS,
    "kRouteWarps": moe_parts.ROUTE_WARPS,
    "kPlanThreads": moe_tiled.PLAN_THREADS,
    "kPlanTokens": moe_tiled.PLAN_TOKENS,
    "kExpertThreads": moe_stream.EXPERT_THREADS,
    "kExpertBlocks": moe_stream.EXPERT_BLOCKS,
    "kFewTokens": moe_stream.FEW_TOKENS,
    "kOneExperts": moe_one.ONE_EXPERTS,
    "2 * kStreamChunk": moe_one.ONE_SLICE,
    "kSumPlaces": moe_one.SUM_PLACES,
    "sizeof(RouterPart)": calcsize(resident_gemv.ROUTER_PART),
    "kHeldTokens": resident_gemv.HELD_TOKENS,
    "kHeldOutputs": resident_gemv.HELD_OUTPUTS,
    "kHeldPad": resident_gemv.HELD_PAD,
    "2 * kStreamWarps * kStreamChunk": resident_gemv.HELD_SLICE,
    "kTileThreads": moe_tiled.TILE_THREADS,
    "kTileSharedBytes": moe_tiled.TILE_SHARED_BYTES,
    "kTileWeights": moe_tiled.TILE_WEIGHTS,
    "kTileK": moe_tiled.TILE_K,
    "kTileUnit": moe_tiled.TILE_UNIT,
    "kStreamTokens": moe_stream.STREAM_TOKENS,
    "kStreamPairs / kMaxExperts": moe_stream.STREAM_PAIRS,
    "sizeof(ExpertUnit)": moe_tiled.UNIT_BYTES,
    "sizeof(PrefillUnit)": prefill_attention.UNIT_BYTES,
    "sizeof(AttentionPiece)": decode_attention.PIECE_RECORD,
    "kUnitHeads": decode_attention.UNIT_HEADS,
    "kMostParts": decode_attention.MOST_PARTS,
    "kMinSplit": megakernel.MIN_SPLIT,
    "kFlashRows": prefill_attention.FLASH_ROWS,
    "kFlashThreads": prefill_attention.FLASH_THREADS,
    "kFlashKeys": prefill_attention.FLASH_KEYS,
    "kFlashStages": prefill_attention.FLASH_STAGES,
    "kFlashAtom": prefill_attention.FLASH_ATOM,
    "kPrefillPlanThreads": prefill_attention.PLAN_THREADS,
    "kSampleThreads": sampling.SAMPLE_THREADS,
    "kSampleBlocks": sampling.SAMPLE_BLOCKS[0],
    "kSampleSharedBytes": sampling.SAMPLE_SHARED_BYTES,
    "kTileKeys": tensor_map.TILE_KEYS,
    "kWarpgroup": skinny_cut.WARPGROUP,
    "kWideCopiers": skinny_cut.WIDE_COPIERS,
    "kWidePanel": skinny_cut.WIDE_PANEL,
    "kWideRowBytes": skinny_cut.WIDE_ROW_BYTES,
    "kWideMaxSlots": skinny_cut.WIDE_MAX_SLOTS,
    "kWideRingStart": skinny_cut.WIDE_RING_START,
    "kFragmentBytes": skinny_cut.FRAGMENT_BYTES,
    "kWideMaxColumns": skinny_cut.WIDE_ROWS,
    "kTiledThreads": tiled_cut.TILED_THREADS,
    "kTiledRows": tiled_cut.TILED_ROWS,
    "kTiledColumns": tiled_cut.TILED_COLUMNS,
    "kTiledBox": tiled_cut.TILED_BOX,
    "kTiledSharedBytes": tiled_cut.TILED_SHARED_BYTES,
    "kTiledPanel": skinny_cut.WIDE_PANEL,
    "sizeof(TiledCut)": len(tiled_cut.tiled_cut(1024, 64, 64, Epilogue.ADD, 132).pack()),
    "kDecoderWarps": megakernel.DECODER_WARPS,
    "kDecoderWarps * kStreamChunk": megakernel.DECODER_SLICE,
    "kStreamRows": exchange.DECODER_TILE,
    "kPassTiles": megakernel.DECODER_HIDDEN_TILES,
}


def test_the_host_and_the_kernels_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    checks = "\n".join(f'static_assert({name} == {value}, "{name}");' for name, value in CONSTANTS.items())
    source = tmp_path / "constants.cu"
    engine = source_root() / "kernels" / "engine.cu"
    source.write_text(f'#include "{engine}"\nnamespace blink {{\n{checks}\n}}\n')
    compile_templates(source, "sm_90a", ["blink::gate_kernel"])
