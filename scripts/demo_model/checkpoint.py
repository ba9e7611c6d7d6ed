"""The checkpoint: a Hugging Face directory in bf16, and its check against transformers."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from demo_model import tokenizer
from demo_model.evaluate import chat_text
from demo_model.model import Config, Llama

MAX_BYTES = 6_000_000


def save(model: Llama, tokens: Tokenizer, folder: Path) -> int:
    """Write the configuration, the weights and the tokenizer; returns the bytes of model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    names = (tokenizer.BOS, tokenizer.EOS, tokenizer.PAD, tokenizer.END)
    bos, eos, pad, end = (tokenizer.special_id(tokens, name) for name in names)
    config = model.config.hugging_face(bos, eos, pad)
    generation = {"bos_token_id": bos, "eos_token_id": [eos, end], "pad_token_id": pad, "do_sample": False}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    tokenizer.save_tokenizer(tokens, folder, model.config.max_position_embeddings)
    weights = {
        name: p.detach().to("cpu", torch.bfloat16).contiguous() for name, p in model.named_parameters()
    }
    path = folder / "model.safetensors"
    save_file(weights, path, metadata={"format": "pt"})
    path.chmod(0o644)  # safetensors makes it readable by its owner only
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise ValueError(f"model.safetensors has {size} bytes, more than {MAX_BYTES}: make the model smaller")
    return size


def load(folder: Path, dtype: torch.dtype, device: torch.device) -> Llama:
    """Our own model from a saved directory, computing in `dtype`."""
    config = json.loads((folder / "config.json").read_text())
    model = Llama(Config(**{name: config[name] for name in Config.__dataclass_fields__}), dtype)
    model.load_state_dict(load_file(folder / "model.safetensors"))
    return model.to(device)


def verify(folder: Path) -> float:
    """Compare the directory with transformers' reading of it, in fp32 on the CPU; returns the largest error.

    Raises AssertionError where logits differ by more than 1e-4, or where tokenizers or chat templates differ.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ours = load(folder, torch.float32, torch.device("cpu"))
    reference = AutoTokenizer.from_pretrained(folder)
    mine = Tokenizer.from_file(str(folder / "tokenizer.json"))
    messages = [{"role": "system", "content": "Be exact."}, {"role": "user", "content": "What is 12 + 30?\n"}]
    rendered = reference.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    if rendered != chat_text(messages):
        raise AssertionError(f"the chat template renders {rendered!r}, not {chat_text(messages)!r}")
    worst = 0.0
    for text in (rendered, "Q: Zoë's 1234 apples 😀\nA:" * 8):
        ids = mine.encode(text, add_special_tokens=False).ids
        if (
            reference.encode(text, add_special_tokens=False) != ids
            or mine.decode(ids, skip_special_tokens=False) != text
        ):
            raise AssertionError(f"the tokenizers disagree on {text!r}")
        with torch.no_grad():
            row = torch.tensor([ids])
            worst = max(worst, (theirs(row).logits - ours.logits(ours(row))).abs().max().item())
    if worst > 1e-4:
        raise AssertionError(f"logits differ from transformers' by {worst}")
    return worst
