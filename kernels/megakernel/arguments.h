/* What the megakernel is told once, at capture: the model and the buffers that it works on, all in device
 * memory. Matrices are row-major [out][in] in the engine's half type, or those of layers in fp8 with scales by row, or
 * in codes of four bits (../primitives/codes.h).
 */
#ifndef BLINK_MEGAKERNEL_ARGUMENTS_H
#define BLINK_MEGAKERNEL_ARGUMENTS_H

#ifndef __CUDACC_RTC__
#include <stdint.h>
#endif

#define BLINK_MEGAKERNEL_SHARED_BYTES 231424 /* of a block: 226 KiB, which leaves room for the next step's gate */

#define BLINK_MEGAKERNEL_TOKENS 8   /* of a step at most */
#define BLINK_STAGE_CHUNKS 8        /* most chunks of k, of 32 words, in a stage of the weight stream */
#define BLINK_CODE_STAGE_CHUNKS 4   /* in a stage of a model in codes, also of its head */
#define BLINK_CODE_STAGE_BYTES 4608 /* of such a stage: a tile of 4 chunks, and 512 bytes of its scales */

/* How bulk copies read a matrix [n_out][n_in]: in boxes of 16 rows (weight_stream_sm90.h) and as many chunks of k as a
 * stage has. A matrix in fp8 is one of words of 16 bits, half as many as it has columns, and one of codes of a quarter
 * as many. Scales of codes are words, too: their boxes have those of a stage's chunks, and what is missing to multiples
 * of 16 bytes at both ends. */
struct blink_tensor_map {
  uint64_t opaque[16]; /* a CUtensorMap, which must be 64-byte aligned */
};

struct blink_megakernel_model {
  const struct blink_tensor_map* maps; /* [4 n_layers + 1]: of each layer qkv, o, gate_up, down; the head. Behind them,
                                          of codes, [4 n_layers] of their scales */
  const void* embed;                   /* [vocab][hidden] */
  const void* norms;                   /* [2 n_layers + 1][hidden / 16][8][2]: of each layer the input's and the one
                                          after attention, then the head's; elements 8 apart in a tile are neighbours */
  const void* head_norms;              /* [n_layers][2][head_dim], of queries and of keys, or null */
  const uint64_t* weight_scales;       /* [4 n_layers], as maps: where a matrix in fp8 has its scales, [rows] fp32 */
  const void* rope;                    /* [head_dim / 2] RopePair (ops/attention/rope.h) */
  void* cache; /* [n_layers][2] of cache_bytes: keys, values [page][n_kv_heads][page_size][head_dim] */
  uint64_t cache_bytes;
  const struct blink_tensor_map* cache_maps; /* [n_layers]: of both, for tiles of keys (ops/attention/kv_tile.h) */
  const float* cache_scales; /* [n_layers][2], of keys and of values, of a cache in fp8 (ops/attention/kv_element.h) */
  uint32_t n_layers;
  uint32_t hidden;
  uint32_t n_heads;
  uint32_t n_kv_heads;
  uint32_t intermediate;
  uint32_t vocab_size;
  /* The chunks of k in a stage, for matrices with this many columns: they divide the eighth of k that a warp has. Of
   * codes they need not; the last stage of a row then has fewer. */
  uint32_t hidden_chunks;    /* of layers */
  uint32_t head_chunks;      /* of the head, whose elements are as wide as those of hidden_chunks or wider */
  uint32_t attention_chunks; /* n_heads * head_dim */
  uint32_t intermediate_chunks;
  float norm_eps;
  uint32_t scale_bytes; /* of codes: those of a row's scales for a chunk */
};

/* T is BLINK_MEGAKERNEL_TOKENS; buffers that other kernels use too may have more.
 *
 * Blocks pass results to each other through scratch memory, [n_layers + 1] of layer_bytes, of which the last is the
 * head's. It is all zero between kernels (primitives/ll_protocol.h). The pointers into it point to the first layer's. A
 * layer has two norms, whose squares and normed are norm_bytes apart; the first norm's lie at the layer's beginning.
 * What a matmul reads lies in the order of input_order.h, not in rows.
 */
struct blink_megakernel_buffers {
  float* squares;  /* [hidden / 16][T]: of each 16 elements of the residual, the sum of squares */
  void* normed;    /* T x hidden: what the next matmul reads, except for a factor of the row (megakernel_sm90.h) */
  void* qkv;       /* [T][n_heads + 2 n_kv_heads][head_dim] */
  void* attention; /* T x n_heads x head_dim, which o reads */
  void* product;   /* T x intermediate: silu(gate) * up, which down reads */
  float* parts;    /* of attention, as megakernel/decode_attention.h has them: one unit's for each block */
  uint64_t norm_bytes;
  uint64_t layer_bytes;
  float* logits;     /* [T][vocab] */
  uint32_t* leavers; /* blocks that have ended, zero between kernels */
  uint32_t max_splits;
};

#include "arguments_layout.h"

#endif /* BLINK_MEGAKERNEL_ARGUMENTS_H */
