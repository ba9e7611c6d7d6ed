/* One token's experts whose weights are codes of four bits and which have biases: what the Biased kernels of
 * single_token.h and single_token_down.h compute, with their arguments, for experts of at most kFewExperts a token. All
 * weights and their scales go through shared memory (expert_ring.h says why).
 *
 * gate_up is that of several tokens (narrow_expert_gemv.h), with a unit for each of the token's experts: blocks have
 * neighbouring tiles, and the token stays in registers.
 *
 * down adds up all experts of an output in one block. Two warps have an expert, and each of them four parts of k, of
 * one of which the tensor cores' 16 rows have 4 outputs: rows of few outputs make many tiles, which spread evenly, and
 * of which a lane holds its x in registers. A part is multiplied by its own part of x, a column for each; the other
 * products of the instruction are not used.
 */
#ifndef BLINK_OPS_MOE_SINGLE_TOKEN_CODES_H
#define BLINK_OPS_MOE_SINGLE_TOKEN_CODES_H

#include "narrow_expert_gemv.h"
#include "single_token.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kFewExperts = 4;  /* of a token at most */
constexpr uint32_t kTokenRounds = 2; /* of 8 elements of the token that a thread holds in gate_up */
constexpr uint32_t kCodesMostHidden = kTokenRounds * kGemvThreads * 8;

constexpr uint32_t kFewOutputs = 4;                 /* of a tile of down */
constexpr uint32_t kFewQuarters = 16 / kFewOutputs; /* parts of k that a warp has */
constexpr uint32_t kFewParts = kGemvWarps / kFewExperts * kFewQuarters;
constexpr uint32_t kFewDepth = 3;                                   /* chunks of a part at most: all of gpt-oss's */
constexpr uint32_t kFewTiles = 3;                                   /* in flight: all that a block has in gpt-oss */
constexpr uint32_t kCodesMostColumns = kFewParts * kFewDepth * 128; /* of a row of down */
static_assert(kCodesMostColumns == kFewParts * kFewDepth * kChunkWeights<kFp4By32>, "chunks are of 128 codes");
constexpr uint32_t kFewDownBytes = 92160; /* of dynamic shared memory */
static_assert(kFewDownBytes == kGemvWarps * kFewTiles * kFewDepth * kSlotVectors<kFp4By32> * sizeof(uint4),
              "a slot for each chunk in flight");

/* The token's experts as multiply_narrow takes them: a pair each, of token 0. */
struct SingleTokenPlan {
  const ExpertUnit* units;
  uint32_t n_units, n_groups;
  const uint32_t* pairs;
};

/* grid (any), block (kGemvThreads), kExpertRingBytes and n_in halves of dynamic shared memory; n_in a multiple of
 * kCodeGroup and at most kCodesMostHidden, n_out a multiple of 8, per_token at most kFewExperts and n_experts. Lets its
 * successor start when the routing is there (E14). */
template <typename Half, ScaleForm Form>
__global__ void __launch_bounds__(kGemvThreads, kGemvBlocks)
    moe_single_codes_gate_up_kernel(const __grid_constant__ SingleTokenRouting routing, const float* residual,
                                    const Half* norm, float eps, CodeMatrix w, Half* product, uint32_t n_in,
                                    uint32_t n_out, uint32_t per_token, const Half* router_bias, const Half* bias) {
  static_assert(kGemvThreads == kExpertThreads, "blocks are those of both");
  __shared__ SingleTokenScratch scratch;
  __shared__ ExpertSums sums;
  __shared__ uint32_t token[kFewExperts];
  Half* const resident = reinterpret_cast<Half*>(reinterpret_cast<char*>(dynamic_shared()) + kExpertRingBytes);
  const uint32_t t = threadIdx.x;
  const bool padding = routing.set.token_sequence[0] == BLINK_NO_SEQUENCE;
  uint4 factors[kTokenRounds] = {};
#pragma unroll
  for (uint32_t round = 0; round < kTokenRounds; ++round) {
    const uint32_t j = (round * kGemvThreads + t) * 8;
    load_weight(norm + j, j < n_in, factors[round]);
  }
  const float own_bias = t < routing.n_experts ? to_float(router_bias[t]) : 0.0f;
  if (t < kFewExperts) token[t] = 0;
  wait_for_predecessor();
  float element[kTokenRounds][8] = {};
  route_single<true>(scratch, routing, residual, element, n_in, per_token, eps, own_bias);

  const auto norm_token = [&] {
    if (blockIdx.x + 1 == gridDim.x && t < 32) publish_routing<true>(scratch, routing, per_token, 1.0f, padding, t);
    const float scale = norm_factor(scratch, n_in, eps);
#pragma unroll
    for (uint32_t round = 0; round < kTokenRounds; ++round) {
      const uint32_t j = (round * kGemvThreads + t) * 8;
      multiply_by<Half>(element[round], factors[round]);
#pragma unroll
      for (float& value : element[round]) value *= scale;
      if (j < n_in) store8(resident + j, element[round]);
    }
    __syncthreads();
    allow_successor();
  };
  const uint32_t n_units = padding ? 0 : per_token;
  const SingleTokenPlan plan = {scratch.units, n_units, n_units, token};
  multiply_narrow<Half, kGateUp, Form, true>(sums, plan, w, resident, product, n_in, n_out, bias, norm_token);
}

/* A part of k: 32 columns at a time, a lane's of a chunk. */
struct FewPart {
  uint32_t first, n; /* the lane's first column, and in how many chunks it has some */

  __device__ __forceinline__ FewPart(uint32_t number, uint32_t n_in) {
    const uint32_t all = n_in / kCodeGroup, share = (all + kFewParts - 1) / kFewParts, lane = threadIdx.x % 4;
    const uint32_t begin = min(all, number * share), end = min(all, begin + share);
    first = (begin + lane) * kCodeGroup;
    n = begin + lane < end ? (end - begin - lane + 3) / 4 : 0;
  }
};

/* A lane's weights in flight: two rows of the tensor cores' 16, which are parts of one output, of each tile. */
template <ScaleForm Form>
struct FewStream {
  static constexpr uint32_t kChunk = kChunkWeights<Form>, kSlots = kFewTiles * kFewDepth, kStride = kSlotVectors<Form>;
  FewPart low, high;
  CodePointer codes; /* of the lane's output in the tile that is asked for next */
  uint32_t n_in, tile, n_tiles, words, tile_words;
  ScalePlace<Form> low_scale, high_scale;
  uint4* place;   /* the lane's in the warp's first slot */
  uint32_t* word; /* the same of a scale */

  __device__ __forceinline__ FewStream(const CodeMatrix& w, uint32_t part, uint64_t first_row, bool is_expert,
                                       uint32_t in, uint32_t out)
      : low(part, is_expert ? in : 0),
        high(part + kFewQuarters / 2, is_expert ? in : 0),
        n_in(in),
        tile(blockIdx.x),
        n_tiles(out / kFewOutputs),
        words((kChunk >> w.shift) / (Form == kFp4By32 ? 4 : 1)),
        tile_words((kFewOutputs * (in >> w.shift)) / (Form == kFp4By32 ? 4 : 1)),
        low_scale(w, (first_row + row()) * (in >> w.shift) + (low.first >> w.shift)),
        high_scale(w, (first_row + row()) * (in >> w.shift) + (high.first >> w.shift)) {
    codes = elements_of(w) + (first_row + row()) * in;
    place = reinterpret_cast<uint4*>(dynamic_shared()) + threadIdx.x / 32 * (kSlots * kStride) + threadIdx.x % 32;
    word = reinterpret_cast<uint32_t*>(place - threadIdx.x % 32 + 64) + threadIdx.x % 32;
#pragma unroll
    for (uint32_t slot = 0; slot < kSlots; slot += kFewDepth) {
#pragma unroll
      for (uint32_t c = 0; c < kFewDepth; ++c) request(c, slot + c);
      advance();
    }
  }
  /* In the first tile. */
  __device__ __forceinline__ uint32_t row() const {
    return blockIdx.x * kFewOutputs + threadIdx.x % 32 / 4 % kFewOutputs;
  }
  __device__ __forceinline__ void request(uint32_t c, uint32_t slot) const {
    const bool wants_low = tile < n_tiles && c < low.n, wants_high = tile < n_tiles && c < high.n;
    copy_weight(place + slot * kStride, codes + (low.first + c * kChunk), wants_low);
    copy_weight(place + slot * kStride + 32, codes + (high.first + c * kChunk), wants_high);
    if (wants_low) copy_async_word(word + slot * kStride * 4, low_scale.word + c * words);
    if (wants_high) copy_async_word(word + slot * kStride * 4 + 32, high_scale.word + c * words);
    commit_copies();
  }
  __device__ __forceinline__ void advance() {
    tile += gridDim.x, codes += int64_t(gridDim.x) * kFewOutputs * n_in;
    low_scale.word += gridDim.x * tile_words, high_scale.word += gridDim.x * tile_words;
  }
  /* The chunk that was asked for first. Where there is none its codes are zeros, and so is x: of a scale that no copy
   * has brought, NaN must not become. */
  __device__ __forceinline__ LaneChunk<Form> take(uint32_t c, uint32_t slot) const {
    constexpr uint32_t kFinite = 254;
    wait_for_copies<kSlots - 1>();
    LaneChunk<Form> chunk;
    chunk.low = place[slot * kStride], chunk.high = place[slot * kStride + 32];
    chunk.low_scale = c < low.n ? low_scale.of(word[slot * kStride * 4]) : kFinite;
    chunk.high_scale = c < high.n ? high_scale.of(word[slot * kStride * 4 + 32]) : kFinite;
    return chunk;
  }
};

/* What is in the residual for a thread's output, and what each expert adds to it beside its sum: a thread for each
 * output of the block, so that nothing is loaded between its tiles. */
struct FewOutput {
  uint32_t tile, at; /* in the block's order */
  bool exists;
  float before, share[kFewExperts], bias[kFewExperts];

  template <typename Half>
  __device__ __forceinline__ FewOutput(const uint32_t (&expert)[kFewExperts], const Half* biases, uint32_t n_out)
      : tile(threadIdx.x / kFewOutputs), before(0.0f) {
    at = (blockIdx.x + tile * gridDim.x) * kFewOutputs + threadIdx.x % kFewOutputs;
    exists = at < n_out;
#pragma unroll
    for (uint32_t e = 0; e < kFewExperts; ++e)
      bias[e] = exists && expert[e] != kNoExpert ? to_float(biases[uint64_t(expert[e]) * n_out + at]) : 0.0f;
  }
  /* When the predecessor has ended. */
  __device__ __forceinline__ void load(const float* residual, const float* weight, uint32_t per_token) {
    if (exists) before = residual[at];
#pragma unroll
    for (uint32_t e = 0; e < kFewExperts; ++e) share[e] = e < per_token ? weight[e] : 0.0f;
  }
};

/* The lane's output's sum over the warp's parts of k, of lanes 0, 4, 8 and 12: part 0 or 1 of row r is product r / 4 of
 * lane 4 r, and 2 or 3 that of lane 4 r + 1. */
__device__ __forceinline__ float sum_of_parts(const float (&acc)[4]) {
  const uint32_t r = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
  const float first = r < kFewOutputs ? acc[0] : acc[1], second = r < kFewOutputs ? acc[2] : acc[3];
  float sum = q == 0 ? first : second;
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  return sum + __shfl_xor_sync(0xffffffffu, sum, 16);
}

/* grid (any), block (kGemvThreads), kFewDownBytes of dynamic shared memory; per_token at most kFewExperts, n_in a
 * multiple of kCodeGroup and at most kCodesMostColumns, n_out of kFewOutputs and at most kGemvThreads * gridDim.x. Its
 * predecessor is gate_up, as that of moe_single_token_down_kernel is. */
template <typename Half, ScaleForm Form>
__global__ void __launch_bounds__(kGemvThreads, kGemvBlocks)
    moe_single_codes_down_kernel(const uint32_t* topk_ids, const float* weight, int64_t* sums, uint32_t n_sums,
                                 CodeMatrix w, const Half* x, float* residual, uint32_t n_in, uint32_t n_out,
                                 uint32_t per_token, const Half* bias) {
  constexpr uint32_t kVectors = kLaneVectors<Form>, kChunk = kChunkWeights<Form>;
  __shared__ float part[2][kGemvWarps][kFewOutputs]; /* two tiles in turn */
  allow_successor();
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, place = warp % kFewExperts;
  uint32_t expert[kFewExperts];
#pragma unroll
  for (uint32_t e = 0; e < kFewExperts; ++e) expert[e] = e < per_token ? load_relaxed32(topk_ids + e) : kNoExpert;
  uint32_t own = expert[0];
#pragma unroll
  for (uint32_t e = 1; e < kFewExperts; ++e)
    if (place == e) own = expert[e];
  const bool exists = own != kNoExpert;
  const uint32_t first_part = warp / kFewExperts * kFewQuarters;
  FewStream<Form> stream(w, first_part + lane / 4 / kFewOutputs, exists ? uint64_t(own) * n_out : 0, exists, n_in,
                         n_out);
  FewOutput output(expert, bias, n_out);
  wait_for_predecessor();
  output.load(residual, weight, per_token);
  if (blockIdx.x + 1 == gridDim.x)
    for (uint32_t i = threadIdx.x; i < n_sums; i += kGemvThreads) sums[i] = 0;
  const FewPart of_x(first_part + lane / 4 % kFewQuarters, n_in);
  const Half* const row = x + uint64_t(place) * n_in + of_x.first;
  uint4 value[kFewDepth][1][kVectors] = {};
#pragma unroll
  for (uint32_t c = 0; c < kFewDepth; ++c)
#pragma unroll
    for (uint32_t v = 0; v < kVectors; ++v)
      if (exists && lane / 4 < kFewQuarters && c < of_x.n)
        value[c][0][v] = *reinterpret_cast<const uint4*>(row + c * kChunk + 8 * v);

  uint32_t slot = 0, number = 0;
  for (uint32_t tile = blockIdx.x; tile < stream.n_tiles; tile += gridDim.x, ++number) {
    float acc[1][4] = {};
#pragma unroll
    for (uint32_t c = 0; c < kFewDepth; ++c) {
      multiply_chunk<Half, Form, 1>(acc, stream.take(c, slot + c), value[c]);
      stream.request(c, slot + c);
    }
    stream.advance();
    slot = slot + kFewDepth == FewStream<Form>::kSlots ? 0 : slot + kFewDepth;
    const float sum = sum_of_parts(acc[0]);
    if (lane % 4 == 0 && lane / 4 < kFewOutputs) part[number % 2][warp][lane / 4] = sum;
    __syncthreads(); /* also: all have read the other buffer */
    if (output.tile != number) continue;
    float total = output.before;
#pragma unroll
    for (uint32_t e = 0; e < kFewExperts; ++e) {
      const uint32_t o = threadIdx.x % kFewOutputs;
      total += output.share[e] * (part[number % 2][e][o] + part[number % 2][kFewExperts + e][o] + output.bias[e]);
    }
    residual[output.at] = total;
  }
  wait_for_copies<0>(); /* the last ones, of nothing but zeros */
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_MOE_SINGLE_TOKEN_CODES_H */
