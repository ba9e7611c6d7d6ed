"""A model directory without weights: a byte-level tokenizer trained on a few lines, and a ChatML template."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

BOS, EOS, IM_START, IM_END = "<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>"
TOOL_CALL = "<tool call>"  # an added token that is not special, and has a space
VOCAB_SIZE = 600  # a few more than the tokenizer has, as in models with padded embeddings
TEMPLATE = (
    "{% for message in messages %}\n"
    "    {%- if message['role'] == 'system' and not loop.first %}\n"
    "        {{- raise_exception('system comes first') }}\n"
    "    {%- endif %}\n"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
LINES = [
    "the quick brown fox jumps over the lazy dog",
    "Hello, world! How are you today? I'm fine, thanks.",
    "def main(): return 0  # comment",
    "naïve café Ångström 漢字 かな 😀 2024-11-21",
] * 4


def build_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=[BOS, EOS, IM_START, IM_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(LINES, trainer)
    tokenizer.add_tokens([AddedToken(TOOL_CALL, normalized=False)])
    return tokenizer


def write_model(directory: Path, tokenizer: Tokenizer | None = None, name: str = "tiny") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (tokenizer or build_tokenizer()).save(str(directory / "tokenizer.json"))
    (directory / "config.json").write_text(json.dumps({"model_type": name, "vocab_size": VOCAB_SIZE}))
    config = {"chat_template": TEMPLATE, "bos_token": BOS, "eos_token": {"content": EOS}}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory
