/* Generated from arguments.h by scripts/generate_abi.py. Do not edit. */
// clang-format off
#define BLINK_DECODER_LAYOUT_HASH 0x915ea7eb253d85b4ull

#ifdef __cplusplus
#define BLINK_ASSERT static_assert
#else
#define BLINK_ASSERT _Static_assert
#endif
BLINK_ASSERT(sizeof(struct blink_tensor_map) == 128, "blink_tensor_map");
BLINK_ASSERT(__builtin_offsetof(struct blink_tensor_map, opaque) == 0, "blink_tensor_map.opaque");
BLINK_ASSERT(sizeof(struct blink_decoder_layer) == 48, "blink_decoder_layer");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_layer, input_norm) == 0, "blink_decoder_layer.input_norm");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_layer, q_norm) == 8, "blink_decoder_layer.q_norm");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_layer, k_norm) == 16, "blink_decoder_layer.k_norm");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_layer, post_norm) == 24, "blink_decoder_layer.post_norm");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_layer, k_cache) == 32, "blink_decoder_layer.k_cache");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_layer, v_cache) == 40, "blink_decoder_layer.v_cache");
BLINK_ASSERT(sizeof(struct blink_decoder_model) == 80, "blink_decoder_model");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, layers) == 0, "blink_decoder_model.layers");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, maps) == 8, "blink_decoder_model.maps");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, embed) == 16, "blink_decoder_model.embed");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, final_norm) == 24, "blink_decoder_model.final_norm");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, inv_freq) == 32, "blink_decoder_model.inv_freq");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, n_layers) == 40, "blink_decoder_model.n_layers");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, hidden) == 44, "blink_decoder_model.hidden");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, n_heads) == 48, "blink_decoder_model.n_heads");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, n_kv_heads) == 52, "blink_decoder_model.n_kv_heads");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, intermediate) == 56, "blink_decoder_model.intermediate");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, vocab_size) == 60, "blink_decoder_model.vocab_size");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, hidden_chunks) == 64, "blink_decoder_model.hidden_chunks");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, attention_chunks) == 68, "blink_decoder_model.attention_chunks");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, intermediate_chunks) == 72, "blink_decoder_model.intermediate_chunks");
BLINK_ASSERT(__builtin_offsetof(struct blink_decoder_model, norm_eps) == 76, "blink_decoder_model.norm_eps");
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
  X(blink_decoder_layer, input_norm) \
  X(blink_decoder_layer, q_norm) \
  X(blink_decoder_layer, k_norm) \
  X(blink_decoder_layer, post_norm) \
  X(blink_decoder_layer, k_cache) \
  X(blink_decoder_layer, v_cache) \
  X(blink_decoder_model, layers) \
  X(blink_decoder_model, maps) \
  X(blink_decoder_model, embed) \
  X(blink_decoder_model, final_norm) \
  X(blink_decoder_model, inv_freq) \
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
