/* What every op shares: qualifiers, half-precision loads and stores, reductions, and the memory-ordered
 * accesses through which kernels of different graphs communicate. Header-only; valid for g++, nvcc and NVRTC (no
 * host header on the device side). */
#ifndef BLINK_PRIMITIVES_COMMON_H
#define BLINK_PRIMITIVES_COMMON_H

#include "kernels/step.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#ifndef BLINK_PTX /* tests run the kernels on the CPU with another */
#define BLINK_PTX "ptx.h"
#endif
#include BLINK_PTX
#define BLINK_HD __host__ __device__ __forceinline__
#ifdef __CUDACC_RTC__
#define INFINITY __int_as_float(0x7f800000) /* math.h's, which NVRTC does not have */
#endif
#else
#include <math.h>
#include <stddef.h>
#define BLINK_HD inline
#endif

namespace blink {

/* The finaliser of splitmix64: a bijection that spreads every input bit over the output. */
BLINK_HD uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

/* The page that holds `position` of `row`, and the element offset of a key or value in one layer's cache,
 * which is laid out [page][kv_head][page_size][head_dim]: one head's keys of a page are contiguous. */
BLINK_HD uint64_t cache_offset(const struct blink_tables& tables, uint32_t sequence, uint32_t position,
                               uint32_t kv_head, uint32_t n_kv_heads, uint32_t head_dim) {
  const uint64_t page =
      tables.block_table[uint64_t(sequence) * tables.pages_per_sequence + position / tables.page_size];
  return ((page * n_kv_heads + kv_head) * tables.page_size + position % tables.page_size) * head_dim;
}

/* The first position that a token at `position` attends to, where it sees `window` keys, its own included; 0 is none.
 */
BLINK_HD uint32_t first_seen(uint32_t position, uint32_t window) {
  return window != 0 && position >= window ? position + 1 - window : 0;
}

#ifdef __CUDACC__

constexpr float kLog2E = 1.4426950408889634f;

__device__ __forceinline__ float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ __forceinline__ float to_float(__half x) {
  return __half2float(x);
}
__device__ __forceinline__ void from_float(float x, __nv_bfloat16* out) {
  *out = __float2bfloat16_rn(x);
}
__device__ __forceinline__ void from_float(float x, __half* out) {
  *out = __float2half_rn(x);
}

/* 8 elements with one 16-byte access; `p` is 16-byte aligned. */
template <typename Half>
__device__ __forceinline__ void load8(const Half* p, float (&out)[8]) {
  const uint4 raw = *reinterpret_cast<const uint4*>(p);
  const Half* h = reinterpret_cast<const Half*>(&raw);
#pragma unroll
  for (int i = 0; i < 8; ++i) out[i] = to_float(h[i]);
}

template <typename Half>
__device__ __forceinline__ void store8(Half* p, const float (&in)[8]) {
  uint4 raw;
  Half* h = reinterpret_cast<Half*>(&raw);
#pragma unroll
  for (int i = 0; i < 8; ++i) from_float(in[i], h + i);
  *reinterpret_cast<uint4*>(p) = raw;
}

__device__ __forceinline__ void load8(const float* p, float (&out)[8]) {
  const float4 a = reinterpret_cast<const float4*>(p)[0], b = reinterpret_cast<const float4*>(p)[1];
  out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w, out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
}

__device__ __forceinline__ void store8(float* p, const float (&in)[8]) {
  reinterpret_cast<float4*>(p)[0] = make_float4(in[0], in[1], in[2], in[3]);
  reinterpret_cast<float4*>(p)[1] = make_float4(in[4], in[5], in[6], in[7]);
}

/* Two halves in a register, as the tensor cores take them. */
template <typename Half>
__device__ __forceinline__ uint32_t pack(float low, float high) {
  uint32_t packed;
  Half* h = reinterpret_cast<Half*>(&packed);
  from_float(low, h);
  from_float(high, h + 1);
  return packed;
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
}

__device__ __forceinline__ uint64_t warp_total(uint64_t x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
}

/* Sum over this lane and those below it. */
__device__ __forceinline__ uint64_t warp_scan(uint64_t x) {
#pragma unroll
  for (int offset = 1; offset < 32; offset <<= 1) {
    const uint64_t below = __shfl_up_sync(0xffffffffu, x, offset);
    if (threadIdx.x % 32 >= uint32_t(offset)) x += below;
  }
  return x;
}

__device__ __forceinline__ uint64_t warp_most(uint64_t x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) {
    const uint64_t other = __shfl_xor_sync(0xffffffffu, x, offset);
    x = other > x ? other : x;
  }
  return x;
}

/* The lane at which the warp's values, summed in order, exceed `rest`, which becomes what is left before that lane; 32
 * if they do not, and what is left after all of them. */
__device__ __forceinline__ uint32_t warp_find(uint64_t x, uint64_t& rest) {
  const uint64_t through = warp_scan(x);
  const uint32_t above = __ballot_sync(0xffffffffu, rest < through);
  const uint32_t lane = above ? __ffs(above) - 1 : 32;
  rest -= __shfl_sync(0xffffffffu, above ? through - x : through, int(min(lane, 31u)));
  return lane;
}

/* Sum over a block of whole warps, the same in every thread. `scratch` holds 32 floats of shared memory. */
__device__ __forceinline__ float block_sum(float x, float* scratch) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  x = warp_sum(x);
  __syncthreads(); /* the scratch of an earlier call may still be read */
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  return warp_sum(lane < blockDim.x / 32 ? scratch[lane] : 0.0f);
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_PRIMITIVES_COMMON_H */
