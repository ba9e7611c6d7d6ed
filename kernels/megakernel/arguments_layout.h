/* Generated from arguments.h by scripts/generate_abi.py. Do not edit. */
// clang-format off
#define BLINK_MEGAKERNEL_LAYOUT_HASH 0xb3d594af300494b6ull

#ifdef __cplusplus
#define BLINK_ASSERT static_assert
#else
#define BLINK_ASSERT _Static_assert
#endif
BLINK_ASSERT(sizeof(struct blink_tensor_map) == 128, "blink_tensor_map");
BLINK_ASSERT(__builtin_offsetof(struct blink_tensor_map, opaque) == 0, "blink_tensor_map.opaque");
BLINK_ASSERT(sizeof(struct blink_megakernel_model) == 128, "blink_megakernel_model");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_model, maps) == 0, "blink_megakernel_model.maps");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_model, embed) == 8, "blink_megakernel_model.embed");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_model, norms) == 16, "blink_megakernel_model.norms");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_model, head_norms) == 24, "blink_megakernel_model.head_norms");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_model, weight_scales) == 32, "blink_megakernel_model.weight_scales");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_model, rope) == 40, "blink_megakernel_model.rope");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_model, cache) == 48, "blink_megakernel_model.cache");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_model, cache_bytes) == 56, "blink_megakernel_model.cache_bytes");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_model, cache_maps) == 64, "blink_megakernel_model.cache_maps");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_model, cache_scales) == 72, "blink_megakernel_model.cache_scales");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_model, n_layers) == 80, "blink_megakernel_model.n_layers");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_model, hidden) == 84, "blink_megakernel_model.hidden");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_model, n_heads) == 88, "blink_megakernel_model.n_heads");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_model, n_kv_heads) == 92, "blink_megakernel_model.n_kv_heads");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_model, intermediate) == 96, "blink_megakernel_model.intermediate");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_model, vocab_size) == 100, "blink_megakernel_model.vocab_size");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_model, hidden_chunks) == 104, "blink_megakernel_model.hidden_chunks");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_model, head_chunks) == 108, "blink_megakernel_model.head_chunks");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_model, attention_chunks) == 112, "blink_megakernel_model.attention_chunks");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_model, intermediate_chunks) == 116, "blink_megakernel_model.intermediate_chunks");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_model, norm_eps) == 120, "blink_megakernel_model.norm_eps");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_model, scale_bytes) == 124, "blink_megakernel_model.scale_bytes");
BLINK_ASSERT(sizeof(struct blink_megakernel_buffers) == 88, "blink_megakernel_buffers");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_buffers, squares) == 0, "blink_megakernel_buffers.squares");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_buffers, normed) == 8, "blink_megakernel_buffers.normed");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_buffers, qkv) == 16, "blink_megakernel_buffers.qkv");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_buffers, attention) == 24, "blink_megakernel_buffers.attention");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_buffers, product) == 32, "blink_megakernel_buffers.product");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_buffers, parts) == 40, "blink_megakernel_buffers.parts");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_buffers, norm_bytes) == 48, "blink_megakernel_buffers.norm_bytes");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_buffers, layer_bytes) == 56, "blink_megakernel_buffers.layer_bytes");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_buffers, logits) == 64, "blink_megakernel_buffers.logits");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_buffers, leavers) == 72, "blink_megakernel_buffers.leavers");
BLINK_ASSERT(__builtin_offsetof(struct blink_megakernel_buffers, max_splits) == 80, "blink_megakernel_buffers.max_splits");
#undef BLINK_ASSERT

/* X(struct, member) for every member, in order. */
#define BLINK_MEGAKERNEL_MEMBERS(X) \
  X(blink_tensor_map, opaque) \
  X(blink_megakernel_model, maps) \
  X(blink_megakernel_model, embed) \
  X(blink_megakernel_model, norms) \
  X(blink_megakernel_model, head_norms) \
  X(blink_megakernel_model, weight_scales) \
  X(blink_megakernel_model, rope) \
  X(blink_megakernel_model, cache) \
  X(blink_megakernel_model, cache_bytes) \
  X(blink_megakernel_model, cache_maps) \
  X(blink_megakernel_model, cache_scales) \
  X(blink_megakernel_model, n_layers) \
  X(blink_megakernel_model, hidden) \
  X(blink_megakernel_model, n_heads) \
  X(blink_megakernel_model, n_kv_heads) \
  X(blink_megakernel_model, intermediate) \
  X(blink_megakernel_model, vocab_size) \
  X(blink_megakernel_model, hidden_chunks) \
  X(blink_megakernel_model, head_chunks) \
  X(blink_megakernel_model, attention_chunks) \
  X(blink_megakernel_model, intermediate_chunks) \
  X(blink_megakernel_model, norm_eps) \
  X(blink_megakernel_model, scale_bytes) \
  X(blink_megakernel_buffers, squares) \
  X(blink_megakernel_buffers, normed) \
  X(blink_megakernel_buffers, qkv) \
  X(blink_megakernel_buffers, attention) \
  X(blink_megakernel_buffers, product) \
  X(blink_megakernel_buffers, parts) \
  X(blink_megakernel_buffers, norm_bytes) \
  X(blink_megakernel_buffers, layer_bytes) \
  X(blink_megakernel_buffers, logits) \
  X(blink_megakernel_buffers, leavers) \
  X(blink_megakernel_buffers, max_splits)
// clang-format on
