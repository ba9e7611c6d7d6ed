/* What a warpgroup of flash attention (flash_attention_sm90.h) keeps in registers: scores, weights, output. */
#ifndef BLINK_OPS_ATTENTION_FLASH_ACCUMULATORS_SM90_H
#define BLINK_OPS_ATTENTION_FLASH_ACCUMULATORS_SM90_H

#include "kv_element.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kFlashKeys = 128;  /* of a tile */
constexpr uint32_t kFlashAtom = 1024; /* bytes: 8 rows of 64 elements, as wgmma_sm90.h has operands */

/* A warpgroup's 64 rows: a thread has rows r and r + 8 of its warp's 16. */
template <typename Half, int HeadDim>
struct FlashAccumulators {
  float out[HeadDim / 2];
  float s[kFlashKeys / 2];         /* scores, then weights */
  uint32_t p[kFlashKeys / 16][4];  /* the weights of the tile before, as an operand */
  float max[2], sum[2], shrink[2]; /* max: of the scores, not yet scaled */

  __device__ __forceinline__ void start() {
#pragma unroll
    for (int i = 0; i < HeadDim / 2; ++i) out[i] = 0.0f;
#pragma unroll
    for (int h = 0; h < 2; ++h) max[h] = -INFINITY, sum[h] = 0.0f;
  }

  /* s = q k. */
  __device__ __forceinline__ void multiply_keys(uint64_t q, uint64_t k) {
#pragma unroll
    for (uint32_t d = 0; d < HeadDim / 16; ++d)
      wgmma(s, advance(q, d / 4 * 64 * 128 + d % 4 * 32), advance(k, d / 4 * kFlashAtom + d % 4 * 32), d != 0, Half());
  }

  /* out += p v. */
  __device__ __forceinline__ void multiply_values(uint64_t v) {
#pragma unroll
    for (uint32_t j = 0; j < kFlashKeys / 16; ++j)
      wgmma(out, p[j], advance(v, j * 2 * (HeadDim / 64) * kFlashAtom), Half());
  }

  /* No weight for keys beyond `last`, of key first, first + 1, first + 8, .. */
  __device__ __forceinline__ void mask(const int32_t (&last)[2], int32_t first) {
#pragma unroll
    for (int i = 0; i < int(kFlashKeys) / 2; ++i)
      if (first + i / 4 * 8 + i % 2 > last[i / 2 % 2]) s[i] = -INFINITY;
  }

  /* A score times this is the exponent of two of its weight. `key_scale`: of the keys. */
  static __device__ __forceinline__ float score_scale(float key_scale) {
    return kLog2E / sqrtf(float(HeadDim)) * key_scale;
  }

  /* Scores to weights. */
  __device__ __forceinline__ void softmax(float key_scale) {
    const float scale = score_scale(key_scale);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float part[2] = {max[h], max[h]}; /* two chains: each step waits for the one before */
#pragma unroll
      for (int i = 0; i < int(kFlashKeys) / 4; ++i) part[i % 2] = fmaxf(part[i % 2], s[i / 2 * 4 + 2 * h + i % 2]);
      float next = fmaxf(part[0], part[1]);
      next = fmaxf(next, __shfl_xor_sync(0xffffffffu, next, 1));
      next = fmaxf(next, __shfl_xor_sync(0xffffffffu, next, 2));
      const float base = next * scale;
      shrink[h] = exp2_fast(max[h] * scale - base);
      max[h] = next;
      part[0] = sum[h] * shrink[h], part[1] = 0.0f;
#pragma unroll
      for (int i = 0; i < int(kFlashKeys) / 4; ++i) {
        float& x = s[i / 2 * 4 + 2 * h + i % 2];
        x = exp2_fast(x * scale - base);
        part[i % 2] += x;
      }
      sum[h] = part[0] + part[1];
    }
  }

  /* Lets row h have one more score, which is no key's. One of the four threads of the row counts it. */
  __device__ __forceinline__ void add_sink(int h, float sink, float key_scale) {
    if (threadIdx.x % 4 == 0) sum[h] += exp2f(sink * kLog2E - max[h] * score_scale(key_scale));
  }

  __device__ __forceinline__ void rescale() {
#pragma unroll
    for (int i = 0; i < HeadDim / 2; ++i) out[i] *= shrink[i / 2 % 2];
  }

  __device__ __forceinline__ void pack_weights() {
#pragma unroll
    for (int j = 0; j < int(kFlashKeys) / 16; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) p[j][i] = pack<Half>(s[8 * j + 2 * i], s[8 * j + 2 * i + 1]);
  }

  /* Row h of the thread to target[h], or nowhere. The four threads of a row exchange words, so that each stores 16
   * bytes. `scale`: of the values. */
  template <typename Out>
  __device__ __forceinline__ void store(Out* const (&target)[2], float scale) {
    const uint32_t c = threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float total = sum[h] + __shfl_xor_sync(0xffffffffu, sum[h], 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      const float factor = scale / total;
#pragma unroll
      for (int g = 0; g < HeadDim / 32; ++g) {
        uint32_t w[4]; /* of columns 32 g + 8 i */
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = (4 * g + i) * 4 + 2 * h;
          w[i] = pack<Out>(out[at] * factor, out[at + 1] * factor);
        }
        exchange(w, c);
        if (target[h]) *reinterpret_cast<uint4*>(target[h] + 32 * g + 8 * c) = make_uint4(w[0], w[1], w[2], w[3]);
      }
    }
  }

  /* Transposes the 4 x 4 words of four neighbours. */
  static __device__ __forceinline__ void exchange(uint32_t (&w)[4], uint32_t c) {
#pragma unroll
    for (int bit = 1; bit < 4; bit *= 2)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (i & bit) continue;
        const bool upper = c & bit;
        const uint32_t other = __shfl_xor_sync(0xffffffffu, upper ? w[i] : w[i | bit], bit);
        if (upper)
          w[i] = other;
        else
          w[i | bit] = other;
      }
  }
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_ATTENTION_FLASH_ACCUMULATORS_SM90_H */
