/* Generated from model.h by scripts/generate_abi.py. Do not edit. */
// clang-format off
#define BLINK_MODEL_LAYOUT_HASH 0x53e32762f2d7bee8ull

#ifdef __cplusplus
#define BLINK_ASSERT static_assert
#else
#define BLINK_ASSERT _Static_assert
#endif
BLINK_ASSERT(sizeof(struct blink_layer) == 168, "blink_layer");
BLINK_ASSERT(__builtin_offsetof(struct blink_layer, input_norm) == 0, "blink_layer.input_norm");
BLINK_ASSERT(__builtin_offsetof(struct blink_layer, qkv) == 8, "blink_layer.qkv");
BLINK_ASSERT(__builtin_offsetof(struct blink_layer, qkv_bias) == 16, "blink_layer.qkv_bias");
BLINK_ASSERT(__builtin_offsetof(struct blink_layer, q_norm) == 24, "blink_layer.q_norm");
BLINK_ASSERT(__builtin_offsetof(struct blink_layer, k_norm) == 32, "blink_layer.k_norm");
BLINK_ASSERT(__builtin_offsetof(struct blink_layer, sinks) == 40, "blink_layer.sinks");
BLINK_ASSERT(__builtin_offsetof(struct blink_layer, o) == 48, "blink_layer.o");
BLINK_ASSERT(__builtin_offsetof(struct blink_layer, o_bias) == 56, "blink_layer.o_bias");
BLINK_ASSERT(__builtin_offsetof(struct blink_layer, attention_out_norm) == 64, "blink_layer.attention_out_norm");
BLINK_ASSERT(__builtin_offsetof(struct blink_layer, mlp_norm) == 72, "blink_layer.mlp_norm");
BLINK_ASSERT(__builtin_offsetof(struct blink_layer, router) == 80, "blink_layer.router");
BLINK_ASSERT(__builtin_offsetof(struct blink_layer, router_bias) == 88, "blink_layer.router_bias");
BLINK_ASSERT(__builtin_offsetof(struct blink_layer, gate_up) == 96, "blink_layer.gate_up");
BLINK_ASSERT(__builtin_offsetof(struct blink_layer, gate_up_bias) == 104, "blink_layer.gate_up_bias");
BLINK_ASSERT(__builtin_offsetof(struct blink_layer, down) == 112, "blink_layer.down");
BLINK_ASSERT(__builtin_offsetof(struct blink_layer, down_bias) == 120, "blink_layer.down_bias");
BLINK_ASSERT(__builtin_offsetof(struct blink_layer, mlp_out_norm) == 128, "blink_layer.mlp_out_norm");
BLINK_ASSERT(__builtin_offsetof(struct blink_layer, rope) == 136, "blink_layer.rope");
BLINK_ASSERT(__builtin_offsetof(struct blink_layer, window) == 144, "blink_layer.window");
BLINK_ASSERT(__builtin_offsetof(struct blink_layer, k_scale) == 148, "blink_layer.k_scale");
BLINK_ASSERT(__builtin_offsetof(struct blink_layer, v_scale) == 152, "blink_layer.v_scale");
BLINK_ASSERT(__builtin_offsetof(struct blink_layer, growth_beta) == 156, "blink_layer.growth_beta");
BLINK_ASSERT(__builtin_offsetof(struct blink_layer, growth_context) == 160, "blink_layer.growth_context");
BLINK_ASSERT(__builtin_offsetof(struct blink_layer, reserved) == 164, "blink_layer.reserved");
BLINK_ASSERT(sizeof(struct blink_model) == 88, "blink_model");
BLINK_ASSERT(__builtin_offsetof(struct blink_model, n_layers) == 0, "blink_model.n_layers");
BLINK_ASSERT(__builtin_offsetof(struct blink_model, hidden) == 4, "blink_model.hidden");
BLINK_ASSERT(__builtin_offsetof(struct blink_model, n_heads) == 8, "blink_model.n_heads");
BLINK_ASSERT(__builtin_offsetof(struct blink_model, n_kv_heads) == 12, "blink_model.n_kv_heads");
BLINK_ASSERT(__builtin_offsetof(struct blink_model, head_dim) == 16, "blink_model.head_dim");
BLINK_ASSERT(__builtin_offsetof(struct blink_model, intermediate) == 20, "blink_model.intermediate");
BLINK_ASSERT(__builtin_offsetof(struct blink_model, vocab_size) == 24, "blink_model.vocab_size");
BLINK_ASSERT(__builtin_offsetof(struct blink_model, activation) == 28, "blink_model.activation");
BLINK_ASSERT(__builtin_offsetof(struct blink_model, norm_eps) == 32, "blink_model.norm_eps");
BLINK_ASSERT(__builtin_offsetof(struct blink_model, embed_scale) == 36, "blink_model.embed_scale");
BLINK_ASSERT(__builtin_offsetof(struct blink_model, n_experts) == 40, "blink_model.n_experts");
BLINK_ASSERT(__builtin_offsetof(struct blink_model, experts_per_token) == 44, "blink_model.experts_per_token");
BLINK_ASSERT(__builtin_offsetof(struct blink_model, expert_intermediate) == 48, "blink_model.expert_intermediate");
BLINK_ASSERT(__builtin_offsetof(struct blink_model, renormalise) == 52, "blink_model.renormalise");
BLINK_ASSERT(__builtin_offsetof(struct blink_model, embed) == 56, "blink_model.embed");
BLINK_ASSERT(__builtin_offsetof(struct blink_model, final_norm) == 64, "blink_model.final_norm");
BLINK_ASSERT(__builtin_offsetof(struct blink_model, head) == 72, "blink_model.head");
BLINK_ASSERT(__builtin_offsetof(struct blink_model, layers) == 80, "blink_model.layers");
#undef BLINK_ASSERT

/* X(struct, member) for every member, in order. */
#define BLINK_MODEL_MEMBERS(X) \
  X(blink_layer, input_norm) \
  X(blink_layer, qkv) \
  X(blink_layer, qkv_bias) \
  X(blink_layer, q_norm) \
  X(blink_layer, k_norm) \
  X(blink_layer, sinks) \
  X(blink_layer, o) \
  X(blink_layer, o_bias) \
  X(blink_layer, attention_out_norm) \
  X(blink_layer, mlp_norm) \
  X(blink_layer, router) \
  X(blink_layer, router_bias) \
  X(blink_layer, gate_up) \
  X(blink_layer, gate_up_bias) \
  X(blink_layer, down) \
  X(blink_layer, down_bias) \
  X(blink_layer, mlp_out_norm) \
  X(blink_layer, rope) \
  X(blink_layer, window) \
  X(blink_layer, k_scale) \
  X(blink_layer, v_scale) \
  X(blink_layer, growth_beta) \
  X(blink_layer, growth_context) \
  X(blink_layer, reserved) \
  X(blink_model, n_layers) \
  X(blink_model, hidden) \
  X(blink_model, n_heads) \
  X(blink_model, n_kv_heads) \
  X(blink_model, head_dim) \
  X(blink_model, intermediate) \
  X(blink_model, vocab_size) \
  X(blink_model, activation) \
  X(blink_model, norm_eps) \
  X(blink_model, embed_scale) \
  X(blink_model, n_experts) \
  X(blink_model, experts_per_token) \
  X(blink_model, expert_intermediate) \
  X(blink_model, renormalise) \
  X(blink_model, embed) \
  X(blink_model, final_norm) \
  X(blink_model, head) \
  X(blink_model, layers)
// clang-format on
