"""Model directories of the files in published/: what people download, but for vocabularies and weights."""

from __future__ import annotations

import json
import shutil
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from gpu_backend.models.registry import read_model
from ringbuffer.token_bytes import byte_level_alphabet, is_byte_level

PUBLISHED = Path(__file__).with_name("published")
FAMILIES = tuple(sorted(folder.name for folder in PUBLISHED.iterdir() if folder.is_dir()))
# Families that are published with the tokenizer of another one.
TOKENIZERS = {
    "gemma-3-12b": "gemma-3-1b",
    "ministral": "mistral-nemo",
    "ministral-3": "mistral-nemo",
    "qwen3-moe": "qwen3",
}
# Of families whose licences do not let theirs be copied: ours, with the same marks.
TEMPLATES = {
    "llama-2": "{{ bos_token }}{% for m in messages %}[INST] {{ m.content }} [/INST]{% endfor %}",
    "llama-3.1": "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
    "gemma-3-1b": "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ m.role }}\n{{ m.content }}"
    "<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
}
PRINTABLE = "".join(map(chr, range(33, 127))) + "\u2581"
SHARDS = tuple(f"model-0000{i}-of-00002.safetensors" for i in (1, 2))


def published_model(directory: Path, family: str, **config: Any) -> Path:
    """Writes what is published of a family to `directory`, with `config` in place of fields of config.json,
    and gives its tokenizer a vocabulary of single bytes."""
    like = TOKENIZERS.get(family, family)
    for folder in (like, family):
        shutil.copytree(PUBLISHED / folder, directory, dirs_exist_ok=True)
    if like in TEMPLATES:
        (directory / "chat_template.jinja").write_text(TEMPLATES[like])
    fields = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(fields | config))
    tokenizer = json.loads((directory / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"] = _vocabulary(tokenizer)
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    return directory


def _vocabulary(tokenizer: dict[str, Any]) -> dict[str, int]:
    """The added tokens at their ids, and bytes at those that they leave."""
    added = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    ids = (token for token in count() if token not in set(added.values()))
    if is_byte_level(tokenizer["decoder"]):
        names = list(byte_level_alphabet())
    else:
        names = [*(f"<0x{byte:02X}>" for byte in range(256)), *PRINTABLE]
    return added | dict(zip(names, ids, strict=False))


def write_weights(directory: Path) -> None:
    """Random weights of the model in `directory`, whose tensors are not stacked, in two shards and an index
    as they are published: with a size, and with tensors that no engine needs."""
    draw = np.random.default_rng(0)
    tensors: dict[str, Any] = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(8, np.float32)}
    for weight in read_model(directory).weights():
        (name,) = weight.tensors
        tensors[name] = draw.normal(0, 0.05, weight.shape).astype(np.float16)
    halves = [dict(list(tensors.items())[i::2]) for i in (0, 1)]
    for shard, half in zip(SHARDS, halves, strict=True):
        save_file(half, directory / shard, metadata={"format": "pt"})
    places = {name: shard for shard, half in zip(SHARDS, halves, strict=True) for name in half}
    size = {"total_size": sum(tensor.nbytes for tensor in tensors.values())}
    index = json.dumps({"metadata": size, "weight_map": places})
    (directory / "model.safetensors.index.json").write_text(index)
