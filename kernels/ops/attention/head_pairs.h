/* Head pairs: a head of one token in a warp, normed and rotated. Maths and CPU reference are those of rope.h. */
#ifndef BLINK_OPS_ATTENTION_HEAD_PAIRS_H
#define BLINK_OPS_ATTENTION_HEAD_PAIRS_H

#include "kernels/primitives/ll_protocol.h"
#include "kv_tile.h"
#include "rope.h"

#ifdef __CUDACC__

namespace blink {

/* A head in a warp: of each round of 128 dimensions a lane has d, d + 1 and their partners for the rotation. */
template <typename Half, int HeadDim>
struct HeadPairs {
  static constexpr uint32_t kRounds = (HeadDim + 127) / 128;
  uint32_t low[kRounds] = {}, high[kRounds] = {};

  static __device__ __forceinline__ uint32_t d(uint32_t round) { return threadIdx.x % 32 * 2 + 64 * round; }
  static __device__ __forceinline__ bool used(uint32_t round) { return d(round) < HeadDim / 2; }

  __device__ __forceinline__ void load(const Half* x) {
#pragma unroll
    for (uint32_t j = 0; j < kRounds; ++j) {
      if (!used(j)) continue;
      low[j] = *reinterpret_cast<const uint32_t*>(x + d(j));
      high[j] = *reinterpret_cast<const uint32_t*>(x + d(j) + HeadDim / 2);
    }
  }
  /* Waits for values that another block writes while this runs (ll_protocol.h). */
  __device__ __forceinline__ void await(const Half* x) {
#pragma unroll
    for (uint32_t j = 0; j < kRounds; ++j) {
      if (!used(j)) continue;
      const uint32_t* words = reinterpret_cast<const uint32_t*>(x + d(j));
      const uint2 raw = await_words(words, words + HeadDim / 4);
      low[j] = raw.x, high[j] = raw.y;
    }
  }
  __device__ __forceinline__ void store(Half* to) const {
#pragma unroll
    for (uint32_t j = 0; j < kRounds; ++j) {
      if (!used(j)) continue;
      *reinterpret_cast<uint32_t*>(to + d(j)) = low[j];
      *reinterpret_cast<uint32_t*>(to + d(j) + HeadDim / 2) = high[j];
    }
  }
  /* A query, for keys of `Cache`; AsMatrix, in the order in which kv_tile.h has its matrices. */
  template <typename Cache, bool AsMatrix = false>
  __device__ __forceinline__ void store_query(typename KvElement<Cache>::Half* to) const {
    if constexpr (!KvElement<Cache>::kFp8) {
      store(to);
    } else {
#pragma unroll
      for (uint32_t j = 0; j < kRounds; ++j) {
        if (!used(j)) continue;
        float a[2], b[2];
        unpack_round(j, a, b);
        const auto place = [](uint32_t d) { return AsMatrix ? TileDims<Cache>::matrix_place(d) : d; };
        *reinterpret_cast<uint32_t*>(to + place(d(j))) = pack<__half>(within_float16(a[0]), within_float16(a[1]));
        *reinterpret_cast<uint32_t*>(to + place(d(j) + HeadDim / 2)) =
            pack<__half>(within_float16(b[0]), within_float16(b[1]));
      }
    }
  }
  /* A key or a value to a cache. */
  __device__ __forceinline__ void store_cached(Half* cache, float) const { store(cache); }
  __device__ __forceinline__ void store_cached(Fp8* cache, float scale) const {
#pragma unroll
    for (uint32_t j = 0; j < kRounds; ++j)
      if (used(j)) put_fp8(cache, j, fp8_round(j, 1.0f / scale));
  }
  /* A key or a value: to `cache`, unless it is null, and to `copy` what a cache holds of it, as attention multiplies
   * it. */
  __device__ __forceinline__ void store_cached(Half* cache, Half* copy, float) const {
    store(copy);
    if (cache) store(cache);
  }
  __device__ __forceinline__ void store_cached(Fp8* cache, __half* copy, float scale) const {
    const float by = 1.0f / scale;
#pragma unroll
    for (uint32_t j = 0; j < kRounds; ++j) {
      if (!used(j)) continue;
      const uint32_t word = fp8_round(j, by);
      uint32_t first, second;
      to_float16s(word, first, second);
      *reinterpret_cast<uint32_t*>(copy + d(j)) = first;
      *reinterpret_cast<uint32_t*>(copy + d(j) + HeadDim / 2) = second;
      if (cache) put_fp8(cache, j, word);
    }
  }
  static __device__ __forceinline__ void unpack(uint32_t raw, float (&x)[2]) {
    const Half* halves = reinterpret_cast<const Half*>(&raw);
    x[0] = to_float(halves[0]), x[1] = to_float(halves[1]);
  }
  /* The pairs of a round, as numbers. */
  __device__ __forceinline__ void unpack_round(uint32_t j, float (&a)[2], float (&b)[2]) const {
    unpack(low[j], a), unpack(high[j], b);
  }
  __device__ __forceinline__ void add(const HeadPairs& bias) {
#pragma unroll
    for (uint32_t j = 0; j < kRounds; ++j) {
      float a[2], b[2];
      add_round(j, &bias, a, b);
      low[j] = pack<Half>(a[0], a[1]), high[j] = pack<Half>(b[0], b[1]);
    }
  }
  /* Plus `bias` unless it is null, normed by `norm` if `normed`, and turned by the (cos, sin) of d and d + 1. What
   * comes between is not rounded. */
  __device__ __forceinline__ void rotate(bool normed, const HeadPairs& norm, float eps, const float4 (&by)[kRounds],
                                         const HeadPairs* bias = nullptr) {
    float a[kRounds][2], b[kRounds][2];
#pragma unroll
    for (uint32_t j = 0; j < kRounds; ++j) add_round(j, bias, a[j], b[j]);
    if (normed) {
      const auto squares = [&](uint32_t j) {
        return a[j][0] * a[j][0] + a[j][1] * a[j][1] + (b[j][0] * b[j][0] + b[j][1] * b[j][1]);
      };
      float sum = squares(0);
#pragma unroll
      for (uint32_t j = 1; j < kRounds; ++j) sum += squares(j);
      const float scale = 1.0f / sqrtf(warp_sum(sum) / float(HeadDim) + eps);
#pragma unroll
      for (uint32_t j = 0; j < kRounds; ++j) {
        float wa[2], wb[2];
        norm.unpack_round(j, wa, wb);
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i) a[j][i] *= scale * wa[i], b[j][i] *= scale * wb[i];
      }
    }
#pragma unroll
    for (uint32_t j = 0; j < kRounds; ++j) {
      turn(a[j][0], b[j][0], by[j].x, by[j].y);
      turn(a[j][1], b[j][1], by[j].z, by[j].w);
      low[j] = pack<Half>(a[j][0], a[j][1]), high[j] = pack<Half>(b[j][0], b[j][1]);
    }
  }

 private:
  /* The pairs of a round times `by` in fp8. */
  __device__ __forceinline__ uint32_t fp8_round(uint32_t j, float by) const {
    float a[2], b[2];
    unpack_round(j, a, b);
    return to_e4m3(a[0] * by, a[1] * by, b[0] * by, b[1] * by);
  }
  static __device__ __forceinline__ void put_fp8(Fp8* cache, uint32_t j, uint32_t word) {
    *reinterpret_cast<unsigned short*>(cache + d(j)) = static_cast<unsigned short>(word);
    *reinterpret_cast<unsigned short*>(cache + d(j) + HeadDim / 2) = static_cast<unsigned short>(word >> 16);
  }
  __device__ __forceinline__ void add_round(uint32_t j, const HeadPairs* bias, float (&a)[2], float (&b)[2]) const {
    unpack_round(j, a, b);
    if (!bias) return;
    float more[2], of_partner[2];
    bias->unpack_round(j, more, of_partner);
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) a[i] += more[i], b[i] += of_partner[i];
  }
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_ATTENTION_HEAD_PAIRS_H */
