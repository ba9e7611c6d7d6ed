"""A small Llama in plain PyTorch, with Hugging Face's parameter names.

Parameters are fp32 masters; every product runs in `Llama.dtype`. `forward` without a cache is the training
path; with one it is the decode path of the evaluation.
"""

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """Shape of the model; the field names are those of config.json."""

    vocab_size: int = 1024
    hidden_size: int = 256
    intermediate_size: int = 320
    num_hidden_layers: int = 6
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0

    def hugging_face(self, bos: int, eos: int, pad: int) -> dict[str, object]:
        """config.json of LlamaForCausalLM."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            **asdict(self),
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": True,
            "torch_dtype": "bfloat16",
            "bos_token_id": bos,
            "eos_token_id": eos,
            "pad_token_id": pad,
        }


@dataclass
class Cache:
    """Keys and values of one layer: [batch, kv heads, capacity, head_dim]."""

    keys: Tensor
    values: Tensor


def _linear(x: Tensor, layer: nn.Linear) -> Tensor:
    return F.linear(x, layer.weight.to(x.dtype))


class RMSNorm(nn.Module):
    """Root-mean-square norm whose weight is rounded to the input's dtype, as it is in the checkpoint."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.eps)


class Attention(nn.Module):
    """Grouped-query attention with rotary positions."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        self.q_proj = nn.Linear(c.hidden_size, self.heads * c.head_dim, bias=False)
        self.k_proj = nn.Linear(c.hidden_size, self.kv_heads * c.head_dim, bias=False)
        self.v_proj = nn.Linear(c.hidden_size, self.kv_heads * c.head_dim, bias=False)
        self.o_proj = nn.Linear(self.heads * c.head_dim, c.hidden_size, bias=False)

    def forward(
        self, x: Tensor, rope: tuple[Tensor, Tensor], mask: Tensor | None, cache: Cache | None, at: int
    ) -> Tensor:
        batch, length, _ = x.shape

        def split(layer: nn.Linear, heads: int) -> Tensor:
            return _linear(x, layer).view(batch, length, heads, self.head_dim).transpose(1, 2)

        q, k = rotate(split(self.q_proj, self.heads), rope), rotate(split(self.k_proj, self.kv_heads), rope)
        v = split(self.v_proj, self.kv_heads)
        if cache is not None:
            cache.keys[:, :, at : at + length], cache.values[:, :, at : at + length] = k, v
            k, v = cache.keys[:, :, : at + length], cache.values[:, :, : at + length]
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=True)
        return _linear(out.transpose(1, 2).reshape(batch, length, -1), self.o_proj)


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.up_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.down_proj = nn.Linear(c.intermediate_size, c.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return _linear(F.silu(_linear(x, self.gate_proj)) * _linear(x, self.up_proj), self.down_proj)


class Layer(nn.Module):
    """One decoder layer."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.input_layernorm, self.self_attn = RMSNorm(c.hidden_size, c.rms_norm_eps), Attention(c)
        self.post_attention_layernorm, self.mlp = RMSNorm(c.hidden_size, c.rms_norm_eps), MLP(c)

    def forward(
        self, x: Tensor, rope: tuple[Tensor, Tensor], mask: Tensor | None, cache: Cache | None, at: int
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rope, mask, cache, at)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Decoder(nn.Module):
    """Embedding, layers and last norm."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.num_hidden_layers))
        self.norm = RMSNorm(c.hidden_size, c.rms_norm_eps)

    def forward(
        self,
        ids: Tensor,
        rope: tuple[Tensor, Tensor],
        mask: Tensor | None,
        caches: list[Cache] | None,
        at: int,
    ) -> Tensor:
        x: Tensor = self.embed_tokens(ids).to(rope[0].dtype)
        for i, layer in enumerate(self.layers):
            x = layer(x, rope, mask, caches[i] if caches else None, at)
        out: Tensor = self.norm(x)
        return out


class Llama(nn.Module):
    """The whole model; `state_dict` has Hugging Face's names without the tied lm_head."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: Config, dtype: torch.dtype) -> None:
        super().__init__()
        self.config, self.dtype = config, dtype
        self.model = Decoder(config)
        cos, sin = rope_table(config)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self._initialize()

    def _initialize(self) -> None:
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                std = 0.02 if "embed" in name else parameter.shape[1] ** -0.5 / 2
                if name.endswith(("o_proj.weight", "down_proj.weight")):
                    std /= (2 * self.config.num_hidden_layers) ** 0.5
                nn.init.normal_(parameter, std=std)

    def forward(
        self,
        ids: Tensor,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        caches: list[Cache] | None = None,
        at: int = 0,
    ) -> Tensor:
        """Hidden states after the last norm, [batch, length, hidden_size].

        ids: int64 [batch, length]. positions: same shape, default 0, 1, ... mask: bool, broadcastable to
        [batch, heads, length, keys]; default causal. caches: one per layer, written from index `at` on.
        """
        if positions is None:
            rope = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        else:
            rope = self.cos[positions].unsqueeze(1), self.sin[positions].unsqueeze(1)
        rope = rope[0].to(self.dtype), rope[1].to(self.dtype)
        hidden: Tensor = self.model(ids, rope, mask, caches, at)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """fp32 logits of hidden states, over the vocabulary in the last dimension."""
        return F.linear(hidden, self.model.embed_tokens.weight.to(hidden.dtype)).float()

    def new_caches(self, batch: int, capacity: int) -> list[Cache]:
        """Empty caches for `batch` rows of up to `capacity` tokens."""
        c = self.config
        shape = (batch, c.num_key_value_heads, capacity, c.head_dim)
        device = self.cos.device
        return [
            Cache(
                torch.zeros(shape, dtype=self.dtype, device=device),
                torch.zeros(shape, dtype=self.dtype, device=device),
            )
            for _ in range(c.num_hidden_layers)
        ]


def rope_table(c: Config) -> tuple[Tensor, Tensor]:
    """cos and sin, fp32 [max_position_embeddings, head_dim]; both halves of head_dim hold the same angles."""
    frequencies = c.rope_theta ** -(torch.arange(0, c.head_dim, 2).float() / c.head_dim)
    angles = torch.outer(torch.arange(c.max_position_embeddings).float(), frequencies).repeat(1, 2)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate the pairs (i, i + head_dim / 2) of the last dimension."""
    cos, sin = rope
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin
