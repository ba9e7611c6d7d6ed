"""Which models the megakernel takes, how it cuts their matrices, and what the host tells it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from shape_model import shape_model

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings: scripts/setup gpu")

from engine_script import CONFIG, SCRIPT
from fake_cuda import Log, captures, op, run

from gpu_backend.abi import StepKind
from gpu_backend.cuda.chip import Chip
from gpu_backend.engines.base import Limits, Shape
from gpu_backend.engines.native.model import NativeModel, target_of
from gpu_backend.engines.native.step import StepBuilder
from gpu_backend.kernel_abi.gemv import GEMV_CHUNK, GEMV_ROWS
from gpu_backend.megakernel_abi import (
    CODE_STAGE_BYTES,
    MEGAKERNEL_SHARED_BYTES,
    MEGAKERNEL_TOKENS,
    STAGE_CHUNKS,
)
from gpu_backend.models.description import Model
from gpu_backend.models.quantization import Codes, GroupForm, ScaleForm
from gpu_backend.models.quantized import quantized
from gpu_backend.ops.choice import serves
from gpu_backend.ops.exchange import exchange_bytes, exchange_parts
from gpu_backend.ops.megakernel import (
    MEGAKERNEL_WARPS,
    Megakernel,
    chunk_scale_bytes,
    code_tile_bytes,
    decode_splits,
    head_chunks,
    megakernel_blocks,
    stage_chunks,
)
from gpu_backend.ops.operations import DecodeModel

HIDDEN, INTERMEDIATE, VOCAB = 512, 768, 1008
SUITED = {**CONFIG, "hidden_size": HIDDEN, "num_attention_heads": 8, "intermediate_size": INTERMEDIATE,
          "vocab_size": VOCAB}  # fmt: skip
CODES = [
    (GroupForm(Codes.INT4, 32), "kInt4ByGroup"),
    (GroupForm(Codes.INT4, 64), "kInt4ByGroup"),
    (GroupForm(Codes.INT4, 128), "kInt4ByGroup"),
    (GroupForm(Codes.E2M1, 32), "kFp4By32"),
    (GroupForm(Codes.E2M1, 16), "kFp4By16"),
]


def whole(model: Model, batch_slots: int = 1, max_context: int = 8192) -> DecodeModel:
    limits = Limits(64, max_context, 512, 8, 16, 64)
    described = NativeModel.described(model, limits, Chip(132))
    op = StepBuilder(described, Shape(StepKind.DECODE, batch_slots, batch_slots)).whole()[1]
    assert isinstance(op, DecodeModel)
    return op


def suits(model: Model, multiprocessors: int = 132, batch_slots: int = 1) -> bool:
    return serves("megakernel", whole(model, batch_slots), target_of(model, Chip(multiprocessors)))


@pytest.mark.parametrize("name", ["llama-3-8b", "llama-3.2-1b", "llama-3.2-3b", "qwen3-8b"])
def test_it_takes_weights_in_fp8_with_a_scale_for_each_row(name: str, tmp_path: Path) -> None:
    model = quantized(shape_model(name, tmp_path), ScaleForm.ROW)
    op = whole(model, MEGAKERNEL_TOKENS)
    target = target_of(model, Chip(132))
    assert serves("megakernel", op, target)
    (work,) = Megakernel().launches(op, target)
    assert work.kernel.endswith(", __nv_bfloat16, blink::kScaleByRow>")
    assert "not of blocks" in str(Megakernel().suits(replace(op, weight_scales=ScaleForm.BLOCK), target))
    assert Megakernel().suits(replace(op, hidden=op.hidden + 256), target)  # half a slice of words


@pytest.mark.parametrize(("form", "constant"), CODES)
@pytest.mark.parametrize("name", ["llama-3-8b", "llama-3.2-1b", "llama-3.2-3b", "qwen3-8b"])
def test_it_takes_weights_in_codes(name: str, form: GroupForm, constant: str, tmp_path: Path) -> None:
    """Of stages of any size, with uneven ones."""
    model = quantized(shape_model(name, tmp_path), form)
    op = whole(model, MEGAKERNEL_TOKENS)
    target = target_of(model, Chip(132))
    assert serves("megakernel", op, target)
    (work,) = Megakernel().launches(op, target)
    assert work.kernel.endswith(f", __nv_bfloat16, blink::{constant}>")
    assert Megakernel().suits(replace(op, hidden=op.hidden + 512), target)  # half a slice of words


def test_it_leaves_codes_of_uneven_stages_to_the_other_kernels(tmp_path: Path) -> None:
    """Whose boxes would read much that is not needed."""
    model = quantized(shape_model("qwen3-32b", tmp_path), GroupForm(Codes.INT4, 64))
    reason = Megakernel().suits(whole(model), target_of(model, Chip(132)))
    assert "more than an eighth in vain" in str(reason)


@pytest.mark.parametrize(("form", "constant"), CODES)
def test_a_stage_has_room_for_codes_and_their_scales(form: GroupForm, constant: str) -> None:
    """By the bytes of a chunk's scales. Where these begin at no multiple of 16, a box begins before them."""
    widths = (1024, 2048, 3072, 4096, 5120, 7168, 14336)
    chunks = [stage_chunks(columns, form) for columns in widths]
    expected = {4: [1, 2, 3, 4, 3, 4, 4], 8: [1, 2, 3, 4, 3, 3, 4], 16: [1, 2, 3, 2, 3, 3, 3]}
    assert chunks == expected[chunk_scale_bytes(form)]
    sizes = [code_tile_bytes(n, columns, form) for n, columns in zip(chunks, widths, strict=True)]
    assert max(sizes) <= CODE_STAGE_BYTES
    assert 2 * GEMV_ROWS * GEMV_CHUNK * head_chunks(4096, form) <= CODE_STAGE_BYTES


@pytest.mark.parametrize("name", ["llama-3-8b", "llama-3.2-1b", "llama-3.2-3b", "qwen3-8b"])
def test_it_takes_dense_models_of_large_stages(name: str, tmp_path: Path) -> None:
    model = shape_model(name, tmp_path)
    assert suits(model, batch_slots=MEGAKERNEL_TOKENS)
    assert not suits(model, batch_slots=MEGAKERNEL_TOKENS + 1)
    for columns in (model.hidden, model.n_heads * model.head_dim, model.intermediate):
        stage = stage_chunks(columns)
        assert 6 <= stage <= STAGE_CHUNKS  # a shorter one would not keep the memory busy
        assert columns % (MEGAKERNEL_WARPS * GEMV_CHUNK * stage) == 0


def test_it_leaves_models_of_small_stages_to_the_other_kernels(tmp_path: Path) -> None:
    llama = shape_model("llama-3-8b", tmp_path)
    others = [
        shape_model("qwen3-32b", tmp_path),
        shape_model("phi-4", tmp_path),
        replace(llama, intermediate=11008),
    ]
    assert not any(suits(other) for other in others)


def test_it_leaves_experts_and_odd_sizes_to_the_other_kernels(tmp_path: Path) -> None:
    llama = shape_model("llama-3-8b", tmp_path)
    others = [
        shape_model("qwen3-30b-a3b", tmp_path),
        replace(llama, hidden=llama.hidden + 128),
        replace(llama, intermediate=llama.intermediate + 64),
        replace(llama, vocab_size=llama.vocab_size + 8),
        replace(llama, head_dim=96, n_heads=32),
        replace(llama, dtype="float16"),  # its residual times a norm's weight might overflow
    ]
    assert not any(suits(other) for other in others)


@pytest.mark.parametrize(("name", "blocks"), [("llama-3-8b", 131), ("llama-3.2-1b", 128)])
def test_every_block_is_resident_and_has_a_tile_of_every_matrix(
    name: str, blocks: int, tmp_path: Path
) -> None:
    """E9: one block a multiprocessor but the scheduler's; E10."""
    model = shape_model(name, tmp_path)
    assert megakernel_blocks(whole(model), target_of(model, Chip(132))) == blocks


def test_it_leaves_models_whose_residual_no_block_holds_to_the_other_kernels(tmp_path: Path) -> None:
    llama = shape_model("llama-3-8b", tmp_path)
    assert suits(replace(llama, hidden=16384), 132)
    assert not suits(replace(llama, hidden=16384), 114)


def test_what_blocks_tell_each_other_has_room_in_every_layer(tmp_path: Path) -> None:
    model = whole(shape_model("llama-3-8b", tmp_path))
    parts = exchange_parts(model, 131)
    assert all(size % 16 == 0 for size in parts.values())
    assert parts["second norm"] == parts["squares"] + parts["normed"] == 8 * 4096 * 2 + 256 * 8 * 4
    assert exchange_bytes(model, 131) == 33 * sum(parts.values())


def test_attention_splits_rows_to_fill_the_gpu_and_no_more(tmp_path: Path) -> None:
    llama = shape_model("llama-3-8b", tmp_path)
    target = target_of(llama, Chip(132))
    splits = [decode_splits(whole(llama, batch_slots), target) for batch_slots in (1, 8, 64, 256)]
    assert splits == [64, 9, 2, 1]
    short = whole(llama, max_context=100)
    assert decode_splits(short, target) == 2  # a context of 100 has only two splits worth a block


def test_all_kernels_leave_their_multiprocessor_to_the_decoder(log: Log) -> None:
    """E9, E23: whichever of them comes first."""
    carved = [call[1:] for call in log if call[0] == "carveout"]
    assert all(
        any(kernel in symbol for symbol, _ in carved) for kernel in ("gate_kernel", "megakernel_kernel")
    )
    assert {percent for _, percent in carved} == {"100"}


@pytest.fixture(scope="module")
def log(fake: Path, tmp_path_factory: pytest.TempPathFactory) -> Log:
    script = SCRIPT.replace("(2, 1001)", f"(2, {VOCAB})")
    return run(fake, tmp_path_factory.mktemp("megakernel"), script, SUITED)[1]


def test_a_decode_step_of_few_rows_is_three_kernels(log: Log) -> None:
    """With no more blocks than the smallest matrix has tiles (E10)."""
    fused = [capture for capture in captures(log) if "megakernel" in map(op, capture)]
    batch_slots = [int(capture[-1][3]) for capture in fused]
    assert batch_slots == [n for n in (1, 2, 4, 8) for _ in range(3)]
    assert max(batch_slots) == MEGAKERNEL_TOKENS
    for capture in fused:
        assert [op(call) for call in capture] == ["gate", "megakernel", "sample"]
        assert [call[-1] == "overlap" for call in capture] == [False, True, True]
        blocks, threads, shared = (int(capture[1][i]) for i in (2, 5, 6))
        assert (blocks, threads, shared) == (
            HIDDEN // 16,
            32 * MEGAKERNEL_WARPS + 128,
            MEGAKERNEL_SHARED_BYTES,
        )


def test_every_matrix_is_boxes_of_16_rows_in_the_order_of_use(log: Log) -> None:
    maps = [[int(word) for word in call[1:]] for call in log if call[0] == "map"]
    attention, qkv = 8 * 64, (8 + 2 * 2) * 64
    gate_up = [HIDDEN, INTERMEDIATE, 2]
    layer = [[HIDDEN, 8, qkv // 8], [attention, 8, HIDDEN // 8], gate_up, [INTERMEDIATE, 8, HIDDEN // 8]]
    assert [at[1:4] for at in maps] == 3 * layer + [[HIDDEN, 8, VOCAB // 8]]
    assert [at[4:7] for at in maps] == [[32 * stage_chunks(at[1]), 8, 2] for at in maps]
    assert len({at[0] for at in maps}) == len(maps)


def test_scales_of_codes_are_boxes_behind_those_of_the_matrices(
    fake: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Of as many rows, and of a stage's chunks."""
    script = SCRIPT.replace("(2, 1001)", f"(2, {VOCAB})")
    script = script.replace("sys.argv[1])", "sys.argv[1]), ROUNDINGS['int4']")
    script = "from gpu_backend.models.quantization import ROUNDINGS\n" + script
    config = {**SUITED, "hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 14336}
    maps = [
        [int(word) for word in call[1:]]
        for call in run(fake, tmp_path_factory.mktemp("codes"), script, config)[1]
        if call[0] == "map"
    ]
    qkv = (16 + 2 * 2) * 64
    rows = [[8, qkv // 8], [8, 128], [14336, 2], [8, 128]]
    columns = [1024, 1024, 1024, 14336]
    codes = [[n // 4, *of] for n, of in zip(columns, rows, strict=True)]
    scales = [[n // 64 * 2, *of] for n, of in zip(columns, rows, strict=True)]
    assert [at[1:4] for at in maps] == 3 * codes + [[1024, 8, VOCAB // 8]] + 3 * scales
    boxes = [[32, 8, 2]] * 3 + [[128, 8, 2]]
    of_scales = [[8, 8, 2]] * 3 + [[16, 8, 2]]
    assert [at[4:7] for at in maps] == 3 * boxes + [[128, 8, 2]] + 3 * of_scales
