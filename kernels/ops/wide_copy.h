/* What the wide product (linear_wide.h) needs beyond ptx.h and warpgroup.h: boxes of four dimensions with a policy for
 * L2, and additions to memory (PTX manual, cp.async.bulk.tensor, createpolicy, red).
 */
#ifndef BLINK_OPS_WIDE_COPY_H
#define BLINK_OPS_WIDE_COPY_H

namespace blink {

using BoxMap = TensorMap; /* of four dimensions; a kernel takes it as a __grid_constant__ */

/* How long L2 keeps what a copy reads: weights are read once a step, activations by every block. */
__device__ __forceinline__ uint64_t evict_first() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ uint64_t evict_last() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/* Brings the map itself near, so that the first copy does not wait for it. */
__device__ __forceinline__ void prefetch_map(const BoxMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
/* Copies the box at (x, y, z, w), x the fastest dimension; what lies outside the tensor is zero. */
__device__ __forceinline__ void copy_box(void* to_shared, const BoxMap& map, uint32_t x, uint32_t y, uint32_t z,
                                         uint32_t w, uint64_t* barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(shared_address(to_shared)),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}

/* *p += x, without waiting for the old value. */
__device__ __forceinline__ void add_to(float* p, float x) {
  asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(p), "f"(x) : "memory");
}

}  // namespace blink

#endif /* BLINK_OPS_WIDE_COPY_H */
