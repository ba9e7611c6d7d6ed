/* Hopper's instructions for warpgroups of 4 warps: asynchronous matmuls out of shared memory (PTX manual,
 * wgmma), registers that move between warpgroups (setmaxnreg), barriers of some of a block's warps.
 *
 * Operands in shared memory lie in atoms of 8 rows of 128 bytes, 1024-byte aligned, with the 128-byte swizzle: what
 * copy_box brings with a tensor map of that swizzle.
 */
#ifndef BLINK_PRIMITIVES_WGMMA_SM90_H
#define BLINK_PRIMITIVES_WGMMA_SM90_H

namespace blink {

constexpr uint32_t kWarpgroup = 128;    /* threads */
constexpr uint32_t kSwizzleBytes = 128; /* a row of an operand, and what the swizzle works on */
constexpr uint32_t kGroupBytes = 8 * kSwizzleBytes;
constexpr uint32_t kNoColumns = 16; /* column_bytes of an operand with k along its rows, which has no use for them */
constexpr uint32_t kWgmmaK = 16; /* of one wgmma of halves; of fp8, whose elements are half as wide, it is twice that */

/* Names the type of operands in fp8, which the instructions need not hold. */
struct E4m3 {};

/* Where 16 bytes of an operand with k along its rows lie. */
__device__ __forceinline__ uint32_t swizzled(uint32_t row, uint32_t chunk) {
  return row * kSwizzleBytes + (chunk ^ row % 8) * 16;
}

template <uint32_t N>
__device__ __forceinline__ void keep_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <uint32_t N>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/* A barrier of `threads` of the block, whole warps; those that have something to say and nothing to wait for
 * arrive. */
__device__ __forceinline__ void group_sync(uint32_t id, uint32_t threads) {
  asm volatile("barrier.sync.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void group_arrive(uint32_t id, uint32_t threads) {
  asm volatile("barrier.arrive.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* Stores four 8 x 8 matrices transposed: lane l passes the address of column l % 8 of matrix l / 8, and holds of each
 * matrix row l / 4, columns 2 (l % 4) and the next. */
__device__ __forceinline__ void store_transposed(const void* column, const uint32_t (&m)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(shared_address(column)),
               "r"(m[0]), "r"(m[1]), "r"(m[2]), "r"(m[3])
               : "memory");
}

/* An operand: where it starts, and two strides of its atoms. `group_bytes`: between neighbours along the rows of 128
 * bytes (the n or m of an operand with k along its rows; k of one with n along its rows); `column_bytes`: between
 * neighbours in the direction of the rows, of an operand with n along them. */
__device__ __forceinline__ uint64_t matrix_descriptor(const void* p, uint32_t group_bytes, uint32_t column_bytes) {
  constexpr uint64_t kSwizzle128 = 1ull << 62;
  return kSwizzle128 | uint64_t(group_bytes >> 4) << 32 | uint64_t(column_bytes >> 4) << 16 |
         (shared_address(p) & 0x3ffff) >> 4;
}
/* The same operand from `bytes` further on; a column of 64 elements or less on, or whole atoms. */
__device__ __forceinline__ uint64_t advance(uint64_t descriptor, uint32_t bytes) {
  return descriptor + (bytes >> 4);
}

/* Matmuls run asynchronously from begin to wait. Registers that take part are handed over to
 * them at `begin`, and are back after a `wait` and `settle`. */
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Until at most N of the committed groups still run. */
template <int N>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
/* The compiler takes results for ready when the wgmma is issued: no use of them moves above this. */
template <int N>
__device__ __forceinline__ void settle(float (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(x[i])::"memory");
}

// clang-format off
#define BLINK_ACC(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), \
                      "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define BLINK_ACC8 BLINK_ACC(0)
#define BLINK_ACC16 BLINK_ACC(0), BLINK_ACC(8)
#define BLINK_ACC32 BLINK_ACC(0), BLINK_ACC(8), BLINK_ACC(16), BLINK_ACC(24)
#define BLINK_ACC40 BLINK_ACC32, BLINK_ACC(32)
#define BLINK_ACC48 BLINK_ACC40, BLINK_ACC(40)
#define BLINK_ACC56 BLINK_ACC48, BLINK_ACC(48)
#define BLINK_ACC64 BLINK_ACC56, BLINK_ACC(56)
#define BLINK_ACC72 BLINK_ACC64, BLINK_ACC(64)
#define BLINK_ACC80 BLINK_ACC72, BLINK_ACC(72)
#define BLINK_ACC88 BLINK_ACC80, BLINK_ACC(80)
#define BLINK_ACC96 BLINK_ACC88, BLINK_ACC(88)
#define BLINK_ACC104 BLINK_ACC96, BLINK_ACC(96)
#define BLINK_ACC112 BLINK_ACC104, BLINK_ACC(104)
#define BLINK_ACC120 BLINK_ACC112, BLINK_ACC(112)
#define BLINK_ACC128 BLINK_ACC120, BLINK_ACC(120)
#define BLINK_LIST8 "{%0,%1,%2,%3,%4,%5,%6,%7}"
#define BLINK_LIST16 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}"
#define BLINK_NAMES32 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23," \
                      "%24,%25,%26,%27,%28,%29,%30,%31"
#define BLINK_NAMES40 BLINK_NAMES32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define BLINK_NAMES48 BLINK_NAMES40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define BLINK_NAMES56 BLINK_NAMES48 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define BLINK_NAMES64 BLINK_NAMES56 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define BLINK_NAMES72 BLINK_NAMES64 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define BLINK_NAMES80 BLINK_NAMES72 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define BLINK_NAMES88 BLINK_NAMES80 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define BLINK_NAMES96 BLINK_NAMES88 ",%88,%89,%90,%91,%92,%93,%94,%95"
#define BLINK_NAMES104 BLINK_NAMES96 ",%96,%97,%98,%99,%100,%101,%102,%103"
#define BLINK_NAMES112 BLINK_NAMES104 ",%104,%105,%106,%107,%108,%109,%110,%111"
#define BLINK_NAMES120 BLINK_NAMES112 ",%112,%113,%114,%115,%116,%117,%118,%119"
#define BLINK_NAMES128 BLINK_NAMES120 ",%120,%121,%122,%123,%124,%125,%126,%127"
#define BLINK_LIST32 "{" BLINK_NAMES32 "}"
#define BLINK_LIST40 "{" BLINK_NAMES40 "}"
#define BLINK_LIST48 "{" BLINK_NAMES48 "}"
#define BLINK_LIST56 "{" BLINK_NAMES56 "}"
#define BLINK_LIST64 "{" BLINK_NAMES64 "}"
#define BLINK_LIST72 "{" BLINK_NAMES72 "}"
#define BLINK_LIST80 "{" BLINK_NAMES80 "}"
#define BLINK_LIST88 "{" BLINK_NAMES88 "}"
#define BLINK_LIST96 "{" BLINK_NAMES96 "}"
#define BLINK_LIST104 "{" BLINK_NAMES104 "}"
#define BLINK_LIST112 "{" BLINK_NAMES112 "}"
#define BLINK_LIST120 "{" BLINK_NAMES120 "}"
#define BLINK_LIST128 "{" BLINK_NAMES128 "}"
// clang-format on

/* d = a b, or d += a b if `accumulate`: a 64 x 16 and b 16 x N, both with k along their rows. With r = lane / 4 and
 * c = 2 (lane % 4), d[4 g + 2 h + e] of a lane of warp w is row 16 w + r + 8 h, column 8 g + c + e. */
#define BLINK_WGMMA_SHARED(Half, type, n, regs)                                                                      \
  __device__ __forceinline__ void wgmma(float (&d)[regs], uint64_t a, uint64_t b, bool accumulate, Half) {           \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %" BLINK_AT##regs##_2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n  \
                                                                       "k16.f32." type "." type " " BLINK_LIST##regs \
                 ", %" BLINK_AT##regs##_0 ", %" BLINK_AT##regs##_1 ", p, 1, 1, 0, 0; }"                              \
                 : BLINK_ACC##regs                                                                                   \
                 : "l"(a), "l"(b), "r"(uint32_t(accumulate)));                                                       \
  }
/* The same of fp8: a 64 x 32 and b 32 x N. The tensor cores align the products of an instruction and the sum so far to
 * the largest of them, and drop what lies more than about 13 bits below it, so that a sum over thousands of k loses
 * what fp32 would keep. Who sums so many adds up shorter sums in registers. */
#define BLINK_WGMMA_FP8(n, regs)                                                                                    \
  __device__ __forceinline__ void wgmma(float (&d)[regs], uint64_t a, uint64_t b, bool accumulate, E4m3) {          \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %" BLINK_AT##regs##_2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n \
                                                                       "k32.f32.e4m3.e4m3 " BLINK_LIST##regs        \
                 ", %" BLINK_AT##regs##_0 ", %" BLINK_AT##regs##_1 ", p, 1, 1; }"                                   \
                 : BLINK_ACC##regs                                                                                  \
                 : "l"(a), "l"(b), "r"(uint32_t(accumulate)));                                                      \
  }
/* d += a b: a in registers as `mma` has it, of the warp's 16 rows; b 16 x N with n along its rows. */
#define BLINK_WGMMA_REGISTERS(Half, type, n, regs)                                                                     \
  __device__ __forceinline__ void wgmma(float (&d)[regs], const uint32_t (&a)[4], uint64_t b, Half) {                  \
    asm volatile("{ .reg .pred p; setp.eq.u32 p, 1, 1;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type \
                 " " BLINK_LIST##regs ", {%" BLINK_AT##regs##_0 ", %" BLINK_AT##regs##_1 ", %" BLINK_AT##regs##_2      \
                 ", %" BLINK_AT##regs##_3 "}, %" BLINK_AT##regs##_4 ", p, 1, 1, 1; }"                                  \
                 : BLINK_ACC##regs                                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                                \
  }
/* The same with b 16 x N with k along its rows, and d = a b unless `accumulate`. */
#define BLINK_WGMMA_REGISTERS_ALONG_K(Half, type, n, regs)                                                             \
  __device__ __forceinline__ void wgmma_along_k(float (&d)[regs], const uint32_t (&a)[4], uint64_t b, bool accumulate, \
                                                Half) {                                                                \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %" BLINK_AT##regs##_5 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n    \
                                                                       "k16.f32." type "." type " " BLINK_LIST##regs   \
                 ", {%" BLINK_AT##regs##_0 ", %" BLINK_AT##regs##_1 ", %" BLINK_AT##regs##_2 ", %" BLINK_AT##regs##_3  \
                 "}, %" BLINK_AT##regs##_4 ", p, 1, 1, 0; }"                                                           \
                 : BLINK_ACC##regs                                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(uint32_t(accumulate)));                     \
  }
#define BLINK_AT8_0 "8"
#define BLINK_AT8_1 "9"
#define BLINK_AT8_2 "10"
#define BLINK_AT8_3 "11"
#define BLINK_AT8_4 "12"
#define BLINK_AT8_5 "13"
#define BLINK_AT16_0 "16"
#define BLINK_AT16_1 "17"
#define BLINK_AT16_2 "18"
#define BLINK_AT16_3 "19"
#define BLINK_AT16_4 "20"
#define BLINK_AT16_5 "21"
#define BLINK_AT32_0 "32"
#define BLINK_AT32_1 "33"
#define BLINK_AT32_2 "34"
#define BLINK_AT32_3 "35"
#define BLINK_AT32_4 "36"
#define BLINK_AT32_5 "37"
#define BLINK_AT40_0 "40"
#define BLINK_AT40_1 "41"
#define BLINK_AT40_2 "42"
#define BLINK_AT48_0 "48"
#define BLINK_AT48_1 "49"
#define BLINK_AT48_2 "50"
#define BLINK_AT48_3 "51"
#define BLINK_AT48_4 "52"
#define BLINK_AT48_5 "53"
#define BLINK_AT56_0 "56"
#define BLINK_AT56_1 "57"
#define BLINK_AT56_2 "58"
#define BLINK_AT80_0 "80"
#define BLINK_AT80_1 "81"
#define BLINK_AT80_2 "82"
#define BLINK_AT72_0 "72"
#define BLINK_AT72_1 "73"
#define BLINK_AT72_2 "74"
#define BLINK_AT88_0 "88"
#define BLINK_AT88_1 "89"
#define BLINK_AT88_2 "90"
#define BLINK_AT96_0 "96"
#define BLINK_AT96_1 "97"
#define BLINK_AT96_2 "98"
#define BLINK_AT104_0 "104"
#define BLINK_AT104_1 "105"
#define BLINK_AT104_2 "106"
#define BLINK_AT112_0 "112"
#define BLINK_AT112_1 "113"
#define BLINK_AT112_2 "114"
#define BLINK_AT120_0 "120"
#define BLINK_AT120_1 "121"
#define BLINK_AT120_2 "122"
#define BLINK_AT128_0 "128"
#define BLINK_AT128_1 "129"
#define BLINK_AT128_2 "130"
#define BLINK_AT64_0 "64"
#define BLINK_AT64_1 "65"
#define BLINK_AT64_2 "66"
#define BLINK_AT64_3 "67"
#define BLINK_AT64_4 "68"
#define BLINK_AT64_5 "69"

BLINK_WGMMA_SHARED(__nv_bfloat16, "bf16", 16, 8)
BLINK_WGMMA_SHARED(__half, "f16", 16, 8)
BLINK_WGMMA_SHARED(__nv_bfloat16, "bf16", 32, 16)
BLINK_WGMMA_SHARED(__half, "f16", 32, 16)
BLINK_WGMMA_SHARED(__nv_bfloat16, "bf16", 64, 32)
BLINK_WGMMA_SHARED(__half, "f16", 64, 32)
BLINK_WGMMA_SHARED(__nv_bfloat16, "bf16", 96, 48)
BLINK_WGMMA_SHARED(__half, "f16", 96, 48)
BLINK_WGMMA_SHARED(__nv_bfloat16, "bf16", 128, 64)
BLINK_WGMMA_SHARED(__half, "f16", 128, 64)
BLINK_WGMMA_SHARED(__nv_bfloat16, "bf16", 160, 80)
BLINK_WGMMA_SHARED(__half, "f16", 160, 80)
BLINK_WGMMA_SHARED(__nv_bfloat16, "bf16", 144, 72)
BLINK_WGMMA_SHARED(__half, "f16", 144, 72)
BLINK_WGMMA_SHARED(__nv_bfloat16, "bf16", 176, 88)
BLINK_WGMMA_SHARED(__half, "f16", 176, 88)
BLINK_WGMMA_SHARED(__nv_bfloat16, "bf16", 192, 96)
BLINK_WGMMA_SHARED(__half, "f16", 192, 96)
BLINK_WGMMA_SHARED(__nv_bfloat16, "bf16", 208, 104)
BLINK_WGMMA_SHARED(__half, "f16", 208, 104)
BLINK_WGMMA_SHARED(__nv_bfloat16, "bf16", 224, 112)
BLINK_WGMMA_SHARED(__half, "f16", 224, 112)
BLINK_WGMMA_SHARED(__nv_bfloat16, "bf16", 240, 120)
BLINK_WGMMA_SHARED(__half, "f16", 240, 120)
BLINK_WGMMA_SHARED(__nv_bfloat16, "bf16", 256, 128)
BLINK_WGMMA_SHARED(__half, "f16", 256, 128)
BLINK_WGMMA_REGISTERS(__nv_bfloat16, "bf16", 128, 64)
BLINK_WGMMA_REGISTERS(__half, "f16", 128, 64)
BLINK_WGMMA_REGISTERS(__nv_bfloat16, "bf16", 64, 32)
BLINK_WGMMA_REGISTERS(__half, "f16", 64, 32)
BLINK_WGMMA_REGISTERS_ALONG_K(__nv_bfloat16, "bf16", 16, 8)
BLINK_WGMMA_REGISTERS_ALONG_K(__half, "f16", 16, 8)
BLINK_WGMMA_REGISTERS_ALONG_K(__nv_bfloat16, "bf16", 32, 16)
BLINK_WGMMA_REGISTERS_ALONG_K(__half, "f16", 32, 16)
BLINK_WGMMA_REGISTERS_ALONG_K(__nv_bfloat16, "bf16", 64, 32)
BLINK_WGMMA_REGISTERS_ALONG_K(__half, "f16", 64, 32)
BLINK_WGMMA_REGISTERS_ALONG_K(__nv_bfloat16, "bf16", 96, 48)
BLINK_WGMMA_REGISTERS_ALONG_K(__half, "f16", 96, 48)
BLINK_WGMMA_REGISTERS_ALONG_K(__nv_bfloat16, "bf16", 128, 64)
BLINK_WGMMA_REGISTERS_ALONG_K(__half, "f16", 128, 64)

BLINK_WGMMA_FP8(16, 8)
BLINK_WGMMA_FP8(32, 16)
BLINK_WGMMA_FP8(64, 32)
BLINK_WGMMA_FP8(80, 40)
BLINK_WGMMA_FP8(96, 48)
BLINK_WGMMA_FP8(112, 56)
BLINK_WGMMA_FP8(128, 64)
BLINK_WGMMA_FP8(144, 72)
BLINK_WGMMA_FP8(160, 80)
BLINK_WGMMA_FP8(176, 88)

#undef BLINK_WGMMA_SHARED
#undef BLINK_WGMMA_FP8
#undef BLINK_WGMMA_REGISTERS
#undef BLINK_WGMMA_REGISTERS_ALONG_K

}  // namespace blink

#endif /* BLINK_PRIMITIVES_WGMMA_SM90_H */
