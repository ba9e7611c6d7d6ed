/* Epilogue of tiled_gemm_sm90.h and tiled_fp8_gemm_sm90.h: a warpgroup turns them in shared memory and bulk copies take
 * them away, 16 rows of y at a time, while the warpgroup goes on.
 */
#ifndef BLINK_OPS_GEMM_TILED_EPILOGUE_SM90_H
#define BLINK_OPS_GEMM_TILED_EPILOGUE_SM90_H

#include "gemv.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kTiledColumns = 256;        /* rows of x of a tile, at most */
constexpr uint32_t kTiledStagingBytes = 16384; /* of a warpgroup's results on their way out */
constexpr uint32_t kTiledBox = 16;             /* rows of y that a copy takes */

/* gated() to about 1e-6 of its size. The exponential is at most 2^60: beyond, the result is nothing beside `up`. */
__device__ __forceinline__ float gated_fast(float gate, float up) {
  clamp_inputs(kActivation, gate, up);
  return __fdividef(gate * up, 1.0f + exp2_fast(fminf(-kLog2E * gate_logit(kActivation, gate), 60.0f)));
}

/* The sums of a warpgroup: 64 rows of w, of which a warp has 16, times up to kTiledColumns rows of x, as `product` of
 * wgmma_sm90.h has them. `Columns`: a multiple of 32. */
template <typename Half, int Output, uint32_t Columns = kTiledColumns>
struct TiledEpilogue {
  using Sums = float[Columns / 2];
  static constexpr bool kFp32 = Output == kEpilogueAdd || Output == kEpilogueFloat;
  static constexpr uint32_t kOutputs = Output == kEpilogueSilu ? 32 : 64; /* of a row of y */
  static constexpr uint32_t kRowBytes = kOutputs * (kFp32 ? 4 : 2);
  static constexpr uint32_t kRound = kTiledStagingBytes / kRowBytes; /* rows of y that are turned at once */
  static constexpr uint32_t kBoxBytes = kTiledBox * (Output == kEpilogueSilu ? 64 : 128);
  static constexpr uint32_t kBoxes = kTiledStagingBytes / kBoxBytes;

  unsigned char* turned; /* kTiledStagingBytes, aligned to 1024 */
  const BoxMap& map;     /* of y: boxes of kTiledBox rows and 128 bytes, of kEpilogueSilu 64, swizzled */
  uint32_t group;        /* 0 or 1 */

  /* Writes rows [row, row + columns) of y, of which there are m, from output `o` on. */
  __device__ __forceinline__ void store(const Sums& sums, uint32_t o, uint32_t row, uint32_t columns,
                                        uint32_t m) const {
#pragma unroll
    for (uint32_t first = 0; first < Columns; first += kRound) {
      if (first >= columns) break;
      if (copies()) stores_wait_read();
      group_sync(1 + group, kWarpgroup);
      turn(sums, first, columns);
      fence_async_proxy();
      group_sync(1 + group, kWarpgroup);
      if (copies()) copy(o, row, first, min(columns, m - row));
    }
  }
  /* Waits until everything has been written. */
  __device__ __forceinline__ void finish() const {
    if (copies()) stores_wait();
  }

 private:
  __device__ __forceinline__ static bool copies() { return threadIdx.x % kWarpgroup < 32; }

  /* Rows [first, first + kRound) of the tile go to shared memory; those past `columns`, which hold nothing, in part. */
  __device__ __forceinline__ void turn(const Sums& sums, uint32_t first, uint32_t columns) const {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    if (Output == kEpilogueSilu) {
#pragma unroll
      for (uint32_t t = 0; t < min(kRound, Columns); t += 32) {
        if (t >= columns) break;
        uint32_t m[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
          const float* at = sums + t / 2 + 4 * i;
          m[i] = pack<Half>(gated_fast(at[0], at[2]), gated_fast(at[1], at[3]));
        }
        const uint32_t row = t + lane;
        store_transposed(turned + row * 64 + (warp ^ row / 2 % 4) * 16, m);
      }
    } else if (Output == kEpilogueHalf) {
#pragma unroll
      for (uint32_t t = 0; t < min(kRound, Columns - first); t += 32) {
        if (first + t >= columns) break;
#pragma unroll
        for (uint32_t h = 0; h < 2; ++h) {
          uint32_t m[4];
#pragma unroll
          for (uint32_t i = 0; i < 4; ++i) {
            const float* at = sums + (first + t) / 2 + 4 * i + 2 * h;
            m[i] = pack<Half>(at[0], at[1]);
          }
          store_transposed(turned + swizzled(t + lane, 2 * warp + h), m);
        }
      }
    } else {
#pragma unroll
      for (uint32_t t = 0; t < min(kRound, Columns - first); t += 8) {
        if (first + t >= columns) break;
#pragma unroll
        for (uint32_t e = 0; e < 4; ++e) {
          const uint32_t row = t + lane % 4 * 2 + e % 2, output = warp * 16 + lane / 4 + e / 2 * 8;
          unsigned char* const box = turned + output / 32 * (kRound * 128);
          *reinterpret_cast<float*>(box + swizzled(row, output % 32 / 4) + output % 4 * 4) = sums[(first + t) / 2 + e];
        }
      }
    }
  }

  /* By a warp, a box a lane. `n`: rows of the tile that exist. */
  __device__ __forceinline__ void copy(uint32_t o, uint32_t row, uint32_t first, uint32_t n) const {
    constexpr uint32_t kRows = kRound / kTiledBox;
    const uint32_t lane = threadIdx.x % 32, at = first + lane % kRows * kTiledBox;
    if (lane < kBoxes && at < n) {
      const unsigned char* from = turned + lane * kBoxBytes;
      const uint32_t output = kFp32 ? o + lane / kRows * 32 : o;
      if (Output == kEpilogueAdd)
        add_box(map, from, output, row + at);
      else
        store_box(map, from, output, row + at);
    }
    stores_commit();
  }
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_GEMM_TILED_EPILOGUE_SM90_H */
