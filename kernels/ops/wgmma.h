/* Warpgroup products (PTX manual, wgmma): 128 threads multiply a tile of 64 rows of A by N rows of B, both in shared
 * memory, into fp32 registers. What goes with them: asynchronous copies of single rows, fences, barriers that many
 * arrive at, and the transposing store of results.
 *
 * An operand's rows are 64 halves of k: 128 bytes, in groups of 8 rows at 1024-byte aligned addresses, in which 16
 * bytes at place c of row r lie at place c ^ r % 8 (the 128-byte swizzle, as tensor maps have it too).
 */
#ifndef BLINK_OPS_WGMMA_H
#define BLINK_OPS_WGMMA_H

#include "common.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kSwizzleBytes = 128; /* of a row */
constexpr uint32_t kWarpgroup = 128;    /* threads */
constexpr uint32_t kWgmmaK = 16;        /* of one instruction: 32 bytes of every row */

/* Where 16 bytes of a swizzled tile lie. */
__device__ __forceinline__ uint32_t swizzled(uint32_t row, uint32_t chunk) {
  return row * kSwizzleBytes + (chunk ^ row % 8) * 16;
}

/* A matrix descriptor of rows in swizzled groups that follow each other; `address` may be 32, 64 or 96 bytes into
 * the first row. */
__device__ __forceinline__ uint64_t wgmma_operand(uint32_t address) {
  constexpr uint64_t kGroupBytes = 8 * kSwizzleBytes, kSwizzle128 = 1;
  return (address & 0x3ffff) >> 4 | uint64_t(1) << 16 | (kGroupBytes >> 4) << 32 | kSwizzle128 << 62;
}

/* Before the first product of a batch: registers and generic accesses of this warpgroup come first. */
__device__ __forceinline__ void wgmma_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Until at most `Left` batches are under way. */
template <int Left>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Left) : "memory");
}
/* The compiler may not read accumulators before this: wgmma_wait does not name them. */
template <int N>
__device__ __forceinline__ void wgmma_settle(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

#define BLINK_REGISTERS_32                                                                                         \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29," \
  "%30,%31"
#define BLINK_REGISTERS_48 BLINK_REGISTERS_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define BLINK_REGISTERS_64 BLINK_REGISTERS_48 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define BLINK_REGISTERS_80 BLINK_REGISTERS_64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define BLINK_F8(d, i)                                                                                        \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define BLINK_F32(d, i) BLINK_F8(d, i), BLINK_F8(d, i + 8), BLINK_F8(d, i + 16), BLINK_F8(d, i + 24)
/* d is a function parameter; `p` %, a %, b % are the operands after its registers. */
#define BLINK_WGMMA(n, type, registers, p, a, b, ...)                                                       \
  asm volatile("{ .reg .pred add; setp.ne.u32 add, " p                                                      \
               ", 0;\n"                                                                                     \
               "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " {" registers "}, " a ", " b \
               ", add, 1, 1, 0, 0; }"                                                                       \
               : __VA_ARGS__                                                                                \
               : "r"(uint32_t(add)), "l"(w), "l"(x))
#define BLINK_WGMMA_SHAPES(Half, type)                                                                    \
  __device__ __forceinline__ void wgmma(float (&d)[32], uint64_t w, uint64_t x, bool add, Half) {         \
    BLINK_WGMMA("64", type, BLINK_REGISTERS_32, "%32", "%33", "%34", BLINK_F32(d, 0));                    \
  }                                                                                                       \
  __device__ __forceinline__ void wgmma(float (&d)[48], uint64_t w, uint64_t x, bool add, Half) {         \
    BLINK_WGMMA("96", type, BLINK_REGISTERS_48, "%48", "%49", "%50", BLINK_F32(d, 0), BLINK_F8(d, 32),    \
                BLINK_F8(d, 40));                                                                         \
  }                                                                                                       \
  __device__ __forceinline__ void wgmma(float (&d)[64], uint64_t w, uint64_t x, bool add, Half) {         \
    BLINK_WGMMA("128", type, BLINK_REGISTERS_64, "%64", "%65", "%66", BLINK_F32(d, 0), BLINK_F32(d, 32)); \
  }                                                                                                       \
  __device__ __forceinline__ void wgmma(float (&d)[80], uint64_t w, uint64_t x, bool add, Half) {         \
    BLINK_WGMMA("160", type, BLINK_REGISTERS_80, "%80", "%81", "%82", BLINK_F32(d, 0), BLINK_F32(d, 32),  \
                BLINK_F8(d, 64), BLINK_F8(d, 72));                                                        \
  }

/* d (+)= w x^T for 16 of k; d [2 * N / 4]: with r = lane / 4 and c = 2 (lane % 4), d[4 n + e] is row 16 (warp % 4) + r
 * + 8 (e / 2) of w and row 8 n + c + e % 2 of x. Asynchronous: see wgmma_wait. */
BLINK_WGMMA_SHAPES(__nv_bfloat16, "bf16")
BLINK_WGMMA_SHAPES(__half, "f16")

#undef BLINK_WGMMA_SHAPES
#undef BLINK_WGMMA
#undef BLINK_F32
#undef BLINK_F8
#undef BLINK_REGISTERS_80
#undef BLINK_REGISTERS_64
#undef BLINK_REGISTERS_48
#undef BLINK_REGISTERS_32

/* Registers of every thread of the warpgroup from here on. */
template <uint32_t N>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

/* What ordinary accesses wrote, to shared memory, comes before what wgmma reads and bulk copies write. */
__device__ __forceinline__ void fence_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* A barrier with `count` arrivals a phase. */
__device__ __forceinline__ void barrier_init(uint64_t* barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}

/* A CUtensorMap, by value. */
struct alignas(64) TensorMap {
  uint64_t opaque[16];
};

/* copy_box (ptx.h) of what others will read, too: it stays in L2 as long as other data. */
__device__ __forceinline__ void copy_tile(void* to_shared, const void* map, uint32_t x, uint32_t y, uint32_t z,
                                          uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
          "r"(shared_address(to_shared)),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier))
      : "memory");
}

/* 16 bytes, the last of them zero from `n` on. */
__device__ __forceinline__ void copy_async(uint32_t to_shared, const void* from, uint32_t n) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to_shared), "l"(from), "r"(n) : "memory");
}
/* Arrives when this thread's copies so far have come. */
__device__ __forceinline__ void barrier_arrive_copied(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

/* Stores four 8 x 8 matrices transposed: lane l passes the address of column l % 8 of matrix l / 8, and holds of each
 * matrix row l / 4, columns 2 (l % 4) and the next. */
__device__ __forceinline__ void store_transposed(const void* column, const uint32_t (&m)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(shared_address(column)),
               "r"(m[0]), "r"(m[1]), "r"(m[2]), "r"(m[3])
               : "memory");
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_WGMMA_H */
