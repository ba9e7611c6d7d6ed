/* Attention of a prefill step on Hopper, after FlashAttention-3 (Shah et al., 2024): one warp copies queries, keys and
 * values into shared memory, two warpgroups of 64 rows each multiply, and the products run while the softmax of the
 * tile before is made. Arguments, maths and CPU twin are those of attention.h; for head sizes 64 and 128.
 *
 * A row of a tile is a query of one token and head: the `pack` heads of a token, which share their keys, come one
 * after the other, so that a tile of 128 rows has 128 / pack tokens.
 */
#ifndef BLINK_OPS_ATTENTION_FLASH_H
#define BLINK_OPS_ATTENTION_FLASH_H

#include "prefill_plan.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kFlashGroups = 2;                 /* warpgroups that multiply */
constexpr uint32_t kFlashRows = 64 * kFlashGroups;   /* of a tile */
constexpr uint32_t kFlashKeys = 128;                 /* of a tile */
constexpr uint32_t kFlashBoxKeys = 16;               /* that one copy brings: of one page */
constexpr uint32_t kFlashStages = 2;                 /* tiles of keys, and of values, in shared memory */
constexpr uint32_t kFlashThreads = 128 * (kFlashGroups + 1);
constexpr uint32_t kFlashAtom = 1024;                /* bytes: 8 rows of 64 elements */

/* A CUtensorMap. */
struct alignas(64) FlashMap {
  uint64_t opaque[16];
};

template <int HeadDim>
struct FlashShared {
  static constexpr uint32_t kQueryBytes = 64 * HeadDim * 2; /* of a warpgroup */
  static constexpr uint32_t kTileBytes = kFlashKeys * HeadDim * 2;
  char q[kFlashGroups][kQueryBytes]; /* [HeadDim / 64][64 rows][64], swizzled */
  char k[kFlashStages][kTileBytes];  /* [kFlashKeys / 8][HeadDim / 64][8 keys][64], swizzled; v likewise */
  char v[kFlashStages][kTileBytes];
  uint64_t q_full, q_empty, k_full[kFlashStages], k_empty[kFlashStages], v_full[kFlashStages], v_empty[kFlashStages];
};

/* A place in a ring of stages. */
struct FlashStage {
  uint32_t slot = 0, parity = 0;
  __device__ __forceinline__ void next() {
    if (++slot == kFlashStages) slot = 0, parity ^= 1;
  }
};

/* The blocks' shares of the units of all head groups, the heaviest first: dealt out there and back. */
struct FlashWork {
  uint32_t n, round = 0;
  __device__ __forceinline__ explicit FlashWork(uint32_t count) : n(count) {}
  /* The next item, or n. */
  __device__ __forceinline__ uint32_t next() {
    const uint32_t place = round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    const uint32_t item = round++ * gridDim.x + place;
    return min(item, n);
  }
};

struct FlashArguments {
  struct blink_tables tables;
  const PrefillUnit* plan;
  void* out;
  uint32_t key_atoms, value_atoms; /* of the cache that come before the layer's keys and values, in 8 cells of a head */
  uint32_t n_heads, n_kv_heads, pack;
};

/* The warp that copies. */
template <int HeadDim>
__device__ __forceinline__ void flash_copy(FlashShared<HeadDim>& shared, const FlashMap* queries, const FlashMap* cache,
                                           const FlashArguments& a) {
  const uint32_t lane = threadIdx.x % 32, groups = a.n_heads / a.pack;
  const uint32_t page_boxes = a.tables.page_size / kFlashBoxKeys;
  constexpr uint32_t kBoxBytes = kFlashBoxKeys * HeadDim * 2, kBoxes = kFlashKeys / kFlashBoxKeys;
  FlashStage k_stage, v_stage;
  uint32_t q_parity = 0;
  FlashWork work(a.plan[0].count * groups);
  for (uint32_t item = work.next(); item < work.n; item = work.next()) {
    const PrefillUnit unit = a.plan[1 + item / groups];
    const uint32_t head = item % groups * a.pack, kv_head = head / (a.n_heads / a.n_kv_heads);
    const uint32_t* pages = a.tables.block_table + uint64_t(unit.row) * a.tables.pages_per_row;
    const uint32_t n_boxes = (unit.keys + kFlashBoxKeys - 1) / kFlashBoxKeys, n_tiles = (n_boxes + kBoxes - 1) / kBoxes;
    /* The first cell of box `box`, in atoms from the layer's first. */
    const auto atom_of = [&](uint32_t box) {
      return ((pages[box / page_boxes] * a.n_kv_heads + kv_head) * page_boxes + box % page_boxes) * 2;
    };
    const auto copy = [&](char* to, uint64_t* full, uint64_t* empty, FlashStage& stage, uint32_t atom, uint32_t first) {
      barrier_wait(empty + stage.slot, stage.parity ^ 1);
      const uint32_t n = min(kBoxes, n_boxes - first);
      if (lane == 0) barrier_expect(full + stage.slot, n * kBoxBytes);
      __syncwarp();
      if (lane < n) copy_box4(to + stage.slot * FlashShared<HeadDim>::kTileBytes + lane * kBoxBytes, cache, 0, 0, atom, full + stage.slot);
      stage.next();
    };
    uint32_t atom = lane < min(kBoxes, n_boxes) ? atom_of(lane) : 0;
    barrier_wait(&shared.q_empty, q_parity ^ 1);
    q_parity ^= 1;
    if (lane == 0) barrier_expect(&shared.q_full, kFlashGroups * FlashShared<HeadDim>::kQueryBytes);
    __syncwarp();
    if (lane < kFlashGroups)
      copy_box4(shared.q[lane], queries, head, unit.first + lane * 64 / a.pack, 0, &shared.q_full);
    copy(shared.k[0], shared.k_full, shared.k_empty, k_stage, a.key_atoms + atom, 0);
    for (uint32_t tile = 0; tile < n_tiles; ++tile) {
      const uint32_t first = (tile + 1) * kBoxes, now = atom;
      if (first < n_boxes) {
        atom = first + lane < n_boxes && lane < kBoxes ? atom_of(first + lane) : 0;
        copy(shared.k[0], shared.k_full, shared.k_empty, k_stage, a.key_atoms + atom, first);
      }
      copy(shared.v[0], shared.v_full, shared.v_empty, v_stage, a.value_atoms + now, tile * kBoxes);
    }
  }
}

/* A warpgroup's 64 rows: a thread has rows r and r + 8 of its warp's 16. */
template <typename Half, int HeadDim>
struct FlashRows {
  float out[HeadDim / 2];
  float s[kFlashKeys / 2];         /* scores, then weights */
  uint32_t p[kFlashKeys / 16][4];  /* the weights of the tile before, as an operand */
  float max[2], sum[2], shrink[2]; /* max: of the scores, not yet scaled */

  __device__ __forceinline__ void start() {
#pragma unroll
    for (int i = 0; i < HeadDim / 2; ++i) out[i] = 0.0f;
#pragma unroll
    for (int h = 0; h < 2; ++h) max[h] = -INFINITY, sum[h] = 0.0f;
  }

  /* s = q k. */
  __device__ __forceinline__ void multiply_keys(uint64_t q, uint64_t k) {
#pragma unroll
    for (uint32_t d = 0; d < HeadDim / 16; ++d)
      product(s, advance(q, d / 4 * 64 * 128 + d % 4 * 32), advance(k, d / 4 * kFlashAtom + d % 4 * 32), d != 0, Half());
  }

  /* out += p v. */
  __device__ __forceinline__ void multiply_values(uint64_t v) {
#pragma unroll
    for (uint32_t j = 0; j < kFlashKeys / 16; ++j)
      product(out, p[j], advance(v, j * 2 * (HeadDim / 64) * kFlashAtom), Half());
  }

  /* No weight for keys beyond `last`, of key first, first + 1, first + 8, .. */
  __device__ __forceinline__ void mask(const int32_t (&last)[2], int32_t first) {
#pragma unroll
    for (int i = 0; i < int(kFlashKeys) / 2; ++i)
      if (first + i / 4 * 8 + i % 2 > last[i / 2 % 2]) s[i] = -INFINITY;
  }

  /* Scores to weights. */
  __device__ __forceinline__ void softmax() {
    const float scale = kLog2E / sqrtf(float(HeadDim));
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float part[2] = {max[h], max[h]}; /* two chains: each step waits for the one before */
#pragma unroll
      for (int i = 0; i < int(kFlashKeys) / 4; ++i) part[i % 2] = fmaxf(part[i % 2], s[i / 2 * 4 + 2 * h + i % 2]);
      float next = fmaxf(part[0], part[1]);
      next = fmaxf(next, __shfl_xor_sync(0xffffffffu, next, 1));
      next = fmaxf(next, __shfl_xor_sync(0xffffffffu, next, 2));
      const float base = next * scale;
      shrink[h] = exp2_fast(max[h] * scale - base);
      max[h] = next;
      part[0] = sum[h] * shrink[h], part[1] = 0.0f;
#pragma unroll
      for (int i = 0; i < int(kFlashKeys) / 4; ++i) {
        float& x = s[i / 2 * 4 + 2 * h + i % 2];
        x = exp2_fast(x * scale - base);
        part[i % 2] += x;
      }
      sum[h] = part[0] + part[1];
    }
  }

  __device__ __forceinline__ void rescale() {
#pragma unroll
    for (int i = 0; i < HeadDim / 2; ++i) out[i] *= shrink[i / 2 % 2];
  }

  __device__ __forceinline__ void pack_weights() {
#pragma unroll
    for (int j = 0; j < int(kFlashKeys) / 16; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) p[j][i] = pack<Half>(s[8 * j + 2 * i], s[8 * j + 2 * i + 1]);
  }

  /* Row h of the thread to target[h], or nowhere. The four threads of a row change pieces, so that each stores 16
   * bytes. */
  __device__ __forceinline__ void store(Half* const (&target)[2]) {
    const uint32_t c = threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float total = sum[h] + __shfl_xor_sync(0xffffffffu, sum[h], 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      const float factor = 1.0f / total;
#pragma unroll
      for (int g = 0; g < HeadDim / 32; ++g) {
        uint32_t w[4]; /* of columns 32 g + 8 i */
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = (4 * g + i) * 4 + 2 * h;
          w[i] = pack<Half>(out[at] * factor, out[at + 1] * factor);
        }
        exchange(w, c);
        if (target[h]) *reinterpret_cast<uint4*>(target[h] + 32 * g + 8 * c) = make_uint4(w[0], w[1], w[2], w[3]);
      }
    }
  }

  /* Transposes the 4 x 4 words of four neighbours. */
  static __device__ __forceinline__ void exchange(uint32_t (&w)[4], uint32_t c) {
#pragma unroll
    for (int bit = 1; bit < 4; bit *= 2)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (i & bit) continue;
        const bool upper = c & bit;
        const uint32_t other = __shfl_xor_sync(0xffffffffu, upper ? w[i] : w[i | bit], bit);
        if (upper)
          w[i] = other;
        else
          w[i | bit] = other;
      }
  }
};

/* The values of keys from `n` on are zero: their weight is 0, and 0 times a stale value may be NaN. Each warpgroup does
 * it for itself. */
template <int HeadDim>
__device__ __forceinline__ void clear_values(char* v, uint32_t n, uint32_t barrier) {
  constexpr uint32_t kPieces = HeadDim / 8; /* of 16 bytes; swizzling moves them within their row */
  for (uint32_t e = n * kPieces + threadIdx.x % 128; e < kFlashKeys * kPieces; e += 128) {
    const uint32_t key = e / kPieces, piece = e % kPieces;
    const uint32_t at = (key / 8 * (HeadDim / 64) + piece / 8) * kFlashAtom + key % 8 * 128 + piece % 8 * 16;
    *reinterpret_cast<uint4*>(v + at) = make_uint4(0, 0, 0, 0);
  }
  publish_to_async();
  group_sync(barrier, 128);
}

/* A warpgroup that multiplies. */
template <typename Half, int HeadDim, bool Turns>
__device__ __forceinline__ void flash_multiply(FlashShared<HeadDim>& shared, const FlashArguments& a) {
  constexpr uint32_t kColumns = HeadDim / 64, kTileBytes = FlashShared<HeadDim>::kTileBytes;
  const uint32_t lane = threadIdx.x % 32, group = threadIdx.x / 128 - 1, groups = a.n_heads / a.pack;
  const uint32_t row = group * 64 + threadIdx.x / 32 % 4 * 16 + lane / 4; /* and row + 8 */
  const uint64_t q = matrix_descriptor(shared.q[group], kFlashAtom, kFlashAtom);
  const uint64_t k = matrix_descriptor(shared.k[0], kColumns * kFlashAtom, kFlashAtom);
  const uint64_t v = matrix_descriptor(shared.v[0], kColumns * kFlashAtom, kFlashAtom);
  const auto release = [&](uint64_t* barrier) {
    if (lane == 0) barrier_arrive(barrier);
  };
  /* The warpgroups issue their products in turns, so that one multiplies while the other makes weights. */
  const auto turn = [&] {
    if (Turns) group_sync(1 + group, 128 * kFlashGroups);
  };
  const auto turn_over = [&] {
    if (Turns) group_arrive(2 - group, 128 * kFlashGroups);
  };
  if (group == 1) turn_over();
  FlashStage k_stage, v_stage;
  uint32_t q_parity = 0;
  FlashRows<Half, HeadDim> rows;
  FlashWork work(a.plan[0].count * groups);
  for (uint32_t item = work.next(); item < work.n; item = work.next()) {
    const PrefillUnit unit = a.plan[1 + item / groups];
    const uint32_t n_tiles = (unit.keys + kFlashKeys - 1) / kFlashKeys, base = unit.keys - unit.count;
    const int32_t last[2] = {int32_t(base + row / a.pack), int32_t(base + (row + 8) / a.pack)};
    const uint32_t full_tiles = (base + group * 64 / a.pack + 1) / kFlashKeys; /* that every row of the group sees */
    const int32_t my_key = int32_t(lane % 4 * 2);
    rows.start();
    barrier_wait(&shared.q_full, q_parity);
    q_parity ^= 1;

    barrier_wait(shared.k_full + k_stage.slot, k_stage.parity);
    turn();
    products_begin();
    rows.multiply_keys(q, advance(k, k_stage.slot * kTileBytes));
    products_commit();
    turn_over();
    products_wait<0>();
    settle(rows.s);
    release(shared.k_empty + k_stage.slot);
    k_stage.next();
    if (full_tiles == 0) rows.mask(last, my_key);
    rows.softmax();
    rows.pack_weights();

    const auto step = [&](auto masked, uint32_t tile) {
      barrier_wait(shared.k_full + k_stage.slot, k_stage.parity);
      turn();
      products_begin();
      rows.multiply_keys(q, advance(k, k_stage.slot * kTileBytes));
      products_commit();
      barrier_wait(shared.v_full + v_stage.slot, v_stage.parity);
      products_begin();
      rows.multiply_values(advance(v, v_stage.slot * kTileBytes));
      products_commit();
      turn_over();
      products_wait<1>();
      settle(rows.s);
      release(shared.k_empty + k_stage.slot);
      k_stage.next();
      if (masked()) rows.mask(last, int32_t(tile * kFlashKeys) + my_key);
      rows.softmax();
      products_wait<0>();
      settle(rows.out);
      release(shared.v_empty + v_stage.slot);
      v_stage.next();
      rows.rescale();
      rows.pack_weights();
    };
    uint32_t tile = 1;
    for (; tile < min(full_tiles, n_tiles); ++tile) step([] { return false; }, tile);
    for (; tile < n_tiles; ++tile) step([] { return true; }, tile);

    release(&shared.q_empty);
    barrier_wait(shared.v_full + v_stage.slot, v_stage.parity);
    if (unit.keys % kFlashKeys)
      clear_values<HeadDim>(shared.v[0] + v_stage.slot * kTileBytes, unit.keys % kFlashKeys, 3 + group);
    products_begin();
    rows.multiply_values(advance(v, v_stage.slot * kTileBytes));
    products_commit();
    products_wait<0>();
    settle(rows.out);
    release(shared.v_empty + v_stage.slot);
    v_stage.next();

    Half* target[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint32_t token = (row + 8 * h) / a.pack, head = item % groups * a.pack + (row + 8 * h) % a.pack;
      Half* const to = static_cast<Half*>(a.out) + (uint64_t(unit.first + token) * a.n_heads + head) * HeadDim;
      target[h] = token < unit.count ? to : nullptr;
    }
    rows.store(target);
  }
}

/* grid (any), block (kFlashThreads), FlashShared and kFlashAtom bytes of shared memory. `queries` sees qkv as
 * [HeadDim / 64][tokens][n_heads + 2 n_kv_heads][64], its boxes are [HeadDim / 64][64 / pack][pack][64]; `cache` sees the
 * cache of all layers as [cells / 8][HeadDim / 64][8][64], its boxes are [2][HeadDim / 64][8][64]. */
template <typename Half, int HeadDim, bool Turns>
__global__ void __launch_bounds__(kFlashThreads, 1)
    attention_flash_kernel(const __grid_constant__ FlashMap queries, const __grid_constant__ FlashMap cache,
                           const __grid_constant__ FlashArguments arguments) {
  const uint32_t offset = (kFlashAtom - shared_address(dynamic_shared()) % kFlashAtom) % kFlashAtom;
  auto& shared = *reinterpret_cast<FlashShared<HeadDim>*>(reinterpret_cast<char*>(dynamic_shared()) + offset);
  if (threadIdx.x == 0) {
    barrier_init_count(&shared.q_full, 1);
    barrier_init_count(&shared.q_empty, 4 * kFlashGroups);
    for (uint32_t s = 0; s < kFlashStages; ++s) {
      barrier_init_count(shared.k_full + s, 1);
      barrier_init_count(shared.v_full + s, 1);
      barrier_init_count(shared.k_empty + s, 4 * kFlashGroups);
      barrier_init_count(shared.v_empty + s, 4 * kFlashGroups);
    }
    barrier_init_done();
  }
  __syncthreads();
  allow_successor();
  wait_for_predecessor();
  if (threadIdx.x < 128) {
    keep_registers<24>();
    if (threadIdx.x < 32) flash_copy(shared, &queries, &cache, arguments);
  } else {
    take_registers<240>();
    flash_multiply<Half, HeadDim, Turns>(shared, arguments);
  }
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_ATTENTION_FLASH_H */
