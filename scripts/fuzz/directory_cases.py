"""Hostile model directories, drawn at random: sizes, types, texts, files and programs that no model has."""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Any

from fuzz.directory_case import DEMO, Case, Change

ARCHITECTURES = (
    "LlamaForCausalLM", "MistralForCausalLM", "MinistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM", "Phi3ForCausalLM", "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration",
    "GptOssForCausalLM", "Ministral3ForCausalLM", "Mistral3ForConditionalGeneration",
)  # fmt: skip
NUMBERS = (
    0, -1, 1, 2, 3, 7, 16, 255, 256, 257, 1024, 1025, 65536, 10**7, 256 * 10**6, 2**31 - 1, 2**31, 2**32 - 1,
    2**32, 2**63 - 1, 2**63, 10**19, int(1e30), 10**400, 10**4299, -(10**4299), 0.0, -0.0, 0.5, 256.0, 1e-320,
    1e30, 1e300, -1e300, 1e39, float("inf"), float("-inf"), float("nan"),
)  # fmt: skip
LARGE = (int(1e30), -int(1e30), 10**400, 10**4299, 1e30, 1e300)  # as honest files have some of them
JSON_FILES = (
    "config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json", "model.safetensors",
)  # fmt: skip
SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "mask_token", "added_tokens_decoder")
TEXTS = (
    "", "x", "\x00", "\n", "\x1b[2J\x1b]0;x\x07", "\ud800", "x" * 100_000, "é" * 1000, "../etc/passwd",
    "re:(a+)+$", "re:.*" * 9, "re:" + "(a|b)?" * 40, "silu", "float8_e4m3fn", "Linear",
)  # fmt: skip
KEYS = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "head_dim", "vocab_size", "max_position_embeddings", "rms_norm_eps", "rope_theta", "hidden_act",
    "hidden_activation", "torch_dtype", "dtype", "tie_word_embeddings", "eos_token_id", "architectures",
    "sliding_window", "layer_types", "max_window_layers", "use_sliding_window", "num_experts",
    "num_local_experts", "num_experts_per_tok", "moe_intermediate_size", "decoder_sparse_step",
    "mlp_only_layers", "norm_topk_prob", "rope_scaling", "rope_parameters", "partial_rotary_factor",
    "original_max_position_embeddings", "quantization_config", "attention_bias", "mlp_bias", "text_config",
    "sliding_window_pattern", "query_pre_attn_scalar", "rope_local_base_freq",
)  # fmt: skip
ROPE_KEYS = (
    "rope_type", "type", "factor", "rope_theta", "low_freq_factor", "high_freq_factor", "beta_fast",
    "beta_slow", "mscale", "mscale_all_dim", "attention_factor", "attn_factor", "short_factor", "long_factor",
    "truncate", "original_max_position_embeddings", "partial_rotary_factor",
)  # fmt: skip
ROPES = ("default", "linear", "dynamic", "llama3", "yarn", "longrope", "su", "spiral")
QUANTIZATION_KEYS = (
    "quant_method", "fmt", "activation_scheme", "modules_to_not_convert", "ignored_layers",
    "weight_block_size", "kv_cache_scheme", "config_groups", "ignore", "quant_algo", "kv_cache_quant_algo",
    "exclude_modules",
)  # fmt: skip
METHODS = ("fp8", "compressed-tensors", "modelopt", "awq")
PATTERNS = (
    "(a+)+$", "(a|aa)+$", "(.*)*x", "(?:(?:a{1,9}){1,9}){1,9}", "(\\w+\\s?)*$", "^(?=(a+))a*b",
    "(a?){40}a{40}", "\\p{L}+|\\p{N}", ".", "", "(", "[", "(?<n>a)\\g<n>*", "(?:)", "a{99999}", "\\X+",
    "((a{99}){99}){99}",
)  # fmt: skip
TEMPLATES = (
    "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
    "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
    "{{ 'x' * 10 ** 9 }}", "{{ 'x' | center(10 ** 9) }}", "{{ '%999999999d' % 1 }}", "{{ [0] * 10 ** 9 }}",
    "{{ (3 ** (messages | length * 3 * 10 ** 7)) % 7 }}",
    "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}",
    "{{ messages.__class__.__mro__[1].__subclasses__() }}", "{{ cycler.__init__.__globals__ }}",
    "{{ self._TemplateReference__context }}", "{% include '/etc/passwd' %}", "{% extends 'x' %}", "{{",
    "{{ raise_exception('x' * 10 ** 6) }}", "{{ 1 / 0 }}", "{% if" + " not" * 5000 + " x %}{% endif %}", "",
    "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "{{ messages | tojson(indent=10 ** 8) }}",
    "{% for m in messages %}{{ m.content }}{% endfor %}", "{{ 'x' | urlize }}{{ messages | pprint }}",
    "{{ ('x' * 10 ** 6) | wordwrap(1) | replace('x', 'y' * 1000) }}", "{{ strftime_now('%Y' * 10 ** 6) }}",
)  # fmt: skip
HEAD = "lm_head.weight"  # which the demo model has not
DEEP = 200_000
MOST_CHARACTERS = 20 << 20  # of a list: more than a config.json may have, and not all of a machine's memory


@cache
def _demo(name: str) -> Any:
    raw = (DEMO / name).read_bytes()
    if name.endswith(".safetensors"):
        raw = raw[8 : 8 + int.from_bytes(raw[:8], "little")]
    return json.loads(raw)


def value(draw: random.Random, depth: int = 0) -> Any:
    """Something that might stand in a JSON file."""
    kind = draw.randrange(8 if depth < 2 else 5)
    if kind < 3:
        return draw.choice(NUMBERS)
    if kind == 3:
        return draw.choice(TEXTS)
    if kind == 4:
        return draw.choice((None, True, False))
    if kind == 5:
        return [value(draw, depth + 1) for _ in range(draw.choice((0, 1, 2, 20)))]
    if kind == 6:
        item, n = value(draw, 2), draw.choice((1000, 100_000))
        return [item] * min(n, MOST_CHARACTERS // len(f"{item!r}"))
    return {draw.choice((*KEYS, *TEXTS[:4])): value(draw, depth + 1) for _ in range(draw.choice((0, 1, 5)))}


def _config(draw: random.Random) -> Case:
    changes: list[Any] = []
    if draw.random() < 0.5:
        changes.append([["architectures"], [draw.choice(ARCHITECTURES)]])
        changes += [[["num_experts"], 4], [["num_experts_per_tok"], 2], [["moe_intermediate_size"], 64]]
    for _ in range(draw.choice((1, 1, 2, 4))):
        changes.append([[draw.choice(KEYS)], value(draw)])
    return {"config.json": {"json": changes}}


def _rope(draw: random.Random) -> Case:
    section = {draw.choice(ROPE_KEYS): value(draw, 1) for _ in range(4)}
    section |= {"rope_type": draw.choice(ROPES), "factor": draw.choice((1, 2.0, 4, 1e6, *NUMBERS))}
    return {"config.json": {"json": [[[draw.choice(("rope_scaling", "rope_parameters"))], section]]}}


def _quantization(draw: random.Random) -> Case:
    section = {draw.choice(QUANTIZATION_KEYS): value(draw) for _ in range(3)}
    section["quant_method"] = draw.choice(METHODS)
    if draw.random() < 0.5:
        weights = {"type": "float", "num_bits": 8, "strategy": draw.choice(("tensor", "channel", "block", 3))}
        targets = [f"re:{draw.choice(PATTERNS)}", "Linear"]
        section["config_groups"] = {"group": {"targets": targets, "weights": weights}}
    section["ignore"] = [f"re:{draw.choice(PATTERNS)}" for _ in range(draw.choice((0, 1, 3)))]
    return {"config.json": {"json": [[["quantization_config"], section]]}}


def _tensors(draw: random.Random) -> Case:
    names = [name for name in _demo("model.safetensors") if name != "__metadata__"]
    name = draw.choice(names)
    info = dict(_demo("model.safetensors")[name])
    begin, end = info["data_offsets"]
    change = draw.randrange(5)
    if change == 0:
        info["shape"] = draw.choice(
            ([], [0], [-1, -1], [2**62, 4], [1] * 5000, "x", None, [1.5], [end - begin])
        )
    elif change == 1:
        info["data_offsets"] = draw.choice(
            ([0, 2**63], [-2, 0], [end, begin], [0], None, [begin, end, 1], "01")
        )
    elif change == 2:
        info["dtype"] = draw.choice(("F32", "F8_E4M3", "I64", "", None, ["BF16"], "x" * 10**5))
    else:
        info = value(draw)
    name = name if draw.random() < 0.8 else draw.choice((HEAD, *TEXTS))
    return {"model.safetensors": {"json": [[[name], info]]}}


def _weights(draw: random.Random) -> Case:
    """Numbers that are none, and others that overflow, somewhere in the data."""
    begin = 200_000
    places = [begin + 2 * draw.randrange(1_000_000) for _ in range(draw.choice((1, 100)))]
    return {
        "model.safetensors": {
            "bytes": [[place, draw.choice(("c07f", "807f", "7f7f", "ffff"))] for place in places]
        }
    }


def _index(draw: random.Random) -> Case:
    names = (
        "/etc/passwd", "../x", 7, None, "", ".", "model.safetensors", "a\x00b", "x" * 300, ["x"], "pipe",
        "x.safetensors", "part/model.safetensors",
    )  # fmt: skip
    wrong = draw.choice((0.0, 0.01, 1.0))
    shards = {
        name: draw.choice(names) if draw.random() < wrong else "model.safetensors"
        for name in draw.choice((("w0",), ("w0", "w1", "w2"), (HEAD, *_demo("model.safetensors"))))
        if draw.random() > 0.002
    }
    index = {"weight_map": shards}
    if draw.random() < 0.3:
        index = draw.choice(({"weight_map": value(draw)}, value(draw)))
    case: Case = {"model.safetensors.index.json": {"text": json.dumps(index)}, "pipe": {"fifo": 1}}
    return case if draw.random() < 0.7 else {"model.safetensors": {"missing": 1}, **case}


def _tokenizer(draw: random.Random) -> Case:
    pattern = {"Regex": draw.choice(PATTERNS)}
    split = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    replace = {"type": "Replace", "pattern": pattern, "content": "x" * draw.choice((0, 1, 1000))}
    added = {
        "content": "<x>",
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": True,
        "special": True,
    }
    changes: Any = draw.choice(
        (
            [[["pre_tokenizer"], split]],
            [[["normalizer"], replace]],
            [[["decoder"], replace]],
            [[["added_tokens"], [{"id": draw.choice(NUMBERS), **added}]]],
            [[["model", "vocab", "zz"], draw.choice(NUMBERS)]],
            [[["model", "merges"], value(draw)]],
            [
                [
                    [draw.choice(("model", "decoder", "normalizer", "post_processor", "added_tokens"))],
                    value(draw),
                ]
            ],
            [[["truncation"], {"max_length": draw.choice(NUMBERS), "strategy": "LongestFirst", "stride": 5}]],
        )
    )
    return {"tokenizer.json": {"json": changes}}


def _template(draw: random.Random) -> Case:
    body = draw.choice(TEMPLATES)
    if draw.random() < 0.3:  # harmless until it is asked
        body = "{% if messages | length > 1 %}" + body + "{% else %}x{% endif %}"
    if draw.random() < 0.5:
        return {"chat_template.jinja": {"text": body}}
    wanted = (
        body if draw.random() < 0.7 else draw.choice((7, [value(draw)], [{"name": "default"}], value(draw)))
    )
    return {"tokenizer_config.json": {"json": [[["chat_template"], wanted], [["eos_token"], value(draw)]]}}


def _file(draw: random.Random) -> Case:
    name = draw.choice(("config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
                        "tokenizer_config.json", "chat_template.jinja", "hf_quant_config.json"))  # fmt: skip
    size = (DEMO / name).stat().st_size if (DEMO / name).exists() else 0
    flips = [[draw.randrange(min(size, 100_000) or 1), f"{draw.randrange(256):02x}"] for _ in range(9)]
    changes: tuple[Change, ...] = (
        {"fifo": 1}, {"folder": 1}, {"link": "/dev/zero"}, {"link": "/etc/passwd"}, {"link": "/dev/stdin"},
        {"sparse": 1 << 40}, {"repeat": ["[", DEEP, ""]}, {"repeat": ['{"a":', DEEP, ""]}, {"text": ""},
        {"repeat": ["", 0, '{"a": ' + "9" * 100_000 + "}"]}, {"text": json.dumps(value(draw))},
        {"missing": 1}, {"link": name},
    )  # fmt: skip
    if size:
        changes += (
            {"bytes": flips},
            {"bytes": flips},
            {"cut": draw.randrange(size)},
            {"cut": draw.randrange(9)},
        )
    return {name: draw.choice(changes)}


def _generation(draw: random.Random) -> Case:
    keys = ("eos_token_id", "max_length", "temperature", "top_k", "top_p", "min_p", "repetition_penalty")
    return {"generation_config.json": {"json": [[[draw.choice(keys)], value(draw)]]}}


def _special(draw: random.Random) -> Case:
    """Special tokens in both files that name them."""
    tokens = (*TEXTS, "<|eos|>", {"content": "<|end|>"}, {"content": value(draw)}, value(draw))
    names = ("tokenizer_config.json", "special_tokens_map.json")
    return {name: {"json": [[[draw.choice(SPECIAL_TOKENS)], draw.choice(tokens)]]} for name in names}


def _large(draw: random.Random) -> Case:
    """A large number in the place of anything, in any file."""
    name = draw.choice(JSON_FILES)
    at, path = _demo(name), []
    while isinstance(at, dict | list) and at:
        path.append(draw.choice(list(at)) if isinstance(at, dict) else draw.randrange(len(at)))
        at = at[path[-1]]
    return {name: {"json": [[path, draw.choice(LARGE)]]}}


KINDS = (
    _config, _config, _rope, _quantization, _tensors, _weights, _index, _tokenizer, _tokenizer, _template,
    _file, _generation, _special, _large,
)  # fmt: skip


def draw_case(seed: int) -> tuple[str, Case]:
    """The kind and the case of a seed."""
    draw = random.Random(seed)
    kind = draw.choice(KINDS)
    return kind.__name__.removeprefix("_"), kind(draw)
