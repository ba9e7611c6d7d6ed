/* Bulk copies of boxes of tensors by the tensor memory accelerator (PTX manual, cp.async.bulk.tensor and
 * cp.reduce.async.bulk.tensor): from global to shared memory, and back. Included by ptx.h. */
#ifndef BLINK_PRIMITIVES_TMA_SM90_H
#define BLINK_PRIMITIVES_TMA_SM90_H

namespace blink {

/* A CUtensorMap, by value. */
struct alignas(64) TensorMap {
  uint64_t opaque[16];
};

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

__device__ __forceinline__ uint64_t evict_normal() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ void prefetch_map(const void* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* Brings the map itself near, so that the first copy does not wait for it. */
__device__ __forceinline__ void prefetch_map(const BoxMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/* Copies the box at (x, y, z) of the tensor that `map` describes (a CUtensorMap) to a 128-byte aligned address. The
 * data are read once: evict_first. */
__device__ __forceinline__ void copy_box(void* to_shared, const void* map, uint32_t x, uint32_t y, uint32_t z,
                                         uint64_t* barrier) {
  asm volatile(
      "{ .reg .b64 policy; createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1, {%2, %3, %4}], [%5], policy; }" ::"r"(shared_address(to_shared)),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier))
      : "memory");
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

/* copy_box (ptx.h) of what other blocks read, too. */
__device__ __forceinline__ void copy_tile(void* to_shared, const void* map, uint32_t x, uint32_t y, uint32_t z,
                                          uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
          "r"(shared_address(to_shared)),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier))
      : "memory");
}

/* The same for the box at (0, row, 0, 0) of a tensor of four dimensions. */
__device__ __forceinline__ void copy_rows(void* to_shared, const void* map, uint32_t row, uint64_t* barrier) {
  asm volatile(
      "{ .reg .b64 policy; createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1, {%2, %3, %2, %2}], [%4], policy; }" ::"r"(shared_address(to_shared)),
      "l"(map), "r"(0), "r"(row), "r"(shared_address(barrier))
      : "memory");
}

/* The box at (0, a, b, c), which every block may read again. */
__device__ __forceinline__ void copy_box4(void* to_shared, const void* map, uint32_t a, uint32_t b, uint32_t c,
                                          uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];" ::"r"(shared_address(to_shared)),
      "l"(map), "r"(0u), "r"(a), "r"(b), "r"(c), "r"(shared_address(barrier))
      : "memory");
}

/* Copies neighbouring bytes, a multiple of 16 as both addresses are. */
__device__ __forceinline__ void copy_bytes(void* to_shared, const void* from, uint32_t bytes, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to_shared)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
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

#endif /* BLINK_PRIMITIVES_TMA_SM90_H */
