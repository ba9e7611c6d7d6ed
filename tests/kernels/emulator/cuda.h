/* Enough of CUDA to run kernels on the CPU, one block at a time, or a cluster's or all of a grid's blocks in turns.
 *
 * Threads run in an order that changes all the time, and warps run ahead of each other (threads.h): a missing barrier
 * shows as a wrong result. A collective that not all lanes of a warp reach, or that reads a lane that is not there,
 * ends the process with a message. Dynamic shared memory and the upper ends of stacks are full of NaNs at first, and
 * what the kernel before writes until that has ended; static shared memory holds what the last block left, and blocks
 * that run in turns may not use it. Built with UBSan, which checks alignment and array bounds.
 */
#ifndef BLINK_EMULATOR_CUDA_H
#define BLINK_EMULATOR_CUDA_H

#include "threads.h"

#define __CUDACC__ 1
#define __global__ inline /* several files include a kernel that is no template */
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static
#define __maxnreg__(...)
#define __grid_constant__

inline dim3 blockDim, gridDim;
#define threadIdx (emulator::current->index)
#define blockIdx (emulator::block->index)

/* kernel<<<grid, n_threads>>>(), with all blocks in turns if they wait for each other, or those of a cluster: a row of
 * the grid, or two neighbours. */
enum Company { kAlone, kClusters, kPairs, kGrid };
inline void launch(dim3 grid, uint32_t n_threads, std::function<void()> kernel, Company company = kAlone) {
  emulator::body = std::move(kernel);
  gridDim = grid;
  blockDim = {n_threads};
  emulator::cluster_blocks = company == kPairs ? 2 : grid.x;
  const bool are_clusters = company == kClusters || company == kPairs;
  std::vector<dim3> indices;
  for (uint32_t z = 0; z < grid.z; ++z)
    for (uint32_t y = 0; y < grid.y; ++y)
      for (uint32_t x = 0; x < grid.x; ++x) {
        indices.push_back({x, y, z});
        if (company == kGrid || (are_clusters && (x + 1) % emulator::cluster_blocks)) continue;
        emulator::run_blocks(indices, n_threads, are_clusters && indices.size() > 1);
        indices.clear();
      }
  if (company == kGrid) emulator::run_blocks(indices, n_threads, false);
}

inline void __syncthreads() {
  emulator::barrier(false);
}
inline int __syncthreads_count(int predicate) {
  return emulator::barrier(predicate != 0);
}
inline void __syncwarp() {
  emulator::exchange(0);
}

template <typename T>
T __shfl_sync(uint32_t, T x, int lane) {
  return emulator::exchange(x).template get<T>(lane);
}
template <typename T>
T __shfl_xor_sync(uint32_t, T x, int mask) {
  return emulator::exchange(x).template get<T>(emulator::this_lane() ^ mask);
}
template <typename T>
T __shfl_up_sync(uint32_t, T x, int delta) {
  const emulator::Lanes& lanes = emulator::exchange(x);
  return int(emulator::this_lane()) < delta ? x : lanes.template get<T>(emulator::this_lane() - delta);
}
inline uint32_t __ballot_sync(uint32_t, bool predicate) {
  const emulator::Lanes& lanes = emulator::exchange(predicate);
  uint32_t votes = 0;
  for (uint32_t lane = 0; lane < emulator::kWarp; ++lane)
    if (lanes.present >> lane & 1 && lanes.get<bool>(lane)) votes |= 1u << lane;
  return votes;
}
/* Over the lanes that take part. */
template <typename Pick>
uint32_t reduce_lanes(uint32_t x, const Pick& pick) {
  const emulator::Lanes& lanes = emulator::exchange(x);
  for (uint32_t lane = 0; lane < emulator::kWarp; ++lane)
    if (lanes.present >> lane & 1) x = pick(x, lanes.get<uint32_t>(lane));
  return x;
}
inline uint32_t __reduce_max_sync(uint32_t, uint32_t x) {
  return reduce_lanes(x, [](uint32_t a, uint32_t b) { return std::max(a, b); });
}
inline uint32_t __reduce_or_sync(uint32_t, uint32_t x) {
  return reduce_lanes(x, [](uint32_t a, uint32_t b) { return a | b; });
}
inline float rsqrtf(float x) {
  return 1.0f / sqrtf(x);
}
inline uint32_t __float_as_uint(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}
inline float __uint_as_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}
/* The four bytes of (y, x) that the digits of `selector` name. */
inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t selector) {
  const uint64_t bytes = uint64_t(y) << 32 | x;
  uint32_t result = 0;
  for (uint32_t i = 0; i < 4; ++i) result |= uint32_t(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  return result;
}
inline int __ffs(uint32_t x) {
  return __builtin_ffs(int(x));
}

inline int64_t __float2ll_rn(float x) {
  return int64_t(std::nearbyint(x)); /* the instruction saturates, which no test needs */
}

inline int __popc(uint32_t x) {
  return __builtin_popcount(x);
}

template <typename T>
T atomicAdd(T* p, T x) {
  const T before = *p;
  *p += x;
  return before;
}
inline uint32_t atomicOr(uint32_t* p, uint32_t x) {
  const uint32_t before = *p;
  *p |= x;
  return before;
}

inline uint32_t atomicAnd(uint32_t* p, uint32_t x) {
  const uint32_t before = *p;
  *p &= x;
  return before;
}

struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(8) float2 {
  float x, y;
};
inline float2 make_float2(float x, float y) {
  return {x, y};
}
struct alignas(16) float4 {
  float x, y, z, w;
};
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
  return {x, y, z, w};
}
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
inline float __fdividef(float x, float y) {
  return x / y;
}
using std::max;
using std::min;

#endif /* BLINK_EMULATOR_CUDA_H */
