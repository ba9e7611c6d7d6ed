"""Which products hold x in shared memory, and how they are launched."""

from __future__ import annotations

import pytest
from model_config import model_config

from gpu_backend.cuda.held import HELD_PAD, HeldProduct, held_products
from gpu_backend.models.description import Experts

MULTIPROCESSORS = 132


@pytest.mark.parametrize(
    ("n_in", "n_out", "chunks", "blocks"), [(2048, 5120, 4, 262), (4096, 2048, 8, 256), (512, 24, 1, 3)]
)
def test_a_product_has_an_instance_and_at_most_a_tile_a_block(
    n_in: int, n_out: int, chunks: int, blocks: int
) -> None:
    product = HeldProduct(n_in, n_out)
    assert product.suits
    assert (product.chunks, product.blocks(MULTIPROCESSORS)) == (chunks, blocks)
    assert product.shared_bytes(3) == 3 * 2 * (n_in + HELD_PAD)


@pytest.mark.parametrize(("n_in", "n_out"), [(1536, 2048), (8192, 1024), (2080, 2048), (2048, 20)])
def test_other_sizes_do_not_suit(n_in: int, n_out: int) -> None:
    assert not HeldProduct(n_in, n_out).suits


def test_a_dense_model_has_none() -> None:
    sizes = {"hidden": 2048, "n_heads": 32, "n_kv_heads": 4, "head_dim": 128}
    assert held_products(model_config(**sizes)) == {}
    experts = Experts(128, 8, 768, True)
    products = held_products(model_config(experts=experts, **sizes))
    assert products == {"held_qkv": HeldProduct(2048, 5120), "held_o": HeldProduct(4096, 2048)}
