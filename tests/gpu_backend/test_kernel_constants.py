"""What the host launches with is what the kernels are compiled with."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-bindings: pip install 'blink-serving[gpu]'")

from gpu_backend.cuda import held, kernels, stream, tensor_map, tiled, wide
from gpu_backend.cuda.compile import compile_templates, source_root
from gpu_backend.engine import (
    flash,
    native_held,
    native_mixture,
    native_step,
    sampling,
    sizing,
)

CONSTANTS = {
    "kCutThreads": native_step.CUT_THREADS,
    "kAttentionThreads": native_step.ATTENTION_THREADS,
    "kAttentionSharedBytes": native_step.ATTENTION_SHARED_BYTES,
    "kPrefillThreads": native_step.PREFILL_THREADS,
    "kPrefillQueries": native_step.PREFILL_QUERIES,
    "kDecoderBlock": native_step.DECODER_BLOCK,
    "kStreamThreads": stream.STREAM_THREADS,
    "kStreamChunk": stream.STREAM_CHUNK,
    "kStreamBlocks": stream.STREAM_BLOCKS,
    "kStreamWarps * kStreamDepth<1> * kStreamChunk": stream.STREAM_ROUND,
    "kRouterExperts": native_mixture.ROUTER_EXPERTS,
    "kRouterThreads": native_mixture.ROUTER_THREADS,
    "kRouterChunk": native_mixture.ROUTER_CHUNK,
    "kRouterTokens": sizing.ROUTER_TOKENS,
    "kRouteWarps": native_mixture.ROUTE_WARPS,
    "kPlanThreads": native_mixture.PLAN_THREADS,
    "kPlanTokens": native_mixture.PLAN_TOKENS,
    "kExpertThreads": native_mixture.EXPERT_THREADS,
    "kExpertBlocks": native_mixture.EXPERT_BLOCKS,
    "kFewTokens": native_mixture.FEW_TOKENS,
    "kOneExperts": native_mixture.ONE_EXPERTS,
    "2 * kStreamChunk": native_mixture.ONE_SLICE,
    "kSumPlaces": sizing.SUM_PLACES,
    "sizeof(RouterPart)": len(native_held.NO_ROUTER),
    "kHeldTokens": held.HELD_TOKENS,
    "kHeldOutputs": held.HELD_OUTPUTS,
    "kHeldPad": held.HELD_PAD,
    "2 * kStreamWarps * kStreamChunk": held.HELD_SLICE,
    "kTileThreads": native_mixture.TILE_THREADS,
    "kTileSharedBytes": native_mixture.TILE_SHARED_BYTES,
    "kTileWeights": native_mixture.TILE_WEIGHTS,
    "kTileK": native_mixture.TILE_K,
    "kTileUnit": sizing.TILE_UNIT,
    "kStreamTokens": sizing.STREAM_TOKENS,
    "kStreamPairs / kMaxExperts": sizing.STREAM_PAIRS,
    "sizeof(ExpertUnit)": sizing.UNIT_BYTES,
    "sizeof(PrefillUnit)": sizing.UNIT_BYTES,
    "sizeof(AttentionPiece)": sizing.PIECE_RECORD,
    "kUnitHeads": sizing.UNIT_HEADS,
    "kMostParts": sizing.MOST_PARTS,
    "kMinSplit": sizing.MIN_SPLIT,
    "kFlashRows": sizing.FLASH_ROWS,
    "kFlashThreads": flash.FLASH_THREADS,
    "kFlashKeys": flash.FLASH_KEYS,
    "kFlashStages": flash.FLASH_STAGES,
    "kFlashAtom": flash.FLASH_ATOM,
    "kPrefillPlanThreads": flash.PLAN_THREADS,
    "kSampleThreads": sampling.SAMPLE_THREADS,
    "kSampleBlocks": sampling.SAMPLE_BLOCKS[0],
    "kSampleSharedBytes": sampling.SAMPLE_SHARED_BYTES,
    "kTileKeys": tensor_map.TILE_KEYS,
    "kWarpgroup": wide.WARPGROUP,
    "kWideCopiers": wide.WIDE_COPIERS,
    "kWidePanel": wide.WIDE_PANEL,
    "kWideRowBytes": wide.WIDE_ROW_BYTES,
    "kWideMaxSlots": wide.WIDE_MAX_SLOTS,
    "kWideRingStart": wide.WIDE_RING_START,
    "kFragmentBytes": wide.FRAGMENT_BYTES,
    "kWideMaxColumns": wide.WIDE_ROWS,
    "kTiledThreads": tiled.TILED_THREADS,
    "kTiledRows": tiled.TILED_ROWS,
    "kTiledColumns": tiled.TILED_COLUMNS,
    "kTiledBox": tiled.TILED_BOX,
    "kTiledSharedBytes": tiled.TILED_SHARED_BYTES,
    "kTiledPanel": wide.WIDE_PANEL,
    "sizeof(TiledCut)": len(tiled.tiled_cut(1024, 64, 64, "add", 132).pack()),
    "kDecoderWarps": kernels.DECODER_WARPS,
    "kDecoderWarps * kStreamChunk": kernels.DECODER_SLICE,
    "kStreamRows": kernels.DECODER_TILE,
    "kPassTiles": kernels.DECODER_HIDDEN_TILES,
}


def test_the_host_and_the_kernels_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    checks = "\n".join(f'static_assert({name} == {value}, "{name}");' for name, value in CONSTANTS.items())
    source = tmp_path / "constants.cu"
    engine = source_root() / "kernels" / "engine.cu"
    source.write_text(f'#include "{engine}"\nnamespace blink {{\n{checks}\n}}\n')
    compile_templates(source, "sm_90a", ["blink::gate_kernel"])
