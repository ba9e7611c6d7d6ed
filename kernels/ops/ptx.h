/* The instructions that CUDA C++ has no function for in a header that NVRTC can include: memory-ordered
 * accesses, through which kernels of different graphs meet, the clock, and the tensor cores.
 */
#ifndef BLINK_OPS_PTX_H
#define BLINK_OPS_PTX_H

namespace blink {

/* Inline PTX and not `volatile`: a volatile load may hit a stale, non-coherent L1 line, and orders nothing
 * around it. */
__device__ __forceinline__ uint64_t load_acquire(const uint64_t* p) {
  unsigned long long value;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(p) : "memory");
  return value;
}

__device__ __forceinline__ void store_release(uint64_t* p, uint64_t value) {
  asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(p), "l"((unsigned long long)value) : "memory");
}

/* Adds 1 and returns the value before: everything the block wrote is visible to whoever observes the sum. */
__device__ __forceinline__ uint32_t arrive(uint32_t* counter) {
  uint32_t before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
  return before;
}

/* The same for who does not look back. */
__device__ __forceinline__ void announce(uint32_t* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

/* Adds, and says nothing of the order. */
__device__ __forceinline__ void add_relaxed(int64_t* to, int64_t value) {
  asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(to), "l"((long long)value) : "memory");
}

/* What others have written to L2, in no order with other accesses. */
__device__ __forceinline__ uint32_t load_relaxed32(const uint32_t* p) {
  uint32_t value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(p));
  return value;
}

__device__ __forceinline__ void store_relaxed32(uint32_t* p, uint32_t value) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}
__device__ __forceinline__ uint4 load_relaxed(const uint4* p) {
  uint4 value;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(p));
  return value;
}

__device__ __forceinline__ void store_relaxed(uint4* p, const uint4& value) {
  asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(value.x), "r"(value.y), "r"(value.z),
               "r"(value.w)
               : "memory");
}

/* What this thread wrote is visible to every kernel that starts after this one. */
__device__ __forceinline__ void publish() {
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

__device__ __forceinline__ void trap() {
  asm volatile("trap;");
}

__device__ __forceinline__ uint64_t global_ns() {
  unsigned long long value;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(value)::"memory");
  return value;
}

/* Programmatic dependent launch (PTX manual, griddepcontrol). A kernel may start while its predecessor runs:
 * it may load weights, which nothing writes, and must wait_for_predecessor() in every block before its first
 * access to anything else. The wait ends when the predecessor has ended and its writes are visible; since the
 * predecessor has waited likewise, so have all kernels before it (E7). */
__device__ __forceinline__ void wait_for_predecessor() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

/* The successor may start once every block has said so or ended. */
__device__ __forceinline__ void allow_successor() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/* 16 bytes of a weight, if `wanted`: read once, so they pass by L1. Not ld.nc, which ptxas moves behind
 * griddepcontrol.wait. L2 asks for 128 bytes at a time: a stream alone was measured 11 % slower at 256. */
__device__ __forceinline__ void load_weight(const void* p, bool wanted, uint4& value) {
  asm volatile(
      "{ .reg .pred wanted; setp.ne.u32 wanted, %5, 0;\n"
      "@wanted ld.global.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4]; }"
      : "+r"(value.x), "+r"(value.y), "+r"(value.z), "+r"(value.w)
      : "l"(p), "r"(uint32_t(wanted)));
}

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

/* Asks for the line of 128 bytes that p is in, to L2. */
__device__ __forceinline__ void prefetch_line(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

/* A thread's copies of words to shared memory, for which it waits with copied_words (PTX manual, cp.async). */
__device__ __forceinline__ void copy_word(uint32_t* to_shared, const uint32_t* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to_shared)), "l"(from) : "memory");
}
__device__ __forceinline__ void copied_words() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

/* Bulk copies (PTX manual, cp.async.bulk.tensor and mbarrier). A barrier in shared memory completes a phase when the
 * one arrival, barrier_expect's, and the bytes that it announced have come; phases alternate in parity. */
__device__ __forceinline__ void barrier_init(uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
}
/* By every thread that initialised barriers, before any copy uses them. */
__device__ __forceinline__ void barrier_init_done() {
  asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void barrier_expect(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void barrier_wait(uint64_t* barrier, uint32_t parity) {
  uint32_t complete;
  do {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(complete)
                 : "r"(shared_address(barrier)), "r"(parity)
                 : "memory");
  } while (!complete);
}
/* Whether it is complete, now. */
__device__ __forceinline__ bool barrier_test(uint64_t* barrier, uint32_t parity) {
  uint32_t complete;
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(complete)
               : "r"(shared_address(barrier)), "r"(parity)
               : "memory");
  return complete;
}
/* The same pointer, which the compiler does not compute anew at every use. Not for loads and stores: it no longer knows
 * that it points to shared memory. */
template <typename T>
__device__ __forceinline__ T* opaque(T* p) {
  asm volatile("" : "+l"(p));
  return p;
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

/* The same for the box at (0, row, 0, 0) of a tensor of four dimensions. */
__device__ __forceinline__ void copy_rows(void* to_shared, const void* map, uint32_t row, uint64_t* barrier) {
  asm volatile(
      "{ .reg .b64 policy; createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1, {%2, %3, %2, %2}], [%4], policy; }" ::"r"(shared_address(to_shared)),
      "l"(map), "r"(0), "r"(row), "r"(shared_address(barrier))
      : "memory");
}
__device__ __forceinline__ void prefetch_map(const void* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* Thread block clusters (PTX manual, barrier.cluster, mapa and st.async), along x. */
__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ uint32_t cluster_size() {
  uint32_t size;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
}
/* By all threads of a block. Orders no writes to memory but the initialisation of barriers: a release at cluster scope
 * would wait for every store. The wait is an acquire, which empties L1. */
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}
/* Stores `value` where block `rank` of the cluster has what this block has at `to`; that block's `barrier` counts the
 * 8 bytes, and who has waited for it sees them. The block has to be there: to have started, and not to end before. */
__device__ __forceinline__ void send(uint64_t* to, uint32_t rank, uint64_t value, uint64_t* barrier) {
  asm volatile(
      "{ .reg .b32 to, barrier; mapa.shared::cluster.u32 to, %0, %2; mapa.shared::cluster.u32 barrier, %1, %2;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [to], %3, [barrier]; }" ::"r"(shared_address(to)),
      "r"(shared_address(barrier)), "r"(rank), "l"(value)
      : "memory");
}

/* The same for many bytes, a multiple of 16, by a bulk copy. Whoever has written them calls bulk_writes_done before a
 * barrier that comes before the copy. */
__device__ __forceinline__ void bulk_writes_done() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void send_bulk(uint64_t* to, uint32_t rank, const uint64_t* from, uint32_t bytes,
                                          uint64_t* barrier) {
  asm volatile(
      "{ .reg .b32 to, barrier; mapa.shared::cluster.u32 to, %0, %2; mapa.shared::cluster.u32 barrier, %1, %2;\n"
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [to], [%3], %4, [barrier]; }" ::"r"(
          shared_address(to)),
      "r"(shared_address(barrier)), "r"(rank), "r"(shared_address(from)), "r"(bytes)
      : "memory");
}

/* The block's dynamic shared memory, aligned as bulk copies that swizzle need it. */
__device__ __forceinline__ uint32_t* dynamic_shared() {
  extern __shared__ __align__(1024) uint32_t words[];
  return words;
}

/* d += a b on tensor cores: a is 16 x 16, b 16 x 8, d 16 x 8 fp32. With r = lane / 4 and c = 2 (lane % 4), a
 * lane holds rows r and r + 8 of a at columns (c, c + 1), then the same at columns + 8; rows (c, c + 1), then
 * + 8, of b at column r; rows r, then r + 8, of d at columns (c, c + 1). */
__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, __nv_bfloat16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, __half) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Four 8 x 8 matrices; lane l passes the address of row l % 8 of matrix l / 8. A lane receives of each matrix
 * row lane / 4, columns (c, c + 1), or with `transposed` rows (c, c + 1) of column lane / 4. */
template <bool transposed>
__device__ __forceinline__ void load_matrices(uint32_t (&m)[4], const void* row) {
  const uint32_t address = shared_address(row);
  if (transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(address)
                 : "memory");
  }
}

}  // namespace blink

#include "warpgroup.h"
#include "wide_copy.h"
#include "tiled_copy.h"

#endif /* BLINK_OPS_PTX_H */
