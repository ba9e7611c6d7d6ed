/* A decoder-only transformer as the reference engine takes it: dimensions and fp32 weights, row-major [out][in]. A
 * pointer is null if the model has no such weight. gpu_backend/models/ says which tensors of a checkpoint each
 * one is made of.
 */
#ifndef BLINK_REFERENCE_MODEL_H
#define BLINK_REFERENCE_MODEL_H

#ifndef __CUDACC_RTC__ /* which has the types, and no headers of the system */
#include <stdint.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The activation between an MLP's two matmuls (ops/activation.h). */
enum blink_activation { BLINK_SILU = 0, BLINK_GELU_TANH = 1, BLINK_CLAMPED_SWIGLU = 2 };

struct blink_layer {
  const float* input_norm;         /* [hidden] */
  const float* qkv;                /* [(n_heads + 2 n_kv_heads) * head_dim][hidden] */
  const float* qkv_bias;           /* [(n_heads + 2 n_kv_heads) * head_dim] or null */
  const float* q_norm;             /* [head_dim] or null */
  const float* k_norm;             /* [head_dim] or null */
  const float* sinks;              /* [n_heads] or null: of each query head, the score of a key without a value */
  const float* o;                  /* [hidden][n_heads * head_dim] */
  const float* o_bias;             /* [hidden] or null */
  const float* attention_out_norm; /* [hidden] or null: of what o puts out */
  const float* mlp_norm;           /* [hidden] */
  const float* router;             /* [n_experts][hidden]; null: the layer has one MLP and no experts */
  const float* router_bias;        /* [n_experts] or null */
  const float* gate_up;            /* [2 * intermediate][hidden], or of each expert [2 * expert_intermediate][hidden] */
  const float* gate_up_bias;       /* of each expert [2 * expert_intermediate], or null */
  const float* down;               /* [hidden][intermediate], or of each expert [hidden][expert_intermediate] */
  const float* down_bias;          /* of each expert [hidden], or null */
  const float* mlp_out_norm;       /* [hidden] or null: of what the MLP puts out */
  const float* rope; /* [head_dim / 2][2]: radians per position, and magnitude (RopePair of ops/attention/rope.h) */
  uint32_t window;   /* keys that a token sees, itself included; 0: all */
  float k_scale;     /* of the keys that an fp8 cache holds; 0: the cache holds what attention computes */
  float v_scale;     /* of the values, likewise */
  float growth_beta; /* of queries with their position, 0: none (QueryGrowth of ops/attention/rope.h) */
  uint32_t growth_context;
  uint32_t reserved;
};

struct blink_model {
  uint32_t n_layers;
  uint32_t hidden;
  uint32_t n_heads;
  uint32_t n_kv_heads; /* divides n_heads */
  uint32_t head_dim;   /* even */
  uint32_t intermediate;
  uint32_t vocab_size;
  uint32_t activation; /* enum blink_activation */
  float norm_eps;
  float embed_scale;  /* what an embedding is multiplied by */
  uint32_t n_experts; /* 0 in a model without experts, and so the next three */
  uint32_t experts_per_token;
  uint32_t expert_intermediate;
  uint32_t renormalise;    /* the weights of a token's experts sum to 1 */
  const float* embed;      /* [vocab_size][hidden] */
  const float* final_norm; /* [hidden] */
  const float* head;       /* [vocab_size][hidden]; the same pointer as embed when tied */
  const struct blink_layer* layers;
};

#ifdef __cplusplus
}
#endif

#include "model_layout.h"

#endif /* BLINK_REFERENCE_MODEL_H */
