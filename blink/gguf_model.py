"""A model directory from a GGUF file of a Llama whose tokenizer is SmolLM's: the weights in bf16, and files
that transformers reads like those of the hub.

llama.cpp keeps the rows of the query and key projections in another order: it rotates neighbouring elements
of a head, where a checkpoint's model rotates one of the head's first half with one of its second.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, ReaderTensor, TokenType, dequantize
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from gpu_backend.models.half import half_bits

NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def write_directory(file: Path, directory: Path) -> None:
    """Fills a directory that is there with config.json, the tokenizer's files and model.safetensors.

    The file is trusted: the caller knows its hash. Raises OSError, and ValueError or KeyError for a file of
    another kind of model.
    """
    reader = GGUFReader(file)
    facts = {name: field.contents() for name, field in reader.fields.items()}
    config = config_of(facts, tied=all(tensor.name != "output.weight" for tensor in reader.tensors))
    _write_json(directory / "config.json", config)
    tokenizer_of(facts).save(str(directory / "tokenizer.json"))
    _write_json(directory / "tokenizer_config.json", tokenizer_config_of(facts))
    _write_weights(directory / "model.safetensors", reader.tensors, config)


def config_of(facts: dict[str, Any], tied: bool) -> dict[str, Any]:
    """config.json. `tied`: the output layer is the embedding."""
    heads = facts["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(facts["tokenizer.ggml.tokens"]),
        "hidden_size": facts["llama.embedding_length"],
        "intermediate_size": facts["llama.feed_forward_length"],
        "num_hidden_layers": facts["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": facts["llama.attention.head_count_kv"],
        "head_dim": facts["llama.embedding_length"] // heads,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "rms_norm_eps": _decimal(facts["llama.attention.layer_norm_rms_epsilon"]),
        "rope_theta": _decimal(facts["llama.rope.freq_base"]),
        "max_position_embeddings": facts["llama.context_length"],
        "tie_word_embeddings": tied,
        "bos_token_id": facts["tokenizer.ggml.bos_token_id"],
        "eos_token_id": facts["tokenizer.ggml.eos_token_id"],
        "pad_token_id": facts["tokenizer.ggml.padding_token_id"],
        "torch_dtype": "bfloat16",
    }


def tokenizer_of(facts: dict[str, Any]) -> Tokenizer:
    """tokenizer.json: bytes, of which every digit stands alone, and GPT-2's pieces of what is between digits.

    transformers leaves the digits out where it reads a GGUF file: "1   2" has other tokens there than in the
    tokenizer that SmolLM was trained with. Raises ValueError for another kind of tokenizer.
    """
    kind = (facts["tokenizer.ggml.model"], facts["tokenizer.ggml.pre"])
    if kind != ("gpt2", "smollm"):
        raise ValueError(f"the tokenizer is of the kind {kind}, and only gpt2, smollm is known")
    texts = facts["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in facts["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({text: i for i, text in enumerate(texts)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = facts["tokenizer.ggml.token_type"]
    special = [text for text, kind in zip(texts, kinds, strict=True) if kind == TokenType.CONTROL]
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in special])
    return tokenizer


def tokenizer_config_of(facts: dict[str, Any]) -> dict[str, Any]:
    """tokenizer_config.json, with the chat template."""
    texts = facts["tokenizer.ggml.tokens"]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": facts["llama.context_length"],
        "bos_token": texts[facts["tokenizer.ggml.bos_token_id"]],
        "eos_token": texts[facts["tokenizer.ggml.eos_token_id"]],
        "pad_token": texts[facts["tokenizer.ggml.padding_token_id"]],
        "unk_token": texts[facts["tokenizer.ggml.unknown_token_id"]],
        "clean_up_tokenization_spaces": False,
        "chat_template": facts["tokenizer.chat_template"],
    }


def _decimal(value: float) -> float:
    """The shortest number that fp32 rounds to the same: 1e-05, and not what its nearest fp32 is exactly."""
    return float(str(np.float32(value)))


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _write_weights(path: Path, tensors: list[ReaderTensor], config: dict[str, Any]) -> None:
    """A safetensors file, one tensor in memory at a time."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in tensors:
        begin, end = end, end + 2 * tensor.n_elements
        shape = [int(n) for n in reversed(tensor.shape)]  # GGUF has the innermost first
        header[_name(tensor.name)] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for values in _values(tensors, config):
            file.write(half_bits(values, "float32", "bfloat16").tobytes())


def _values(tensors: list[ReaderTensor], config: dict[str, Any]) -> Iterator[NDArray[np.float32]]:
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for tensor in tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        part = tensor.name.split(".")[-2]
        yield _halves(values, heads[part]) if part in heads else values


def _halves(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """[heads * head_dim][columns]: in each head, the even rows and then the odd ones."""
    pairs = rows.reshape(heads, -1, 2, rows.shape[1])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def _name(name: str) -> str:
    """A checkpoint's name of a tensor. Raises KeyError for one that a Llama does not have."""
    *block, part, _ = name.split(".")
    return f"model.layers.{block[1]}.{LAYER_NAMES[part]}.weight" if block else f"{NAMES[part]}.weight"
