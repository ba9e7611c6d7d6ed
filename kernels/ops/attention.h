/* Attention over pages: token i attends to positions 0..token_position[i] of its row, read through the block
 * table, in decode and prefill alike, so that chunks of a prompt and shared prefixes need no second path.
 * This step's keys and values are in the cache.
 *
 *   qkv       [tokens][n_heads + 2 n_kv_heads][head_dim] half (fp32 on the host): the rotated queries
 *   k_cache   one layer's keys, [page][n_kv_heads][page_size][head_dim]; v_cache likewise
 *   out       [tokens][n_heads][head_dim] half; rows of padding tokens are not written
 *
 * softmax(q . k / sqrt(head_dim)) v, fp32 inside; query head h reads key head h / (n_heads / n_kv_heads).
 * Decode splits a row's keys over blocks and combines the partial results (flash-decoding); prefill is
 * FlashAttention-2's loop on tensor cores: 64 queries of one head a block, 16 a warp.
 */
#ifndef BLINK_OPS_ATTENTION_H
#define BLINK_OPS_ATTENTION_H

#include "attention_prefill.h"

namespace blink {

#ifndef __CUDACC__

constexpr uint32_t kKeyBlock = 16; /* keys that share one rescaling of the sums */

/* One head of one token: a running softmax, its sums relative to the largest score so far. */
inline void attention(const struct blink_step_set& set, const struct blink_tables& tables, const float* qkv,
                      const float* k_cache, const float* v_cache, float* out, uint32_t n_heads, uint32_t n_kv_heads,
                      uint32_t head_dim, uint32_t i, uint32_t head) {
  if (set.token_row[i] == BLINK_NO_ROW) return;
  const uint32_t kv_head = head / (n_heads / n_kv_heads), length = set.token_position[i] + 1;
  const uint32_t block = tables.page_size < kKeyBlock ? tables.page_size : kKeyBlock; /* divides the page */
  const float* q = qkv + (uint64_t(i) * (n_heads + 2 * n_kv_heads) + head) * head_dim;
  float* __restrict__ acc = out + (uint64_t(i) * n_heads + head) * head_dim;
  const float scale = 1.0f / sqrtf(float(head_dim));
  float max = -INFINITY, sum = 0.0f;
  for (uint32_t d = 0; d < head_dim; ++d) acc[d] = 0.0f;
  for (uint32_t first = 0; first < length; first += block) {
    const uint64_t offset = cache_offset(tables, set.token_row[i], first, kv_head, n_kv_heads, head_dim);
    const uint32_t n = length - first < block ? length - first : block;
    float score[kKeyBlock], next = max;
    for (uint32_t j = 0; j < n; ++j) {
      const float* k = k_cache + offset + j * head_dim;
      float dot = 0.0f;
#pragma omp simd reduction(+ : dot)
      for (uint32_t d = 0; d < head_dim; ++d) dot += q[d] * k[d];
      score[j] = dot * scale;
      next = score[j] > next ? score[j] : next;
    }
    const float shrink = expf(max - next);
    max = next;
    sum *= shrink;
    for (uint32_t d = 0; d < head_dim; ++d) acc[d] *= shrink;
    for (uint32_t j = 0; j < n; ++j) {
      const float weight = expf(score[j] - max);
      const float* v = v_cache + offset + j * head_dim;
      sum += weight;
      for (uint32_t d = 0; d < head_dim; ++d) acc[d] += weight * v[d];
    }
  }
  for (uint32_t d = 0; d < head_dim; ++d) acc[d] /= sum;
}

#else

constexpr uint32_t kDecodeThreads = 128; /* also the keys of one tile */
constexpr uint32_t kMinSplit = 64;       /* a split shorter than this is not worth a block */

/* Keys that each of at most n_splits blocks takes of a row of `length` keys. */
__device__ __forceinline__ uint32_t split_keys(uint32_t length, uint32_t n_splits) {
  const uint32_t keys = ((length + n_splits - 1) / n_splits + 15) / 16 * 16;
  return keys < kMinSplit ? kMinSplit : keys;
}

/* Shared memory of a decode block. */
template <int HeadDim, int Group>
struct DecodeScratch {
  float q[Group][HeadDim]; /* scaled, in log2 units */
  float weights[Group][kDecodeThreads];
  uint64_t offsets[kDecodeThreads]; /* of the tile's keys in the cache */
  float parts[kDecodeThreads][8];
  float of_warp[Group][kDecodeThreads / 32];
};

/* A thread's share of a decode block's work on Group query heads of one key head. Scores: one key a thread.
 * Values: 8 of HeadDim elements, of every kParts-th key. */
template <typename Half, int HeadDim, int Group>
struct DecodeShare {
  static constexpr uint32_t kChunks = HeadDim / 8;
  static constexpr uint32_t kParts = kDecodeThreads / kChunks;
  using Scratch = DecodeScratch<HeadDim, Group>;

  float acc[Group][8], max[Group], sum[Group]; /* max: of the block's keys; sum: of this thread's */

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int g = 0; g < Group; ++g) {
      max[g] = -INFINITY;
      sum[g] = 0.0f;
#pragma unroll
      for (int e = 0; e < 8; ++e) acc[g][e] = 0.0f;
    }
  }

  /* `offset` is where the thread's key lies in the cache. */
  __device__ __forceinline__ void score(Scratch& scratch, const Half* k_cache, uint64_t offset, float (&score)[Group]) {
    scratch.offsets[threadIdx.x] = offset;
#pragma unroll
    for (int g = 0; g < Group; ++g) score[g] = 0.0f;
#pragma unroll 8
    for (uint32_t c = 0; c < kChunks; ++c) {
      float k[8];
      load8(k_cache + offset + c * 8, k);
#pragma unroll
      for (int g = 0; g < Group; ++g)
#pragma unroll
        for (int e = 0; e < 8; ++e) score[g] += scratch.q[g][c * 8 + e] * k[e];
    }
  }

  /* Scores to weights, relative to the new maximum; what was summed so far shrinks to it. A tile has at least
   * one key, so the maximum is finite. */
  __device__ __forceinline__ void weigh(Scratch& scratch, const float (&score)[Group]) {
#pragma unroll
    for (int g = 0; g < Group; ++g) {
      const float of_warp = warp_max(score[g]);
      if (threadIdx.x % 32 == 0) scratch.of_warp[g][threadIdx.x / 32] = of_warp;
    }
    __syncthreads();
#pragma unroll
    for (int g = 0; g < Group; ++g) {
      float next = max[g];
#pragma unroll
      for (uint32_t w = 0; w < kDecodeThreads / 32; ++w) next = fmaxf(next, scratch.of_warp[g][w]);
      const float shrink = exp2f(max[g] - next), weight = exp2f(score[g] - next);
      max[g] = next;
      sum[g] = sum[g] * shrink + weight;
      scratch.weights[g][threadIdx.x] = weight;
#pragma unroll
      for (int e = 0; e < 8; ++e) acc[g][e] *= shrink;
    }
    __syncthreads();
  }

  __device__ __forceinline__ void add_values(const Scratch& scratch, const Half* v_cache, uint32_t n_keys) {
    if (threadIdx.x >= kParts * kChunks) return; /* HeadDim 48, 80, 96, 112: not every thread has a chunk */
#pragma unroll 4
    for (uint32_t j = threadIdx.x / kChunks; j < n_keys; j += kParts) {
      float v[8];
      load8(v_cache + scratch.offsets[j] + threadIdx.x % kChunks * 8, v);
#pragma unroll
      for (int g = 0; g < Group; ++g)
#pragma unroll
        for (int e = 0; e < 8; ++e) acc[g][e] += scratch.weights[g][j] * v[e];
    }
  }

  /* Sums the block's shares of query g into target [HeadDim + 2]. */
  __device__ __forceinline__ void store(Scratch& scratch, int g, float* target) {
    const uint32_t tid = threadIdx.x;
    const float of_warp = warp_sum(sum[g]);
    if (tid % 32 == 0) scratch.of_warp[g][tid / 32] = of_warp;
    store8(scratch.parts[tid], acc[g]);
    __syncthreads();
    float total = 0.0f;
    if (tid < HeadDim) {
      for (uint32_t part = 0; part < kParts; ++part) total += scratch.parts[part * kChunks + tid / 8][tid % 8];
      target[tid] = total;
    }
    if (tid == 0) {
      total = 0.0f;
      for (uint32_t w = 0; w < kDecodeThreads / 32; ++w) total += scratch.of_warp[g][w];
      target[HeadDim] = max[g];
      target[HeadDim + 1] = total;
    }
    __syncthreads();
  }
};

/* grid (lanes, n_kv_heads * ceil(ratio / Group), n_splits), block (kDecodeThreads), ratio = n_heads /
 * n_kv_heads. A block serves up to Group query heads of one key head; Group = ratio reads each key once.
 *
 *   partial   [lanes][n_heads][n_splits][HeadDim + 2] fp32: unnormalised output, maximum (log2 units), sum
 */
template <typename Half, int HeadDim, int Group>
__global__ void __launch_bounds__(kDecodeThreads)
    attention_decode_kernel(struct blink_step_set set, struct blink_tables tables, const Half* qkv, const Half* k_cache,
                            const Half* v_cache, float* partial, uint32_t n_heads, uint32_t n_kv_heads) {
  __shared__ __align__(16) DecodeScratch<HeadDim, Group> scratch;
  const uint32_t lane = blockIdx.x, tid = threadIdx.x;
  if (lane >= set.head->n_lanes) return;
  const uint32_t i = set.lane_last[lane], row = set.token_row[i], length = set.token_position[i] + 1;
  const uint32_t ratio = n_heads / n_kv_heads, groups = (ratio + Group - 1) / Group;
  const uint32_t kv_head = blockIdx.y / groups, member = blockIdx.y % groups * Group;
  const uint32_t head = kv_head * ratio + member, n_queries = min(uint32_t(Group), ratio - member);
  const uint32_t keys = split_keys(length, gridDim.z), begin = blockIdx.z * keys;
  if (begin >= length) return;
  const uint32_t end = min(length, begin + keys);

  const Half* queries = qkv + (uint64_t(i) * (n_heads + 2 * n_kv_heads) + head) * HeadDim;
  const float scale = kLog2E / sqrtf(float(HeadDim));
  for (uint32_t e = tid; e < Group * HeadDim; e += kDecodeThreads)
    scratch.q[e / HeadDim][e % HeadDim] = e < n_queries * HeadDim ? to_float(queries[e]) * scale : 0.0f;
  __syncthreads();

  DecodeShare<Half, HeadDim, Group> share;
  share.clear();
  for (uint32_t tile = begin; tile < end; tile += kDecodeThreads) {
    float score[Group];
#pragma unroll
    for (int g = 0; g < Group; ++g) score[g] = -INFINITY;
    const uint32_t n_tile = min(kDecodeThreads, end - tile);
    if (tid < n_tile)
      share.score(scratch, k_cache, cache_offset(tables, row, tile + tid, kv_head, n_kv_heads, HeadDim), score);
    share.weigh(scratch, score);
    share.add_values(scratch, v_cache, n_tile);
    __syncthreads();
  }
#pragma unroll
  for (int g = 0; g < Group; ++g)
    if (uint32_t(g) < n_queries)
      share.store(scratch, g,
                  partial + ((uint64_t(lane) * n_heads + head + g) * gridDim.z + blockIdx.z) * (HeadDim + 2));
}

/* grid (lanes, n_heads), block (HeadDim). n_splits is attention_decode_kernel's gridDim.z. */
template <typename Half, int HeadDim>
__global__ void attention_combine_kernel(struct blink_step_set set, const float* partial, Half* out, uint32_t n_heads,
                                         uint32_t n_splits) {
  const uint32_t lane = blockIdx.x, head = blockIdx.y, d = threadIdx.x;
  if (lane >= set.head->n_lanes) return;
  const uint32_t i = set.lane_last[lane], length = set.token_position[i] + 1;
  const uint32_t keys = split_keys(length, n_splits), used = (length + keys - 1) / keys;
  const float* source = partial + (uint64_t(lane) * n_heads + head) * n_splits * (HeadDim + 2);
  float max = -INFINITY, sum = 0.0f, value = 0.0f;
  for (uint32_t s = 0; s < used; ++s) max = fmaxf(max, source[s * (HeadDim + 2) + HeadDim]);
  for (uint32_t s = 0; s < used; ++s) {
    const float* part = source + s * (HeadDim + 2);
    const float weight = exp2f(part[HeadDim] - max);
    value += weight * part[d];
    sum += weight * part[HeadDim + 1];
  }
  from_float(value / sum, out + (uint64_t(i) * n_heads + head) * HeadDim + d);
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_ATTENTION_H */
