/* The instructions that CUDA C++ has no function for in a header that NVRTC can include: memory-ordered
 * accesses, through which kernels of different graphs communicate, the clock, and the tensor cores.
 */
#ifndef BLINK_PRIMITIVES_PTX_H
#define BLINK_PRIMITIVES_PTX_H

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

/* 16 bytes of a weight, if `wanted`: read once, so they pass by L1. Not ld.nc, which ptxas moves behind
 * griddepcontrol.wait. L2 asks for 128 bytes at a time: a stream alone was measured 11 % slower at 256. */
__device__ __forceinline__ void load_weight(const void* p, bool wanted, uint4& value) {
  asm volatile(
      "{ .reg .pred wanted; setp.ne.u32 wanted, %5, 0;\n"
      "@wanted ld.global.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4]; }"
      : "+r"(value.x), "+r"(value.y), "+r"(value.z), "+r"(value.w)
      : "l"(p), "r"(uint32_t(wanted)));
}

/* The same of a scale, which neighbours read, too. */
__device__ __forceinline__ void load_scale(const float* p, bool wanted, float& value) {
  asm volatile(
      "{ .reg .pred wanted; setp.ne.u32 wanted, %2, 0;\n"
      "@wanted ld.global.f32 %0, [%1]; }"
      : "+f"(value)
      : "l"(p), "r"(uint32_t(wanted)));
}

/* The same of other scales: a word, and a byte. */
__device__ __forceinline__ void load_word(const uint32_t* p, bool wanted, uint32_t& value) {
  asm volatile(
      "{ .reg .pred wanted; setp.ne.u32 wanted, %2, 0;\n"
      "@wanted ld.global.u32 %0, [%1]; }"
      : "+r"(value)
      : "l"(p), "r"(uint32_t(wanted)));
}
__device__ __forceinline__ void load_byte(const uint8_t* p, bool wanted, uint32_t& value) {
  asm volatile(
      "{ .reg .pred wanted; setp.ne.u32 wanted, %2, 0;\n"
      "@wanted ld.global.u8 %0, [%1]; }"
      : "+r"(value)
      : "l"(p), "r"(uint32_t(wanted)));
}

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

/* Asks for the line of 128 bytes that p is in, to L2. */
__device__ __forceinline__ void prefetch_line(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

/* Asks for neighbouring bytes, a multiple of 16 as their address is, to L2. */
__device__ __forceinline__ void prefetch_bytes(const void* p, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes) : "memory");
}

/* A thread's copies of words to shared memory, for which it waits with copied_words (PTX manual, cp.async). */
__device__ __forceinline__ void copy_word(uint32_t* to_shared, const uint32_t* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to_shared)), "l"(from) : "memory");
}
__device__ __forceinline__ void copied_words() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

/* 16 bytes of a weight to shared memory, or zeros unless `wanted`: past L1, as load_weight. */
__device__ __forceinline__ void copy_weight(uint4* to_shared, const void* from, bool wanted) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(to_shared)), "l"(from),
               "r"(wanted ? 16u : 0u)
               : "memory");
}
/* A thread's copies since its last call become a group. */
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Waits for all groups of this thread but the latest `Latest`. */
template <uint32_t Latest>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Latest) : "memory");
}

/* The same pointer, which the compiler does not compute anew at every use. Not for loads and stores: it no longer knows
 * that it points to shared memory. */
template <typename T>
__device__ __forceinline__ T* opaque(T* p) {
  asm volatile("" : "+l"(p));
  return p;
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

/* 16 bytes, those from `n` on as zero. */
__device__ __forceinline__ void copy_async(uint32_t to_shared, const void* from, uint32_t n) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to_shared), "l"(from), "r"(n) : "memory");
}

/* 8 bytes, those from `n` on as zero. */
__device__ __forceinline__ void copy_async_piece(uint32_t to_shared, const void* from, uint32_t n) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to_shared), "l"(from), "r"(n) : "memory");
}

/* 4 bytes. */
template <typename Word>
__device__ __forceinline__ void copy_async_word(Word* to_shared, const Word* from) {
  static_assert(sizeof(Word) == 4, "so much is copied");
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to_shared)), "l"(from) : "memory");
}

/* 4 bytes of scales, which L2 brings with their line of 128 bytes: their neighbours follow soon. */
__device__ __forceinline__ void copy_scales(uint32_t* to_shared, const uint32_t* from) {
  asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 4;" ::"r"(shared_address(to_shared)), "l"(from)
               : "memory");
}

/* *p += x, without waiting for the old value. */
__device__ __forceinline__ void add_to(float* p, float x) {
  asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(p), "f"(x) : "memory");
}

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/* Four elements of fp8 (e4m3), a in the lowest byte: the nearest, to even where two are as near, and the largest beyond
 * it. */
__device__ __forceinline__ uint32_t to_e4m3(float a, float b, float c, float d) {
  uint32_t word;
  asm("{ .reg .b16 low, high; cvt.rn.satfinite.e4m3x2.f32 low, %2, %1; cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high}; }"
      : "=r"(word)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return word;
}
/* Back, as two pairs of float16. */
__device__ __forceinline__ void to_float16s(uint32_t word, uint32_t& first, uint32_t& second) {
  asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.rn.f16x2.e4m3x2 %0, low; cvt.rn.f16x2.e4m3x2 %1, high; }"
      : "=r"(first), "=r"(second)
      : "r"(word));
}

/* A pair of float16; what is beyond them becomes the largest. */
__device__ __forceinline__ uint32_t pack_saturating(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.satfinite.f16x2.f32 %0, %2, %1;" : "=r"(pair) : "f"(low), "f"(high));
  return pair;
}

/* Byte i is what digit i of `selector` names: 0 to 3 a byte of `word`, 8 to 11 the sign of byte 0 to 3 in all bits. */
__device__ __forceinline__ uint32_t permute_bytes(uint32_t word, uint32_t selector) {
  uint32_t result;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(result) : "r"(word), "r"(selector));
  return result;
}

/* The same of two words: 4 to 7 name a byte of `high`. */
__device__ __forceinline__ uint32_t permute_bytes(uint32_t low, uint32_t high, uint32_t selector) {
  uint32_t result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(selector));
  return result;
}

/* (word & kept) | others, in one instruction: with two constants, ptxas takes two, and so `kept` is not one for it. */
__device__ __forceinline__ uint32_t keep_bits(uint32_t word, uint32_t kept, uint32_t others) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(word), "r"(kept), "r"(others));
  return result;
}

/* Adds one to `count` if a > b, in two instructions; for integers and without asm, ptxas takes three. */
__device__ __forceinline__ void count_greater(float& count, uint32_t a, uint32_t b) {
  asm("{ .reg .pred greater; setp.gt.u32 greater, %1, %2; @greater add.f32 %0, %0, 0f3f800000; }"
      : "+f"(count)
      : "r"(a), "r"(b));
}

/* Products of two pairs. */
__device__ __forceinline__ uint32_t multiply_pairs(uint32_t a, uint32_t b, __nv_bfloat16) {
  uint32_t product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}
__device__ __forceinline__ uint32_t multiply_pairs(uint32_t a, uint32_t b, __half) {
  uint32_t product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

/* Sums of two pairs. */
__device__ __forceinline__ uint32_t add_pairs(uint32_t a, uint32_t b, __nv_bfloat16) {
  uint32_t sum;
  asm("add.rn.bf16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
  return sum;
}
__device__ __forceinline__ uint32_t add_pairs(uint32_t a, uint32_t b, __half) {
  uint32_t sum;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
  return sum;
}

}  // namespace blink

#include "pdl_sm90.h"
#include "mbarrier_sm90.h"
#include "cluster_sm90.h"
#include "tma_sm90.h"
#include "wgmma_sm90.h"

#endif /* BLINK_PRIMITIVES_PTX_H */
