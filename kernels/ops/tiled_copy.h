/* What tiled products (linear_tiled.h) need beyond ptx.h, warpgroup.h and wide_copy.h: copies to both blocks of a pair,
 * and copies from shared memory (PTX manual, cp.async.bulk.tensor, cp.reduce.async.bulk.tensor).
 */
#ifndef BLINK_OPS_TILED_COPY_H
#define BLINK_OPS_TILED_COPY_H

namespace blink {

__device__ __forceinline__ uint64_t evict_normal() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/* Copies the box at (x, y, z, w) to where `to_shared` lies in either block of a cluster of two, and counts its bytes at
 * either's `barrier`. */
__device__ __forceinline__ void copy_box_to_pair(void* to_shared, const BoxMap& map, uint32_t x, uint32_t y, uint32_t z,
                                                 uint32_t w, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(shared_address(to_shared)),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(shared_address(barrier)), "h"(static_cast<unsigned short>(3))
      : "memory");
}

/* Arrives at the barrier that lies in block `rank` of the cluster where `barrier` lies in this one. */
__device__ __forceinline__ void barrier_arrive_at(uint64_t* barrier, uint32_t rank) {
  asm volatile(
      "{ .reg .b32 address; mapa.shared::cluster.u32 address, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [address]; }" ::"r"(shared_address(barrier)),
      "r"(rank)
      : "memory");
}

/* Adds a box of fp32 from shared memory; stores one of halves. What lies outside the tensor is dropped. */
__device__ __forceinline__ void add_box(const BoxMap& map, const void* from_shared, uint32_t x, uint32_t y) {
  asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
               "r"(x), "r"(y), "r"(shared_address(from_shared))
               : "memory");
}
__device__ __forceinline__ void store_box(const BoxMap& map, const void* from_shared, uint32_t x, uint32_t y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(x),
               "r"(y), "r"(shared_address(from_shared))
               : "memory");
}
__device__ __forceinline__ void stores_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/* Until what this thread has committed has been read from shared memory, or has been written. */
__device__ __forceinline__ void stores_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ __forceinline__ void stores_wait() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

}  // namespace blink

#endif /* BLINK_OPS_TILED_COPY_H */
