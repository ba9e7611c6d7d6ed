/* Grouped GEMM of fp8 with fp8, for experts with many pairs each: the kernel of grouped_gemm_sm90.h with weights and x
 * in fp8 (ops/quantize.h), and units of up to 128 pairs. Reference: numpy's product of the quantised values
 * (tests/kernels/test_moe_fp8_device.py).
 *
 *   kGateUp  x [tokens][n_in] fp8, with scales [1][x_stride] if those of w are by row, and else [ceil(n_in / 128)]
 *            [x_stride]; out quantised (quantized_product_sm90.h)
 *   kDown    x that product, with scales [ceil(n_in / 128)][x_stride]; out half, as that of grouped_gemm_sm90.h
 *   w        fp8, with scales of all experts' rows, or of blocks: n_out is then a multiple of 128, and no block has
 *            rows of two experts, or of gate and up
 *
 * A stage is 128 of k, a block's columns. The tensor cores add up short of fp32 (wgmma_sm90.h), so their sums end with
 * each stage and are added in registers: by block they are scaled as they are added, by row at the end. What they sum
 * up meanwhile needs registers, too, which bounds the pairs of a unit. The scales of x come to the stages beside x.
 */
#ifndef BLINK_OPS_MOE_GROUPED_FP8_GEMM_SM90_H
#define BLINK_OPS_MOE_GROUPED_FP8_GEMM_SM90_H

#include "kernels/ops/gemm/weight_lanes.h"
#include "grouped_gemm_sm90.h"
#include "quantized_product_sm90.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kGroupedFp8Unit = 128; /* pairs of a unit: the loading warpgroup has a thread for each one's scale */
constexpr uint32_t kGroupedFp8K = 128;    /* of a stage: a swizzled row, and a block's columns */
constexpr uint32_t kGroupedFp8Stages = 4;

static_assert(kGroupedFp8K == kScaleBlock, "a stage has one scale of a row of x");
static_assert(GroupedItems<kGateUp>::kOutputs == kScaleBlock, "a tile's outputs share a scale");

struct GroupedFp8Stage {
  unsigned char w[kGroupedWeights * kSwizzleBytes], x[kGroupedFp8Unit * kSwizzleBytes];
};
struct GroupedFp8Pipeline {
  GroupedFp8Stage stages[kGroupedFp8Stages];
  unsigned char turned[2 * kWarpgroup / 32][512]; /* a warp's results on their way out */
  float scales[kGroupedFp8Stages][kGroupedFp8Unit];
  ProductScratch<kGroupedFp8Unit> product;
  uint64_t full[kGroupedFp8Stages], empty[kGroupedFp8Stages];
};
constexpr uint32_t kGroupedFp8SharedBytes = 207424;
static_assert(sizeof(GroupedFp8Pipeline) == kGroupedFp8SharedBytes, "the engine launches with so much");

/* x and its scales. */
struct GroupedFp8Input {
  const uint8_t* elements;
  const float* scales;
  uint32_t stride; /* of the scales */
};

/* What a kernel puts out. */
template <typename Half, ExpertMatmul Matmul>
struct GroupedFp8Output {
  using Type = Half*;
};
template <typename Half>
struct GroupedFp8Output<Half, kGateUp> {
  using Type = QuantizedProduct<kGroupedFp8Unit>;
};

/* Whether x has a scale of its own in each stage. */
template <ExpertMatmul Matmul, ScaleForm Form>
constexpr bool kScaledStages = Matmul == kDown || Form == kScaleByBlock;

/* The loading warpgroup. A thread copies the scale of the pair whose row of x it knows. */
template <ExpertMatmul Matmul, ScaleForm Form>
struct GroupedFp8Producer {
  const void* map;
  const GroupedFp8Input& x;
  GroupedRows<uint8_t, Matmul, kGroupedFp8Unit> rows;

  __device__ __forceinline__ void copy_scale(float (&to)[kGroupedFp8Unit], uint32_t k, uint32_t count,
                                             uint32_t row) const {
    constexpr bool kEach = kScaledStages<Matmul, Form>;
    if (!kEach && k + kGroupedFp8K < rows.n_in) return;
    const uint32_t lane = threadIdx.x % 32, pair = 16 * (lane / 4) + 4 * (threadIdx.x / 32) + lane % 4;
    const uint64_t block = kEach ? k / kScaleBlock : 0;
    if (pair < count) copy_async_word(to + pair, x.scales + block * x.stride + row);
  }

  __device__ __forceinline__ void run(GroupedFp8Pipeline& pipeline, const GroupedItems<Matmul>& items) const {
    fill_stages<kGroupedFp8K, kGroupedFp8Stages, 2>(
        pipeline, items, rows, map, [&](GroupedFp8Stage& stage, const StagePlace& at, const uint32_t (&from)[2]) {
          rows.copy(stage.x, at.k, at.unit.count, from);
          copy_scale(pipeline.scales[at.stage], at.k, at.unit.count, from[0]);
        });
  }
};

/* A multiplying warpgroup. */
template <typename Half, ExpertMatmul Matmul, ScaleForm Form>
struct GroupedFp8Consumer {
  using Outputs = GroupedOutputs<Half, Matmul, kGroupedFp8Unit>;
  using Sums = typename Outputs::Sums;
  static constexpr bool kEach = kScaledStages<Matmul, Form>;
  Outputs outputs;
  const float* w_scales;
  uint32_t n_in;

  /* The scale of row `row` of an item's tile, of gate rows and then up rows, or of down, from k's block on. */
  __device__ __forceinline__ float scale(const ExpertUnit& unit, uint32_t tile, uint32_t row, uint32_t k) const {
    constexpr uint32_t kOutputs = GroupedItems<Matmul>::kOutputs;
    const uint32_t n_out = outputs.n_out, o = tile * kOutputs + row % kOutputs;
    if (o >= n_out) return 0.0f; /* nothing is stored of it */
    const uint64_t expert = uint64_t(unit.expert) * (Matmul == kGateUp ? 2 : 1);
    const uint64_t at = (expert + row / kOutputs) * n_out + o;
    if (Form == kScaleByRow) return w_scales[at];
    return w_scales[at / kScaleBlock * ((n_in + kScaleBlock - 1) / kScaleBlock) + k / kScaleBlock];
  }

  /* Adds what the tensor cores have summed up of a stage; w is the scale of a block. */
  template <int N>
  __device__ __forceinline__ void add(const float (&part)[N], float (&sums)[N], const float2* x, float w) const {
#pragma unroll
    for (uint32_t g = 0; g < N / 4; ++g) {
      if (!kEach) {
#pragma unroll
        for (uint32_t e = 0; e < 4; ++e) sums[4 * g + e] += part[4 * g + e];
      } else {
        const float2 of_x = x[4 * g];
        const float even = Form == kScaleByBlock ? of_x.x * w : of_x.x,
                    odd = Form == kScaleByBlock ? of_x.y * w : of_x.y;
#pragma unroll
        for (uint32_t h = 0; h < 2; ++h) {
          sums[4 * g + 2 * h] += part[4 * g + 2 * h] * even;
          sums[4 * g + 2 * h + 1] += part[4 * g + 2 * h + 1] * odd;
        }
      }
    }
  }
  /* Applies scales by row, w[h] of the thread's two rows. */
  template <int N>
  __device__ __forceinline__ void apply(float (&sums)[N], const float2* x, const float (&w)[2]) const {
#pragma unroll
    for (uint32_t g = 0; g < N / 4; ++g) {
      const float2 of_x = kEach ? make_float2(1.0f, 1.0f) : x[4 * g];
#pragma unroll
      for (uint32_t h = 0; h < 2; ++h) sums[4 * g + 2 * h] *= of_x.x * w[h], sums[4 * g + 2 * h + 1] *= of_x.y * w[h];
    }
  }

  /* Sums of an item over k, of the first N pairs. */
  template <int N>
  __device__ __forceinline__ void multiply(GroupedFp8Pipeline& pipeline, PipelineState& state, const ExpertUnit& unit,
                                           uint32_t tile, Sums& all) const {
    const uint32_t low = outputs.first_row(), row = low + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    float by_row[2][2] = {};
    if (Form == kScaleByRow)
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i)
        by_row[i / 2][i % 2] = scale(unit, tile, row + i / 2 * Outputs::kSecondRow + i % 2 * 8, 0);
#pragma unroll
    for (uint32_t i = 0; i < N; ++i) all[i / (N / 2)][i % (N / 2)] = 0.0f;
    for (uint32_t k = 0; k < n_in; k += kGroupedFp8K, state.next(kGroupedFp8Stages)) {
      const GroupedFp8Stage& stage = pipeline.stages[state.index];
      float by_block[2] = {};
      if (Form == kScaleByBlock)
        by_block[0] = scale(unit, tile, low, k), by_block[1] = scale(unit, tile, low + Outputs::kSecondRow, k);
      const float2* of_x = reinterpret_cast<const float2*>(pipeline.scales[state.index]) + threadIdx.x % 4;
      barrier_wait(pipeline.full + state.index, state.phase);
      fence_async_proxy(); /* x, which came by generic copies */
      const uint64_t x = matrix_descriptor(stage.x, kGroupBytes, kNoColumns);
      const uint64_t w_low = matrix_descriptor(stage.w + low * kSwizzleBytes, kGroupBytes, kNoColumns);
#pragma unroll
      for (uint32_t set = 0; set < 2; ++set) {
        auto& sums = reinterpret_cast<float (&)[N / 2]>(all[set]);
        const uint64_t w = advance(w_low, set * Outputs::kSecondRow * kSwizzleBytes);
        float part[N / 2];
        wgmma_fence();
#pragma unroll
        for (uint32_t at = 0; at < kSwizzleBytes; at += 2 * kWgmmaK)
          wgmma(part, advance(w, at), advance(x, at), at != 0, E4m3());
        wgmma_commit();
        wgmma_wait<0>();
        settle(part);
        add(part, sums, of_x, by_block[set]);
        if (Form == kScaleByRow && k + kGroupedFp8K >= n_in) apply(sums, of_x, by_row[set]);
      }
      __syncwarp(); /* all have read their scales */
      if (threadIdx.x % 32 == 0) barrier_arrive(pipeline.empty + state.index);
    }
  }

  __device__ __forceinline__ void run(GroupedFp8Pipeline& pipeline, const GroupedItems<Matmul>& items,
                                      const typename GroupedFp8Output<Half, Matmul>::Type& out) const {
    PipelineState state;
    ExpertUnit unit = items.unit(blockIdx.x);
    for (uint32_t at = blockIdx.x; at < items.n_items; at += gridDim.x) {
      const ExpertUnit next = items.unit(at + gridDim.x);
      const uint32_t tile = at % items.n_tiles;
      Sums sums;
      if (unit.count <= 32)
        multiply<32>(pipeline, state, unit, tile, sums);
      else if (unit.count <= 64)
        multiply<64>(pipeline, state, unit, tile, sums);
      else if (unit.count <= 96)
        multiply<96>(pipeline, state, unit, tile, sums);
      else
        multiply<kGroupedFp8Unit>(pipeline, state, unit, tile, sums);
      if constexpr (Matmul == kGateUp) {
        const uint32_t o = tile * kScaleBlock + outputs.first_row() + threadIdx.x / 32 % 4 * 16;
        out.store(pipeline.product, sums[0], sums[1], unit, tile, o, outputs.n_out);
      } else {
        uint32_t rows[kGroupedFp8Unit / 32];
        outputs.find(unit, rows);
        outputs.store(pipeline.turned[threadIdx.x / 32 - 4], sums, rows, unit.count, tile);
      }
      unit = next;
    }
  }
};

/* grid (any), block (kGroupedThreads), kGroupedFp8SharedBytes of shared memory; units of kGroupedFp8Unit pairs; n_in a
 * multiple of 16, n_out of 8. The map is that of moe_grouped_gemm_kernel, of pairs of fp8 elements as words of 16
 * bits, in boxes of kGroupedFp8K columns. */
template <typename Half, ExpertMatmul Matmul, ScaleForm Form>
__global__ void __launch_bounds__(kGroupedThreads, 1)
    moe_grouped_fp8_gemm_kernel(const ExpertUnit* plan, const uint32_t* pairs, const __grid_constant__ TensorMap map,
                                const float* w_scales, const __grid_constant__ GroupedFp8Input x,
                                const __grid_constant__ typename GroupedFp8Output<Half, Matmul>::Type out,
                                uint32_t n_in, uint32_t n_out, uint32_t per_token) {
  GroupedFp8Pipeline& pipeline = *reinterpret_cast<GroupedFp8Pipeline*>(dynamic_shared());
  begin_grouped<kGroupedFp8Stages>(pipeline);
  const GroupedItems<Matmul> items(plan, n_out);
  if (threadIdx.x < kWarpgroup) {
    keep_registers<kGroupedProducerRegisters>();
    GroupedFp8Producer<Matmul, Form>{&map, x, {pairs, x.elements, n_in, per_token}}.run(pipeline, items);
  } else {
    take_registers<kGroupedConsumerRegisters>();
    const uint32_t group = threadIdx.x / kWarpgroup - 1;
    Half* halves = nullptr;
    if constexpr (Matmul == kDown) halves = out;
    GroupedFp8Consumer<Half, Matmul, Form>{{group, n_out, pairs, halves}, w_scales, n_in}.run(pipeline, items, out);
  }
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_MOE_GROUPED_FP8_GEMM_SM90_H */
