/* Generated from arguments.h by scripts/generate_abi.py. Do not edit. */
// clang-format off
#define BLINK_DECODER_LAYOUT_HASH 0x652ea70bf0978126ull

#ifdef __cplusplus
#define BLINK_ASSERT static_assert
#else
#define BLINK_ASSERT _Static_assert
#endif
BLINK_ASSERT(sizeof(struct blink_tensor_map) == 128, "blink_tensor_map");
BLINK_ASSERT(__builtin_offsetof(struct blink_tensor_map, opaque) == 0, "blink_tensor_map.opaque");
BLINK_ASSERT(sizeof(struct blink_decoder_model) == 104, "blink_decoder_model");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, maps) == 0, "blink_decoder_model.maps");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, embed) == 8, "blink_decoder_model.embed");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, norms) == 16, "blink_decoder_model.norms");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, head_norms) == 24, "blink_decoder_model.head_norms");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, rope) == 32, "blink_decoder_model.rope");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, cache) == 40, "blink_decoder_model.cache");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, cache_bytes) == 48, "blink_decoder_model.cache_bytes");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, cache_maps) == 56, "blink_decoder_model.cache_maps");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, n_layers) == 64, "blink_decoder_model.n_layers");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, hidden) == 68, "blink_decoder_model.hidden");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, n_heads) == 72, "blink_decoder_model.n_heads");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, n_kv_heads) == 76, "blink_decoder_model.n_kv_heads");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, intermediate) == 80, "blink_decoder_model.intermediate");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, vocab_size) == 84, "blink_decoder_model.vocab_size");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, hidden_chunks) == 88, "blink_decoder_model.hidden_chunks");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, attention_chunks) == 92, "blink_decoder_model.attention_chunks");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, intermediate_chunks) == 96, "blink_decoder_model.intermediate_chunks");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, norm_eps) == 100, "blink_decoder_model.norm_eps");
BLINK_ASSERT(sizeof(struct blink_decoder_buffers) == 88, "blink_decoder_buffers");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_buffers, squares) == 0, "blink_decoder_buffers.squares");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_buffers, normed) == 8, "blink_decoder_buffers.normed");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_buffers, qkv) == 16, "blink_decoder_buffers.qkv");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_buffers, attention) == 24, "blink_decoder_buffers.attention");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_buffers, product) == 32, "blink_decoder_buffers.product");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_buffers, parts) == 40, "blink_decoder_buffers.parts");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_buffers, norm_bytes) == 48, "blink_decoder_buffers.norm_bytes");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_buffers, layer_bytes) == 56, "blink_decoder_buffers.layer_bytes");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_buffers, logits) == 64, "blink_decoder_buffers.logits");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_buffers, leavers) == 72, "blink_decoder_buffers.leavers");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_buffers, max_splits) == 80, "blink_decoder_buffers.max_splits");
#undef BLINK_ASSERT

/* X(struct, member) for every member, in order. */
#define BLINK_DECODER_MEMBERS(X) \
  X(blink_tensor_map, opaque) \
  X(blink_decoder_model, maps) \
  X(blink_decoder_model, embed) \
  X(blink_decoder_model, norms) \
  X(blink_decoder_model, head_norms) \
  X(blink_decoder_model, rope) \
  X(blink_decoder_model, cache) \
  X(blink_decoder_model, cache_bytes) \
  X(blink_decoder_model, cache_maps) \
  X(blink_decoder_model, n_layers) \
  X(blink_decoder_model, hidden) \
  X(blink_decoder_model, n_heads) \
  X(blink_decoder_model, n_kv_heads) \
  X(blink_decoder_model, intermediate) \
  X(blink_decoder_model, vocab_size) \
  X(blink_decoder_model, hidden_chunks) \
  X(blink_decoder_model, attention_chunks) \
  X(blink_decoder_model, intermediate_chunks) \
  X(blink_decoder_model, norm_eps) \
  X(blink_decoder_buffers, squares) \
  X(blink_decoder_buffers, normed) \
  X(blink_decoder_buffers, qkv) \
  X(blink_decoder_buffers, attention) \
  X(blink_decoder_buffers, product) \
  X(blink_decoder_buffers, parts) \
  X(blink_decoder_buffers, norm_bytes) \
  X(blink_decoder_buffers, layer_bytes) \
  X(blink_decoder_buffers, logits) \
  X(blink_decoder_buffers, leavers) \
  X(blink_decoder_buffers, max_splits)
// clang-format on
