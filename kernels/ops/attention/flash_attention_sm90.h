/* Attention of a prefill step on Hopper, after FlashAttention-3 (Shah et al., 2024): one warp copies queries, keys and
 * values into shared memory, two warpgroups of 64 rows each multiply, and the wgmma instructions run while the softmax
 * of the tile before is computed. Arguments, maths and CPU reference are those of attention.h; for head sizes 64 and
 * 128.
 *
 * A row of a tile is a query of one token and head: the `pack` heads of a token, which share their keys, come one
 * after the other, so that a tile of 128 rows has 128 / pack tokens.
 *
 * The keys of a unit may be divided into parts (prefill_plan.h). A warp leaves the rows of one of several parts in
 * global memory, and the last to do so adds them up (flash_parts_sm90.h).
 *
 * E24. In a mixed step RoPE comes before the attention of the sequences that decode, and that attention lets its
 * successor, this kernel, start only when RoPE has ended. So this kernel reads what RoPE has written, by bulk copies,
 * and waits for its predecessor at its end. Nothing else that may run beside it has parts of units: the kernel of the
 * layer before had ended before the matmul began from which RoPE takes its queries, for every kernel between them waits
 * for its predecessor (E7); and the one of the next layer begins after that layer's RoPE, which comes after this one.
 */
#ifndef BLINK_OPS_ATTENTION_FLASH_ATTENTION_SM90_H
#define BLINK_OPS_ATTENTION_FLASH_ATTENTION_SM90_H

#include "flash_fp8_sm90.h"
#include "flash_parts_sm90.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kFlashThreads = 128 * (kFlashGroups + 1);
constexpr uint32_t kFlashFp8Threads = 128 * (kFlashGroups + 2); /* with a cache in fp8 */

/* Warpgroups before those that multiply. */
template <typename Cache>
constexpr uint32_t kFlashFilling = KvElement<Cache>::kFp8 ? 2 : 1;

static_assert(kFlashWarps == 4 * kFlashGroups, "each counts the parts that have its rows");

/* A warpgroup that multiplies. */
template <typename Out, int HeadDim, typename Cache, bool Sinks>
class FlashConsumer {
 public:
  using Half = typename KvElement<Cache>::Half;
  using Shared = FlashShared<Cache, HeadDim>;

  __device__ __forceinline__ FlashConsumer(Shared& shared, const FlashArguments<Out>& arguments,
                                           const KvScales<Cache>& scales)
      : shared_(shared),
        a_(arguments),
        scales_(scales),
        q_(matrix_descriptor(shared.q[group_], kFlashAtom, kFlashAtom)),
        k_(matrix_descriptor(shared.k[0], HeadDim / 64 * kFlashAtom, kFlashAtom)),
        v_(matrix_descriptor(shared.v[0], HeadDim / 64 * kFlashAtom, kFlashAtom)) {}

  __device__ __forceinline__ void run() {
    if (group_ == 1) end_turn();
    for (FlashWork work(a_); work.next();) {
      const PrefillUnit unit = a_.plan[1 + work.unit()];
      begin(unit);
      uint32_t tile = unit.first_tile;
      first_tile(tile);
      for (++tile; tile < min(full_tiles_, unit.end_tile); ++tile) next_tile<false>(tile);
      for (; tile < unit.end_tile; ++tile) next_tile<true>(tile);
      release(&shared_.q_empty);
      last_values(unit.part + 1 == unit.parts ? unit.keys % kFlashKeys : 0);
      if (unit.parts == 1 || is_complete(unit, work.head(a_.pack))) store(unit, work.head(a_.pack));
    }
  }

 private:
  static constexpr uint32_t kTileBytes = Shared::kTileBytes;

  __device__ __forceinline__ void begin(const PrefillUnit& unit) {
    const uint32_t before = unit.keys - unit.count; /* keys of the tokens before the unit */
    full_tiles_ = (before + group_ * 64 / a_.pack + 1) / kFlashKeys;
    last_[0] = int32_t(before + row_ / a_.pack), last_[1] = int32_t(before + (row_ + 8) / a_.pack);
    rows_.start();
    barrier_wait(&shared_.q_full, q_parity_);
    q_parity_ ^= 1;
  }

  /* The warpgroups issue their wgmma in turns, so that one multiplies while the other computes weights. */
  __device__ __forceinline__ void begin_turn() { group_sync(1 + group_, 128 * kFlashGroups); }
  __device__ __forceinline__ void end_turn() { group_arrive(2 - group_, 128 * kFlashGroups); }

  __device__ __forceinline__ void release(uint64_t* barrier) {
    if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
  }

  /* The scores of the part's first tile, of which every row sees the first key. */
  __device__ __forceinline__ void first_tile(uint32_t tile) {
    issue_keys();
    end_turn();
    wgmma_wait<0>();
    take_scores();
    if (tile >= full_tiles_) rows_.mask(last_, int32_t(tile * kFlashKeys) + my_key_);
    rows_.softmax(scales_.key);
    rows_.pack_weights();
  }

  /* The scores of tile `tile`, and the output of the one before. */
  template <bool Masked>
  __device__ __forceinline__ void next_tile(uint32_t tile) {
    issue_keys();
    barrier_wait(shared_.v_full + v_stage_.index, v_stage_.phase);
    issue_values();
    end_turn();
    wgmma_wait<1>();
    take_scores();
    if (Masked) rows_.mask(last_, int32_t(tile * kFlashKeys) + my_key_);
    rows_.softmax(scales_.key);
    wgmma_wait<0>();
    take_output();
    rows_.rescale();
    rows_.pack_weights();
  }

  /* The output of the part's last tile, of whose keys only the first `n` exist, or all if n is 0. */
  __device__ __forceinline__ void last_values(uint32_t n) {
    barrier_wait(shared_.v_full + v_stage_.index, v_stage_.phase);
    if (n) clear_values(shared_.v[v_stage_.index], n);
    issue_values();
    wgmma_wait<0>();
    take_output();
  }

  __device__ __forceinline__ void issue_keys() {
    barrier_wait(shared_.k_full + k_stage_.index, k_stage_.phase);
    begin_turn();
    wgmma_fence();
    rows_.multiply_keys(q_, advance(k_, k_stage_.index * kTileBytes));
    wgmma_commit();
  }
  __device__ __forceinline__ void issue_values() {
    wgmma_fence();
    rows_.multiply_values(advance(v_, v_stage_.index * kTileBytes));
    wgmma_commit();
  }

  __device__ __forceinline__ void take_scores() {
    settle(rows_.s);
    release(shared_.k_empty + k_stage_.index);
    k_stage_.next(kFlashStages);
  }
  __device__ __forceinline__ void take_output() {
    settle(rows_.out);
    release(shared_.v_empty + v_stage_.index);
    v_stage_.next(kFlashStages);
  }

  /* The values of keys from `n` on are zero: their weight is 0, and 0 times a stale value may be NaN. Each warpgroup
   * does it for itself. */
  __device__ __forceinline__ void clear_values(char* v, uint32_t n) {
    constexpr uint32_t kVectors = HeadDim / 8; /* of 16 bytes; swizzling moves them within their row */
    for (uint32_t e = n * kVectors + threadIdx.x % 128; e < kFlashKeys * kVectors; e += 128) {
      const uint32_t key = e / kVectors, vector = e % kVectors;
      const uint32_t at = (key / 8 * (HeadDim / 64) + vector / 8) * kFlashAtom + key % 8 * 128 + vector % 8 * 16;
      *reinterpret_cast<uint4*>(v + at) = make_uint4(0, 0, 0, 0);
    }
    fence_async_proxy();
    group_sync(1 + kFlashGroups + group_, 128);
  }

  /* Leaves the thread's rows of one of several parts. Whether the warp was the last to do so: it then has the rows of
   * the whole unit. */
  __device__ __forceinline__ bool is_complete(const PrefillUnit& unit, uint32_t first_head) {
    float* rows[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint64_t row = place_of(unit, first_head, h) * a_.most_parts;
      rows[h] = exists(unit, h) ? a_.parts + row * (HeadDim + kFlashPartWords) : nullptr;
    }
    const FlashParts<Half, HeadDim> parts(rows);
    parts.leave(rows_, unit.part);
    const uint32_t tile = unit.first * (a_.n_heads / a_.pack) + first_head / a_.pack;
    if (!parts.last_to_leave(a_.arrivals + tile * kFlashWarps + row_ / 16, unit.parts)) return false;
    parts.add_up(rows_, unit.parts, scales_.key);
    return true;
  }

  /* Of the thread's rows, row_ + 8 h: whether the unit has its token, and the step's queries before it. */
  __device__ __forceinline__ bool exists(const PrefillUnit& unit, int h) const {
    return (row_ + 8 * h) / a_.pack < unit.count;
  }
  __device__ __forceinline__ uint64_t place_of(const PrefillUnit& unit, uint32_t first_head, int h) const {
    const uint32_t token = (row_ + 8 * h) / a_.pack, head = first_head + (row_ + 8 * h) % a_.pack;
    return uint64_t(unit.first + token) * a_.n_heads + head;
  }

  __device__ __forceinline__ void store(const PrefillUnit& unit, uint32_t first_head) {
    Out* target[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint64_t place = place_of(unit, first_head, h);
      target[h] = exists(unit, h) ? a_.out + place * HeadDim : nullptr;
      if (Sinks) rows_.add_sink(h, to_float(a_.sinks[place % a_.n_heads]), scales_.key);
    }
    rows_.store(target, scales_.value);
  }

  Shared& shared_;
  const FlashArguments<Out>& a_;
  const KvScales<Cache>& scales_;
  const uint32_t group_ = threadIdx.x / 128 - kFlashFilling<Cache>;
  const uint32_t row_ = group_ * 64 + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4; /* and row_ + 8, of the tile */
  const int32_t my_key_ = int32_t(threadIdx.x % 4 * 2);
  const uint64_t q_, k_, v_;
  PipelineState k_stage_, v_stage_;
  uint32_t q_parity_ = 0;
  uint32_t full_tiles_; /* that every row of the warpgroup sees whole */
  int32_t last_[2];     /* keys that the thread's rows see */
  FlashAccumulators<Half, HeadDim> rows_;
};

/* grid (any), block (kFlashThreads, or kFlashFp8Threads with a cache in fp8), FlashShared and kFlashAtom bytes of
 * shared memory. `queries` sees qkv as [HeadDim / 64][tokens][n_heads + 2 n_kv_heads][64], its boxes are
 * [HeadDim / 64][64 / pack][pack][64]; so does `fresh`, with boxes of [HeadDim / 64][8][1][64], which only a cache in
 * fp8 needs. `cache` sees the cache of all layers as [cells / 8][HeadDim / 64][8][64], its boxes are
 * [2][HeadDim / 64][8][64]; one of fp8 (Cache) as [cells / 8][1][8][HeadDim / 2] words of 16 bits that are not
 * swizzled, with boxes alike. `pack` is a power of two, at most 64, that divides n_heads / n_kv_heads; pages have a
 * multiple of 16 tokens. `after_decode`: its predecessor is the attention of the sequences that decode, whose results
 * it does not read (E24). `parts` and `arrivals`, of units that the plan divides into up to `most_parts` parts, as in
 * flash_parts_sm90.h. Sinks: `sinks` as in attention.h, null otherwise. */
template <typename Out, int HeadDim, typename Cache = Out, bool Sinks = false>
__global__ void __launch_bounds__(128 * (kFlashGroups + kFlashFilling<Cache>), 1)
    flash_attention_kernel(const __grid_constant__ FlashMap queries, const __grid_constant__ FlashMap fresh,
                           const __grid_constant__ FlashMap cache, const __grid_constant__ struct blink_tables tables,
                           const PrefillUnit* plan, Out* out, uint32_t key_atoms, uint32_t value_atoms,
                           uint32_t n_heads, uint32_t n_kv_heads, uint32_t pack, uint32_t after_decode, float k_scale,
                           float v_scale, float* parts, uint32_t* arrivals, uint32_t most_parts, const Out* sinks) {
  const FlashArguments<Out> arguments = {tables,     plan, out,   key_atoms, value_atoms, n_heads,
                                         n_kv_heads, pack, parts, arrivals,  most_parts,  sinks};
  const uint32_t offset = (kFlashAtom - shared_address(dynamic_shared()) % kFlashAtom) % kFlashAtom;
  auto& shared = *reinterpret_cast<FlashShared<Cache, HeadDim>*>(reinterpret_cast<char*>(dynamic_shared()) + offset);
  if (threadIdx.x == 0) shared.init();
  __syncthreads();
  allow_successor();
  if (!after_decode) wait_for_predecessor();
  if (threadIdx.x < 128 * kFlashFilling<Cache>) {
    if constexpr (KvElement<Cache>::kFp8) {
      keep_registers<48>();
      FlashConverter<Out, HeadDim>(shared, queries, fresh, cache, arguments).run();
    } else {
      keep_registers<24>();
      if (threadIdx.x < 32) FlashProducer<Out, HeadDim, Cache>(shared, queries, cache, arguments).run();
    }
  } else {
    take_registers<KvElement<Cache>::kFp8 ? 208 : 240>();
    const KvScales<Cache> scales(k_scale, v_scale);
    FlashConsumer<Out, HeadDim, Cache, Sinks>(shared, arguments, scales).run();
  }
  if (after_decode) wait_for_predecessor(); /* E24 */
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_ATTENTION_FLASH_ATTENTION_SM90_H */
