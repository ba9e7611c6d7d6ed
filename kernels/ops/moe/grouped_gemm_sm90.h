/* Grouped GEMM, for experts with many pairs each: the matmuls of expert_gemv.h as tiles of up to 160 pairs x 256 rows
 * of w, multiplied by warpgroups. Arguments are those of expert_gemv.h, but for the weights: a tensor map of w.
 *
 * A block's first warpgroup keeps a pipeline of stages in shared memory full, across items: a stage is 64 of k, of the
 * tile's weights by one bulk copy and of the unit's rows of x, which lie anywhere, by copies of 16 bytes. The other two
 * take 128 rows of w each, against all pairs; the weights are the tensor cores' 64-row operand, so that the number of
 * pairs, the other one, may be what the unit has.
 */
#ifndef BLINK_OPS_MOE_GROUPED_GEMM_SM90_H
#define BLINK_OPS_MOE_GROUPED_GEMM_SM90_H

#include "expert_gemv.h"
#include "kernels/primitives/pipeline_state.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kGroupedUnit = 160;    /* pairs of a unit */
constexpr uint32_t kGroupedWeights = 256; /* rows of w: outputs, or half as many gate rows and then their up rows */
constexpr uint32_t kGroupedK = 64;        /* of a stage: a swizzled row */
constexpr uint32_t kGroupedStages = 4;
constexpr uint32_t kGroupedThreads = 3 * kWarpgroup;
constexpr uint32_t kGroupedProducerRegisters = 56, kGroupedConsumerRegisters = 224; /* of a thread: 168 on average */

struct GroupedStage {
  unsigned char w[kGroupedWeights * kSwizzleBytes], x[kGroupedUnit * kSwizzleBytes];
};
struct GroupedPipeline {
  GroupedStage stages[kGroupedStages];
  unsigned char turned[2 * kWarpgroup / 32][512]; /* a warp's results on their way out */
  uint64_t full[kGroupedStages], empty[kGroupedStages];
};
constexpr uint32_t kGroupedSharedBytes = 217152;
static_assert(sizeof(GroupedPipeline) == kGroupedSharedBytes, "the engine launches with so much");

/* How a kernel begins: a stage is full when its copy has come and all copying threads have arrived, and empty when
 * every warp that multiplies has given it back. */
template <uint32_t Stages, typename Pipeline>
__device__ __forceinline__ void begin_grouped(Pipeline& pipeline) {
  allow_successor();
  if (threadIdx.x == 0) {
    for (uint32_t s = 0; s < Stages; ++s) {
      barrier_init_count(pipeline.full + s, kWarpgroup + 1);
      barrier_init_count(pipeline.empty + s, 2 * kWarpgroup / 32);
    }
    barrier_init_done();
  }
  __syncthreads();
  wait_for_predecessor();
}

/* What there is to do: item i is tile i % n_tiles of unit i / n_tiles. */
template <ExpertMatmul Matmul>
struct GroupedItems {
  const ExpertUnit* units;
  uint32_t n_tiles, n_items;

  static constexpr uint32_t kOutputs = Matmul == kGateUp ? kGroupedWeights / 2 : kGroupedWeights;

  __device__ __forceinline__ GroupedItems(const ExpertUnit* plan, uint32_t n_out)
      : units(plan + 1), n_tiles((n_out + kOutputs - 1) / kOutputs), n_items(plan[0].count * n_tiles) {}
  /* The unit of an item, which need not exist. */
  __device__ __forceinline__ ExpertUnit unit(uint32_t item) const {
    return item < n_items ? units[item / n_tiles] : ExpertUnit{0, 0, 0, 0};
  }
};

/* Where the loading warpgroup finds the rows of x of a unit of up to Unit pairs. Warp w has rows 16 i + 4 w + lane / 8
 * of x, i = 0, 1, ..; of each row a lane copies chunk lane % 8. */
template <typename Element, ExpertMatmul Matmul, uint32_t Unit>
struct GroupedRows {
  static constexpr uint32_t kRounds = Unit / 16, kChunk = 16 / sizeof(Element);
  const uint32_t* pairs;
  const Element* x;
  uint32_t n_in, per_token;

  /* The rows of x of a unit, spread over the warp: from[j] is that of pair 128 j + 16 (lane / 4) + 4 w + lane % 4. */
  __device__ __forceinline__ void find(const ExpertUnit& unit, uint32_t (&from)[2]) const {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t j = 0; j < 2; ++j) {
      const uint32_t pair = 128 * j + 16 * (lane / 4) + 4 * (threadIdx.x / 32) + lane % 4;
      from[j] = 0;
      if (pair < unit.count) from[j] = Matmul == kGateUp ? pairs[unit.first + pair] / per_token : unit.first + pair;
    }
  }

  /* A stage's columns, from k on, to `to`. */
  __device__ __forceinline__ void copy(unsigned char* to, uint32_t k, uint32_t count, const uint32_t (&from)[2]) const {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t column = k + lane % 8 * kChunk, bytes = column < n_in ? 16 : 0;
    const Element* source = x + (bytes ? column : 0);
    const uint32_t first = 4 * warp + lane / 8;
    const uint32_t at = shared_address(to) + swizzled(first, lane % 8); /* 16 rows on: the same swizzle */
#pragma unroll
    for (uint32_t i = 0; i < kRounds; ++i) {
      const uint32_t row = __shfl_sync(0xffffffffu, from[i / 8], i % 8 * 4 + lane / 8);
      if (16 * i + first < count) copy_async(at + 16 * i * kSwizzleBytes, source + uint64_t(row) * n_in, bytes);
    }
  }
};

/* Where the loading warpgroup is. */
struct StagePlace {
  uint32_t stage, k, tile; /* the stage's number in the pipeline; its first column; its first row of w of the expert */
  const ExpertUnit& unit;
};

/* Keeps the stages of a pipeline full, each of K columns, by the loading warpgroup: their weights by one bulk copy of a
 * map that sees `Elements` as one, and the rest by copy(stage, place, rows of x). Plan entries are fetched two items
 * ahead and rows one, so that nothing waits for them. */
template <uint32_t K, uint32_t Stages, uint32_t Elements, typename Pipeline, ExpertMatmul Matmul, typename Rows,
          typename Copy>
__device__ __forceinline__ void fill_stages(Pipeline& pipeline, const GroupedItems<Matmul>& items, const Rows& rows,
                                            const void* map, const Copy& copy) {
  PipelineState state;
  ExpertUnit unit = items.unit(blockIdx.x), next = items.unit(blockIdx.x + gridDim.x);
  uint32_t from[2], next_from[2];
  rows.find(unit, from);
  for (uint32_t item = blockIdx.x; item < items.n_items; item += gridDim.x) {
    const ExpertUnit after = items.unit(item + 2 * gridDim.x);
    rows.find(next, next_from);
    const uint32_t tile = item % items.n_tiles * GroupedItems<Matmul>::kOutputs;
    for (uint32_t k = 0; k < rows.n_in; k += K, state.next(Stages)) {
      uint64_t* full = pipeline.full + state.index;
      auto& stage = pipeline.stages[state.index];
      barrier_wait(pipeline.empty + state.index, state.phase ^ 1);
      if (threadIdx.x == 0) {
        barrier_expect(full, sizeof(stage.w));
        copy_tile(stage.w, map, k / Elements, tile, Matmul == kGateUp ? 2 * unit.expert : unit.expert, full);
      }
      copy(stage, StagePlace{state.index, k, tile, unit}, from);
      barrier_arrive_copied(full);
    }
    unit = next, next = after;
    from[0] = next_from[0], from[1] = next_from[1];
  }
}

/* The loading warpgroup. */
template <typename Half, ExpertMatmul Matmul>
struct GroupedProducer {
  const void* map;
  GroupedRows<Half, Matmul, kGroupedUnit> rows;

  __device__ __forceinline__ void run(GroupedPipeline& pipeline, const GroupedItems<Matmul>& items) const {
    fill_stages<kGroupedK, kGroupedStages, 1>(
        pipeline, items, rows, map, [&](GroupedStage& stage, const StagePlace& at, const uint32_t (&from)[2]) {
          rows.copy(stage.x, at.k, at.unit.count, from);
        });
  }
};

/* Where a multiplying warpgroup, `group` 0 or 1, puts its sums, of up to Unit pairs. Biased: gate and up have a bias.
 */
template <typename Half, ExpertMatmul Matmul, uint32_t Unit, bool Biased = false>
struct GroupedOutputs {
  using Sums = float[2][Unit / 2];
  uint32_t group, n_out;
  const uint32_t* pairs;
  Half* out;
  const Half* bias = nullptr; /* [experts][2][n_out] */

  /* The two times 64 rows of w: gate and up of the same outputs, or neighbours. */
  __device__ __forceinline__ uint32_t first_row() const { return Matmul == kGateUp ? 64 * group : 128 * group; }
  static constexpr uint32_t kSecondRow = Matmul == kGateUp ? kGroupedWeights / 2 : 64;

  /* The rows of the output of a unit, spread over the warp. */
  __device__ __forceinline__ void find(const ExpertUnit& unit, uint32_t (&rows)[Unit / 32]) const {
#pragma unroll
    for (uint32_t j = 0; j < Unit / 32; ++j) {
      const uint32_t pair = 32 * j + threadIdx.x % 32;
      rows[j] = unit.first + pair;
      if (Matmul == kDown) rows[j] = pair < unit.count ? pairs[unit.first + pair] : 0;
    }
  }

  /* Adds the biases of the item's gate and up to its sums, of `count` pairs: a thread has two outputs of each. */
  __device__ __forceinline__ void add_bias(Sums& sums, uint32_t expert, uint32_t count, uint32_t tile) const {
    const uint32_t o =
        tile * GroupedItems<Matmul>::kOutputs + first_row() + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    float of[2][2];
#pragma unroll
    for (uint32_t up = 0; up < 2; ++up)
#pragma unroll
      for (uint32_t h = 0; h < 2; ++h)
        of[up][h] = o + 8 * h < n_out ? to_float(bias[(uint64_t(expert) * 2 + up) * n_out + o + 8 * h]) : 0.0f;
#pragma unroll
    for (uint32_t first = 0; first < Unit; first += 8) {
      if (first >= count) break;
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) sums[0][first / 2 + i] += of[0][i / 2], sums[1][first / 2 + i] += of[1][i / 2];
    }
  }

  /* Writes the item's outputs, of the pairs that exist, 16 bytes a lane. The warp's results are turned in `turned`:
   * 32 x 8, of 16 outputs and 16 pairs or 2 times 16 outputs and 8 pairs. */
  __device__ __forceinline__ void store(unsigned char* turned, const Sums& sums, const uint32_t (&rows)[Unit / 32],
                                        uint32_t count, uint32_t tile) const {
    constexpr uint32_t kPairs = Matmul == kGateUp ? 16 : 8;
    const uint32_t lane = threadIdx.x % 32, part = lane / 16;
    const uint32_t o = tile * GroupedItems<Matmul>::kOutputs + first_row() + threadIdx.x / 32 % 4 * 16 +
                       (Matmul == kGateUp ? 0 : 64 * part) + lane % 2 * 8;
#pragma unroll
    for (uint32_t first = 0; first < Unit; first += kPairs) {
      if (first >= count) break;
      uint32_t m[4];
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t at = Matmul == kGateUp ? first / 2 + 4 * (i / 2) + 2 * (i % 2) : first / 2 + 2 * (i % 2);
        m[i] = Matmul == kGateUp ? pack<Half>(gated(sums[0][at], sums[1][at]), gated(sums[0][at + 1], sums[1][at + 1]))
                                 : pack<Half>(sums[i / 2][at], sums[i / 2][at + 1]);
      }
      const uint32_t pair = first + (Matmul == kGateUp ? 8 * part : 0) + lane / 2 % 8;
      const uint32_t row = __shfl_sync(0xffffffffu, rows[first / 32], pair % 32);
      __syncwarp(); /* the results before have been read */
      store_transposed(turned + part * 256 + lane % 8 * 32 + lane / 8 % 2 * 16, m);
      __syncwarp();
      const uint4 value = *reinterpret_cast<const uint4*>(turned + lane * 16);
      if (pair < count && o < n_out) *reinterpret_cast<uint4*>(out + uint64_t(row) * n_out + o) = value;
    }
  }
};

/* A multiplying warpgroup. */
template <typename Half, ExpertMatmul Matmul, bool Biased>
struct GroupedConsumer {
  using Outputs = GroupedOutputs<Half, Matmul, kGroupedUnit, Biased>;
  using Sums = typename Outputs::Sums;
  Outputs outputs;
  uint32_t n_in;

  /* Sums of an item over k, of the first N pairs. */
  template <int N>
  __device__ __forceinline__ void multiply(GroupedPipeline& pipeline, PipelineState& state, Sums& sums) const {
    auto& first = reinterpret_cast<float (&)[N / 2]>(sums[0]);
    auto& second = reinterpret_cast<float (&)[N / 2]>(sums[1]);
    uint64_t* used = nullptr; /* the stage before, which is read until the wgmma after it have begun */
    for (uint32_t k = 0; k < n_in; k += kGroupedK, state.next(kGroupedStages)) {
      const GroupedStage& stage = pipeline.stages[state.index];
      barrier_wait(pipeline.full + state.index, state.phase);
      fence_async_proxy(); /* x, which came by generic copies */
      const uint64_t x = matrix_descriptor(stage.x, kGroupBytes, kNoColumns);
      const uint64_t w_low = matrix_descriptor(stage.w + outputs.first_row() * kSwizzleBytes, kGroupBytes, kNoColumns);
      const uint64_t w_high = advance(w_low, Outputs::kSecondRow * kSwizzleBytes);
      wgmma_fence();
#pragma unroll
      for (uint32_t part = 0; part < kGroupedK / kWgmmaK; ++part) {
        const uint32_t at = 2 * kWgmmaK * part;
        const bool add = k + part != 0;
        wgmma(first, advance(w_low, at), advance(x, at), add, Half());
        wgmma(second, advance(w_high, at), advance(x, at), add, Half());
      }
      wgmma_commit();
      wgmma_wait<1>();
      if (used && threadIdx.x % 32 == 0) barrier_arrive(used);
      used = pipeline.empty + state.index;
    }
    wgmma_wait<0>();
    if (threadIdx.x % 32 == 0) barrier_arrive(used);
    settle(first);
    settle(second);
  }

  __device__ __forceinline__ void run(GroupedPipeline& pipeline, const GroupedItems<Matmul>& items) const {
    PipelineState state;
    ExpertUnit unit = items.unit(blockIdx.x);
    for (uint32_t at = blockIdx.x; at < items.n_items; at += gridDim.x) {
      const ExpertUnit next = items.unit(at + gridDim.x);
      const uint32_t tile = at % items.n_tiles;
      uint32_t rows[kGroupedUnit / 32];
      outputs.find(unit, rows);
      Sums sums;
      if (unit.count <= 64)
        multiply<64>(pipeline, state, sums);
      else if (unit.count <= 96)
        multiply<96>(pipeline, state, sums);
      else if (unit.count <= 128)
        multiply<128>(pipeline, state, sums);
      else
        multiply<kGroupedUnit>(pipeline, state, sums);
      if constexpr (Biased) outputs.add_bias(sums, unit.expert, unit.count, tile);
      outputs.store(pipeline.turned[threadIdx.x / 32 - 4], sums, rows, unit.count, tile);
      unit = next;
    }
  }
};

/* grid (any), block (kGroupedThreads), kGroupedSharedBytes of shared memory; units of kGroupedUnit pairs; n_in and
 * n_out multiples of 8. The map sees w as [experts][n_out][n_in], or gate_up as [2 experts][n_out][n_in], in swizzled
 * boxes of kGroupedWeights rows (of gate_up two times half as many) and kGroupedK columns; what is past the end comes
 * as zero. */
template <typename Half, ExpertMatmul Matmul, bool Biased = false>
__global__ void __launch_bounds__(kGroupedThreads, 1)
    moe_grouped_gemm_kernel(const ExpertUnit* plan, const uint32_t* pairs, const __grid_constant__ TensorMap map,
                            const Half* x, Half* out, uint32_t n_in, uint32_t n_out, uint32_t per_token,
                            const Half* bias) {
  static_assert(!Biased || Matmul == kGateUp, "no such kernel");
  GroupedPipeline& pipeline = *reinterpret_cast<GroupedPipeline*>(dynamic_shared());
  begin_grouped<kGroupedStages>(pipeline);
  const GroupedItems<Matmul> items(plan, n_out);
  if (threadIdx.x < kWarpgroup) {
    keep_registers<kGroupedProducerRegisters>();
    GroupedProducer<Half, Matmul>{&map, {pairs, x, n_in, per_token}}.run(pipeline, items);
  } else {
    take_registers<kGroupedConsumerRegisters>();
    const uint32_t group = threadIdx.x / kWarpgroup - 1;
    GroupedConsumer<Half, Matmul, Biased>{{group, n_out, pairs, out, bias}, n_in}.run(pipeline, items);
  }
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_MOE_GROUPED_GEMM_SM90_H */
