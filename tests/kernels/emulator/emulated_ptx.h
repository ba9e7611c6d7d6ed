/* kernels/primitives/ptx.h for the emulator, after the PTX manual's description of each instruction. */
namespace blink {

inline uint64_t load_acquire(const uint64_t* p) {
  return *p;
}
inline void store_release(uint64_t* p, uint64_t value) {
  *p = value;
}
inline uint32_t arrive(uint32_t* counter) {
  return (*counter)++;
}
inline void announce(uint32_t* counter) {
  ++*counter;
}
inline void add_relaxed(int64_t* to, int64_t value) {
  *to += value;
}
/* What waits for another block lets it run. */
inline uint32_t load_relaxed32(const uint32_t* p) {
  emulator::give_way();
  return *p;
}
/* Others may look before the next word is there, of a vector as of two stores. */
inline void store_relaxed32(uint32_t* p, uint32_t value) {
  *p = value;
  emulator::give_way();
}
inline uint4 load_relaxed(const uint4* p) {
  emulator::give_way();
  return *p;
}
inline void store_relaxed(uint4* p, const uint4& value) {
  const uint32_t words[4] = {value.x, value.y, value.z, value.w};
  for (uint32_t i = 0; i < 4; ++i) store_relaxed32(reinterpret_cast<uint32_t*>(p) + i, words[i]);
}
inline void publish() {}
[[noreturn]] inline void trap() {
  emulator::fail("trap");
}

inline void prefetch_line(const void*) {}
inline void prefetch_bytes(const void*, uint32_t) {}
inline void wait_for_predecessor() {
  emulator::block->has_waited = true;
  while (!emulator::not_yet_written.empty()) emulator::give_way();
}
inline void allow_successor() {}

inline void load_weight(const void* p, bool wanted, uint4& value) {
  if (wanted) value = *static_cast<const uint4*>(p);
}

inline void load_scale(const float* p, bool wanted, float& value) {
  if (wanted) value = *p;
}

inline void load_word(const uint32_t* p, bool wanted, uint32_t& value) {
  if (wanted) value = *p;
}
inline void load_byte(const uint8_t* p, bool wanted, uint32_t& value) {
  if (wanted) value = *p;
}

/* A second later at every reading, so that what waits for the clock ends. */
inline uint64_t global_ns() {
  static uint64_t now = 0;
  return now += 1000000000;
}

template <typename T>
T* opaque(T* p) {
  return p;
}
inline uint32_t* dynamic_shared(const emulator::Block& block = *emulator::block) {
  return reinterpret_cast<uint32_t*>(block.shared());
}

/* Words that threads copy. A target is garbage until its thread has waited. */
inline std::map<const void*, std::vector<std::pair<uint32_t*, const uint32_t*>>> word_copies;
inline void copy_word(uint32_t* to, const uint32_t* from) {
  emulator::check_written(from);
  *to = 0xffffffff;
  word_copies[emulator::current].emplace_back(to, from);
}
inline void copied_words() {
  for (const auto& [to, from] : word_copies[emulator::current]) *to = *from;
  word_copies.erase(emulator::current);
}

/* A barrier's word points to its state. */
struct BulkBarrier {
  struct Copy {
    void* to;
    const void* from; /* or null, and then `word` */
    uint32_t bytes;
    uint64_t word = 0;
    const emulator::Block* source = nullptr; /* whose shared memory is read */
  };
  uint32_t phase = 0, arrivals = 0, expected = 1;
  int64_t bytes = 0; /* announced and not yet copied */
  std::vector<Copy> copies;

  void add(const Copy& copy) {
    emulator::check_written(copy.from);
    copies.push_back(copy);
  }
  void arrive() {
    if (++arrivals > expected) emulator::fail("too many arrivals in one phase of a barrier");
    complete();
  }
  void complete() {
    if (bytes || arrivals != expected) return;
    arrivals = 0;
    ++phase;
  }
};
inline std::vector<std::unique_ptr<BulkBarrier>> bulk_barriers;

/* What a thread copies by itself: garbage until it has waited for the group, or the copies have come to a barrier. */
struct ThreadCopies {
  std::vector<BulkBarrier::Copy> open;
  std::deque<std::vector<BulkBarrier::Copy>> groups;

  /* Copies of `size` bytes, of which the source has `bytes`. */
  void add(void* to, const void* from, uint32_t bytes, uint32_t size) {
    emulator::check_written(from);
    if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % size)
      emulator::fail("a copy that is not aligned to its size");
    memset(to, 0xff, bytes);
    open.push_back({to, from, bytes});
  }
};
inline std::map<const void*, ThreadCopies> thread_copies;
inline void copy_weight(uint4* to, const void* from, bool wanted) {
  static const uint4 zeros = {};
  thread_copies[emulator::current].add(to, wanted ? from : &zeros, 16, 16);
}
template <typename Word>
void copy_async_word(Word* to, const Word* from) {
  static_assert(sizeof(Word) == 4);
  thread_copies[emulator::current].add(to, from, 4, 4);
}
inline void copy_scales(uint32_t* to, const uint32_t* from) {
  thread_copies[emulator::current].add(to, from, 4, 4);
}
inline void commit_copies() {
  ThreadCopies& copies = thread_copies[emulator::current];
  copies.groups.push_back(std::exchange(copies.open, {}));
}
template <uint32_t Latest>
void wait_for_copies() {
  auto& groups = thread_copies[emulator::current].groups;
  for (; groups.size() > Latest; groups.pop_front())
    for (const BulkBarrier::Copy& copy : groups.front()) memcpy(copy.to, copy.from, copy.bytes);
}

inline BulkBarrier& bulk_barrier(uint64_t* word) {
  return *bulk_barriers.at(*word);
}
inline void barrier_init_count(uint64_t* word, uint32_t count) {
  *word = bulk_barriers.size();
  bulk_barriers.emplace_back(new BulkBarrier);
  bulk_barriers.back()->expected = count;
}
inline void barrier_init(uint64_t* word) {
  barrier_init_count(word, 1);
}
inline void barrier_arrive(uint64_t* word) {
  bulk_barrier(word).arrive();
}
inline void barrier_init_done() {}
inline void barrier_expect(uint64_t* word, uint32_t bytes) {
  bulk_barrier(word).bytes += bytes;
  bulk_barrier(word).arrive();
}
/* A tensor [][rows][columns] of halves, and boxes of [][box_rows][box_columns], of 16 rows in all for copy_box. */
struct TensorMap {
  const uint16_t* data;
  uint64_t rows, columns, box_rows, box_columns;
};
/* The target is garbage from now until somebody has waited: who still reads it, or reads it too early, sees. What lies
 * behind the end of a row is zero. */
inline void copy_box(void* to, const void* map, uint32_t x, uint32_t y, uint32_t z, uint64_t* word) {
  const TensorMap& tensor = *static_cast<const TensorMap*>(map);
  if (reinterpret_cast<uintptr_t>(to) % 128) emulator::fail("a box to an address that is not 128-byte aligned");
  if (2 * x % 16) emulator::fail("a box that begins at no multiple of 16 bytes");
  static const char zeros[512] = {};
  const uint32_t bytes = 2 * tensor.box_columns;
  const uint32_t within = 2 * std::min(tensor.box_columns, std::max<uint64_t>(tensor.columns, x) - x);
  if (bytes % 16 || bytes - within > sizeof zeros) emulator::fail("a box of another width");
  memset(to, 0xff, 16 * bytes);
  for (uint32_t r = 0; r < 16; ++r) {
    const uint64_t row = (z + r / tensor.box_rows) * tensor.rows + y + r % tensor.box_rows;
    char* const at = static_cast<char*>(to) + r * bytes;
    bulk_barrier(word).add({at, tensor.data + row * tensor.columns + x, within});
    if (within < bytes) bulk_barrier(word).add({at + within, zeros, bytes - within});
  }
}
/* A layer's keys and values as tests/kernels/test_attention_device.py describes them: [2][rows][width] bytes, of which
 * copies bring 16 rows as [2][width / span][16][span], swizzled by the bits of the address. */
struct CacheMap {
  const char* data;
  uint64_t rows, width, span;
};
inline void prefetch_map(const void*) {}
inline void copy_rows(void* to, const void* map, uint32_t row, uint64_t* word) {
  const CacheMap& cache = *static_cast<const CacheMap*>(map);
  const uint64_t per_line = cache.span / 16;
  if (reinterpret_cast<uintptr_t>(to) % (8 * cache.span))
    emulator::fail("a swizzled box to an address that repeats otherwise");
  memset(to, 0xff, 2 * 16 * cache.width);
  for (uint64_t i = 0; i < 2 * cache.width; ++i) { /* 16-byte units, as they lie in shared memory */
    const uint64_t at = i * 16 / 128 % per_line ^ i % per_line, r = i / per_line % 16, span = i / per_line / 16;
    const uint64_t spans = cache.width / cache.span, first = span / spans * cache.rows + row + r;
    const char* from = cache.data + first * cache.width + span % spans * cache.span + at * 16;
    bulk_barrier(word).add({static_cast<char*>(to) + i * 16, from, 16});
  }
}
/* Lets the other threads run, and a copy arrive. */
inline bool barrier_test(uint64_t* word, uint32_t parity) {
  BulkBarrier& barrier = bulk_barrier(word);
  if (barrier.phase % 2 != parity) return true;
  emulator::give_way();
  if (barrier.copies.empty() || !barrier.arrivals) return barrier.phase % 2 != parity;
  const BulkBarrier::Copy copy = barrier.copies.back();
  barrier.copies.pop_back();
  if (copy.source && copy.source->barrier.alive == 0) emulator::fail("a block ends before what it has sent has come");
  memcpy(copy.to, copy.from ? copy.from : &copy.word, copy.bytes);
  barrier.bytes -= copy.bytes;
  if (barrier.bytes < 0) emulator::fail("a barrier receives more than was announced");
  barrier.complete();
  return barrier.phase % 2 != parity;
}
inline void barrier_wait(uint64_t* word, uint32_t parity) {
  while (!barrier_test(word, parity)) continue;
}

inline uint32_t cluster_rank() {
  return blockIdx.x % emulator::cluster_blocks;
}
inline uint32_t cluster_size() {
  return emulator::cluster_blocks;
}
inline void cluster_arrive() {
  emulator::ThreadBarrier& cluster = emulator::cluster;
  emulator::current->cluster_generation = cluster.gate.generation;
  if (++cluster.arrived != cluster.alive) return;
  cluster.arrived = 0;
  cluster.gate.open(emulator::next_round);
}
inline void cluster_wait() {
  emulator::cluster.gate.await_next(emulator::current->cluster_generation);
}
/* What block `rank` has where this one has `here`. */
inline uint64_t* peer_shared(uint64_t* here, uint32_t rank) {
  if (emulator::cluster.gate.generation == 0) emulator::fail("a block sends before all of its cluster have started");
  const ptrdiff_t at = here - reinterpret_cast<uint64_t*>(dynamic_shared());
  return reinterpret_cast<uint64_t*>(dynamic_shared(*emulator::blocks.at(rank))) + at;
}
inline void send(uint64_t* to, uint32_t rank, uint64_t value, uint64_t* word) {
  bulk_barrier(peer_shared(word, rank)).add({peer_shared(to, rank), nullptr, sizeof value, value});
}
inline void fence_async_proxy() {}
inline void fence_async_proxy_global() {}
inline void send_bulk(uint64_t* to, uint32_t rank, const uint64_t* from, uint32_t bytes, uint64_t* word) {
  bulk_barrier(peer_shared(word, rank)).add({peer_shared(to, rank), from, bytes, 0, emulator::block});
}

struct Fragments {
  uint32_t a[4], b[2];
};

/* The low (0) or high (1) one of a pair of halves. */
inline float half_of(uint32_t pair, uint32_t index, __nv_bfloat16) {
  return __bfloat162float({uint16_t(pair >> 16 * index)});
}
inline float half_of(uint32_t pair, uint32_t index, __half) {
  return __half2float({uint16_t(pair >> 16 * index)});
}
inline uint32_t pack_halves(float low, float high, __nv_bfloat16) {
  return __float2bfloat16_rn(low).bits | uint32_t(__float2bfloat16_rn(high).bits) << 16;
}
inline uint32_t pack_halves(float low, float high, __half) {
  return __float2half_rn(low).bits | uint32_t(__float2half_rn(high).bits) << 16;
}

/* What a lane has of a product of 16 rows and 8 columns: two neighbours of a row, and of the row 8 further down. */
struct ProductOfLane {
  float sums[4];
};

/* Makes of the factors that the lanes passed each lane's part of their product. Whoever comes last does so for all:
 * each value is unpacked once, and 8 columns are multiplied side by side. */
template <typename Half>
void multiply_fragments(emulator::Lanes& lanes, Half type) {
  using Eight = float __attribute__((vector_size(32)));
  float rows[16][16];
  Eight columns[16];
  for (uint32_t lane = 0; lane < emulator::kWarp; ++lane) {
    const Fragments of = lanes.get<Fragments>(lane);
    const uint32_t group = lane / 4, first = lane % 4 * 2;
    for (uint32_t k = 0; k < 4; ++k) /* columns 0 to 7 of both rows, then 8 to 15 */
      for (uint32_t e = 0; e < 2; ++e) rows[group + k % 2 * 8][first + k / 2 * 8 + e] = half_of(of.a[k], e, type);
    for (uint32_t k = 0; k < 2; ++k)
      for (uint32_t e = 0; e < 2; ++e) columns[first + k * 8 + e][group] = half_of(of.b[k], e, type);
  }
  for (uint32_t row = 0; row < 8; ++row) {
    Eight upper = {}, lower = {};
    for (uint32_t k = 0; k < 16; ++k) {
      upper += rows[row][k] * columns[k];
      lower += rows[row + 8][k] * columns[k];
    }
    for (uint32_t of = 0; of < 8; of += 2)
      lanes.set(row * 4 + of / 2, ProductOfLane{{upper[of], upper[of + 1], lower[of], lower[of + 1]}});
  }
}

template <typename Half>
void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, Half type) {
  const Fragments factors = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
  const emulator::Lanes& lanes =
      emulator::exchange(factors, [&](emulator::Lanes& all) { multiply_fragments(all, type); });
  const ProductOfLane of_lane = lanes.get<ProductOfLane>(emulator::this_lane());
  for (uint32_t i = 0; i < 4; ++i) d[i] += of_lane.sums[i];
}

template <bool transposed>
void load_matrices(uint32_t (&m)[4], const void* row) {
  if (reinterpret_cast<uintptr_t>(row) % 16) emulator::fail("ldmatrix from an address that is not 16-byte aligned");
  const emulator::Lanes& lanes = emulator::exchange(row);
  const uint32_t r = emulator::this_lane() / 4, c = emulator::this_lane() % 4 * 2;
  for (uint32_t i = 0; i < 4; ++i) {
    const auto at = [&](uint32_t y, uint32_t x) { return uint32_t(lanes.get<const uint16_t*>(8 * i + y)[x]); };
    m[i] = transposed ? at(c, r) | at(c + 1, r) << 16 : at(r, c) | at(r, c + 1) << 16;
  }
}

inline uint32_t permute_bytes(uint32_t word, uint32_t selector) {
  uint32_t result = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t digit = selector >> 4 * i & 15, byte = word >> 8 * (digit & 3) & 0xff;
    if (digit & 4) emulator::fail("a byte of the second word");
    result |= (digit & 8 ? byte >> 7 ? 0xffu : 0 : byte) << 8 * i;
  }
  return result;
}
inline uint32_t permute_bytes(uint32_t low, uint32_t high, uint32_t selector) {
  uint32_t result = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t digit = selector >> 4 * i & 15;
    if (digit & 8) emulator::fail("a sign of two words");
    result |= ((digit & 4 ? high : low) >> 8 * (digit & 3) & 0xff) << 8 * i;
  }
  return result;
}
inline uint32_t pack_saturating(float low, float high) {
  const auto within = [](float x) { return std::min(std::max(x, -65504.0f), 65504.0f); };
  return pack_halves(within(low), within(high), __half());
}
inline void count_greater(float& count, uint32_t a, uint32_t b) {
  count += a > b;
}
inline uint32_t keep_bits(uint32_t word, uint32_t kept, uint32_t others) {
  return (word & kept) | others;
}
template <typename Half>
uint32_t multiply_pairs(uint32_t a, uint32_t b, Half type) {
  const auto product = [&](uint32_t i) { return half_of(a, i, type) * half_of(b, i, type); };
  return pack_halves(product(0), product(1), type);
}
template <typename Half>
uint32_t add_pairs(uint32_t a, uint32_t b, Half type) {
  const auto sum = [&](uint32_t i) { return half_of(a, i, type) + half_of(b, i, type); };
  return pack_halves(sum(0), sum(1), type);
}

}  // namespace blink

#include "emulated_e4m3.h"
#include "emulated_wgmma.h"
#include "emulated_tma.h"
#include "emulated_tma_store.h"
