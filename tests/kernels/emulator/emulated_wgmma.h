/* kernels/primitives/wgmma_sm90.h for the emulator, after the PTX manual's description of each instruction. A product
 * is made when it is issued: what it reads must be there, but a missing wait for it does not show. It is the
 * warpgroup's: its end, which a wait awaits, comes when all four warps have issued it. */
namespace blink {

constexpr uint32_t kWarpgroup = 128;
constexpr uint32_t kSwizzleBytes = 128, kGroupBytes = 8 * kSwizzleBytes, kNoColumns = 16, kWgmmaK = 16;

struct E4m3 {};

template <uint32_t N>
void keep_registers() {}
template <uint32_t N>
void take_registers() {}
inline void wgmma_fence() {}
inline void wgmma_commit() {
  emulator::exchange(0, [](emulator::Lanes&) { ++emulator::this_warp().committed; });
}
template <int N>
void wgmma_wait() {
  emulator::exchange(0); /* by the warp's threads together */
  const uint64_t awaited = emulator::this_warp().committed - std::min<uint64_t>(N, emulator::this_warp().committed);
  const emulator::Warp* const warps = &emulator::block->warps[threadIdx.x / kWarpgroup * (kWarpgroup / 32)];
  while (std::any_of(warps, warps + kWarpgroup / 32, [&](const auto& warp) { return warp.committed < awaited; }))
    emulator::give_way();
}
template <int N>
void settle(float (&)[N]) {}
inline float exp2_fast(float x) {
  return exp2f(x);
}

inline void group_arrive(uint32_t id, uint32_t threads) {
  emulator::NamedBarrier& barrier = emulator::block->named_barriers[id];
  if (++barrier.arrived < threads) return;
  barrier.arrived = 0;
  barrier.gate.open(emulator::next_round);
}
inline void group_sync(uint32_t id, uint32_t threads) {
  emulator::Gate& gate = emulator::block->named_barriers[id].gate;
  const uint64_t generation = gate.generation;
  group_arrive(id, threads);
  gate.await_next(generation);
}

inline uint32_t shared_address(const void* p) {
  return uint32_t(reinterpret_cast<uintptr_t>(p));
}

/* Of the block's dynamic memory. */
inline char* shared_at(uint32_t address) {
  char* base = reinterpret_cast<char*>(dynamic_shared());
  return base + (address - shared_address(base));
}

/* A map of a tensor of halves; dimension 0 is contiguous. Its boxes are 64 elements wide and swizzled, unless they are
 * `plain`. */
struct TensorMap4 {
  const uint16_t* data;
  uint32_t size[4], box[4];
  uint64_t stride[3]; /* of dimensions 1.., in elements */
  uint64_t plain = 0;
};

/* Where a byte of atoms of 8 lines of 128 bytes lies, whose rows have so many bytes. */
inline char* swizzled(char* p, uint32_t row_bytes = kSwizzleBytes) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(p);
  return reinterpret_cast<char*>(address ^ (address >> 7 & (row_bytes / 16 - 1)) << 4);
}

inline uint32_t swizzled(uint32_t row, uint32_t chunk) {
  return row * kSwizzleBytes + (chunk ^ row % 8) * 16;
}

/* Of a tensor as TensorMap describes it, swizzled boxes of 256 rows of 128 or 64 bytes; what lies outside is zero. */
inline void copy_tile(void* to, const void* map, uint32_t x, uint32_t y, uint32_t z, uint64_t* word) {
  static const uint16_t zeros[8] = {};
  const TensorMap& tensor = *static_cast<const TensorMap*>(map);
  const uint32_t bytes = 2 * tensor.box_columns;
  if (bytes != 128 && bytes != 64) emulator::fail("a box whose rows have not 128 or 64 bytes");
  if (reinterpret_cast<uintptr_t>(to) % 1024) emulator::fail("a swizzled box to an address not aligned to 1024 bytes");
  for (uint32_t r = 0; r < 256; ++r)
    for (uint32_t piece = 0; piece < bytes / 16; ++piece) {
      const uint64_t row = y + r % tensor.box_rows, column = x + 8 * piece;
      const uint64_t matrix = z + r / tensor.box_rows;
      char* target = swizzled(static_cast<char*>(to) + r * bytes + 16 * piece, bytes);
      memset(target, 0xff, 16); /* until somebody has waited */
      const bool inside = row < tensor.rows && column < tensor.columns;
      const uint16_t* from = inside ? tensor.data + (matrix * tensor.rows + row) * tensor.columns + column : zeros;
      bulk_barrier(word).add({target, from, 16});
    }
}

/* A thread's copies come when those of a bulk copy would, after it has said at which barrier. */
inline void copy_async(uint32_t to, const void* from, uint32_t n) {
  static const uint4 zeros = {};
  thread_copies[emulator::current].add(shared_at(to), n ? from : &zeros, 16, 16);
}
inline void copy_async_piece(uint32_t to, const void* from, uint32_t n) {
  thread_copies[emulator::current].add(shared_at(to), from, n, 8);
}
inline void barrier_arrive_copied(uint64_t* word) {
  for (const BulkBarrier::Copy& copy : std::exchange(thread_copies[emulator::current].open, {})) {
    bulk_barrier(word).add(copy);
    bulk_barrier(word).bytes += copy.bytes;
  }
  bulk_barrier(word).arrive();
}

inline void store_transposed(const void* column, const uint32_t (&m)[4]) {
  if (reinterpret_cast<uintptr_t>(column) % 16) emulator::fail("stmatrix to an address that is not 16-byte aligned");
  const emulator::Lanes& lanes = emulator::exchange(column);
  const uint32_t row = emulator::this_lane() / 4, first = emulator::this_lane() % 4 * 2;
  for (uint32_t i = 0; i < 4; ++i)
    for (uint32_t e = 0; e < 2; ++e)
      const_cast<uint16_t*>(lanes.get<const uint16_t*>(8 * i + first + e))[row] = uint16_t(m[i] >> 16 * e);
}

inline void copy_box4(void* to, const void* map, uint32_t a, uint32_t b, uint32_t c, uint64_t* word) {
  static const uint16_t zeros[8] = {};
  const TensorMap4& tensor = *static_cast<const TensorMap4*>(map);
  const uint32_t bytes = 2 * tensor.box[0];
  if (reinterpret_cast<uintptr_t>(to) % (tensor.plain ? 128 : 1024)) emulator::fail("a box to an address not aligned");
  if (!tensor.plain && bytes != 128) emulator::fail("a swizzled box whose rows have not 128 bytes");
  char* row = static_cast<char*>(to);
  for (uint32_t z = 0; z < tensor.box[3]; ++z)
    for (uint32_t y = 0; y < tensor.box[2]; ++y)
      for (uint32_t x = 0; x < tensor.box[1]; ++x, row += bytes) {
        const bool inside = a + x < tensor.size[1] && b + y < tensor.size[2] && c + z < tensor.size[3];
        const uint64_t at = (a + x) * tensor.stride[0] + (b + y) * tensor.stride[1] + (c + z) * tensor.stride[2];
        for (uint32_t piece = 0; piece < bytes / 16; ++piece) {
          char* target = tensor.plain ? row + 16 * piece : swizzled(row + 16 * piece);
          memset(target, 0xff, 16); /* until somebody has waited */
          const uint16_t* from = inside ? tensor.data + at + 8 * piece : zeros;
          bulk_barrier(word).add({target, from, 16});
        }
      }
}

/* The place in the block's dynamic memory, and the strides. */
inline uint64_t matrix_descriptor(const void* p, uint32_t group_bytes, uint32_t column_bytes) {
  const char* base = reinterpret_cast<const char*>(dynamic_shared());
  return uint64_t(static_cast<const char*>(p) - base) | uint64_t(group_bytes) << 20 | uint64_t(column_bytes) << 42;
}
inline uint64_t advance(uint64_t descriptor, uint32_t bytes) {
  return descriptor + bytes;
}

/* Byte `at` of a row of an operand with k along its rows. */
inline char* along_k(uint64_t descriptor, uint32_t row, uint32_t at) {
  char* base = reinterpret_cast<char*>(dynamic_shared()) + (descriptor & 0xfffff);
  return swizzled(base + row / 8 * (descriptor >> 20 & 0x3fffff) + row % 8 * 128 + at);
}
/* Element (k, n) of one with n along its rows. */
template <typename Half>
float along_n(uint64_t descriptor, uint32_t k, uint32_t n, Half half) {
  char* at = reinterpret_cast<char*>(dynamic_shared()) + (descriptor & 0xfffff);
  at += k / 8 * (descriptor >> 20 & 0x3fffff) + k % 8 * 128 + n / 64 * (descriptor >> 42) + n % 64 * 2;
  return half_of(*reinterpret_cast<const uint16_t*>(swizzled(at)), 0, half);
}

/* The value of 2 bytes as a half, or of 1 as fp8. */
template <typename Half>
float value_at(const char* p, Half half) {
  return half_of(*reinterpret_cast<const uint16_t*>(p), 0, half);
}
inline float value_at(const char* p, E4m3) {
  return from_e4m3(uint8_t(*p));
}

/* Of 32 bytes of k. */
template <int N, typename Element>
void wgmma(float (&d)[N], uint64_t a, uint64_t b, bool accumulate, Element element) {
  constexpr uint32_t kBytes = std::is_same<Element, E4m3>::value ? 1 : 2;
  constexpr uint32_t kValues = 32 / kBytes;
  const uint32_t lane = emulator::this_lane(), first = emulator::current->index.x / 32 % 4 * 16 + lane / 4;
  float rows[2][kValues], columns[2][kValues];
  const auto read = [&](float (&to)[kValues], uint64_t of, uint32_t row) {
    for (uint32_t k = 0; k < kValues; ++k) to[k] = value_at(along_k(of, row, k * kBytes), element);
  };
  for (uint32_t half = 0; half < 2; ++half) read(rows[half], a, first + 8 * half);
  for (uint32_t i = 0; i < N; ++i) {
    if (i % 4 == 0)
      for (uint32_t odd = 0; odd < 2; ++odd) read(columns[odd], b, i / 4 * 8 + lane % 4 * 2 + odd);
    float sum = accumulate ? d[i] : 0;
    for (uint32_t k = 0; k < kValues; ++k) sum += rows[i / 2 % 2][k] * columns[i % 2][k];
    d[i] = sum;
  }
}

/* With a in registers; b(k, column) is an element of the other. */
template <int N, typename Half, typename Other>
void multiply_registers(float (&d)[N], const uint32_t (&a)[4], Half half, const Other& b) {
  const emulator::Lanes& lanes = emulator::exchange(Fragments{{a[0], a[1], a[2], a[3]}, {}});
  const uint32_t lane = emulator::this_lane();
  for (uint32_t k = 0; k < 16; ++k) {
    const Fragments of_k = lanes.get<Fragments>(lane / 4 * 4 + k % 8 / 2);
    for (uint32_t i = 0; i < N; ++i) {
      const float weight = half_of(of_k.a[i / 2 % 2 + 2 * (k / 8)], k % 2, half);
      d[i] += weight * b(k, i / 4 * 8 + lane % 4 * 2 + i % 2);
    }
  }
}
template <int N, typename Half>
void wgmma(float (&d)[N], const uint32_t (&a)[4], uint64_t b, Half half) {
  multiply_registers(d, a, half, [&](uint32_t k, uint32_t column) { return along_n(b, k, column, half); });
}
template <int N, typename Half>
void wgmma_along_k(float (&d)[N], const uint32_t (&a)[4], uint64_t b, bool accumulate, Half half) {
  if (!accumulate)
    for (float& sum : d) sum = 0;
  multiply_registers(d, a, half,
                     [&](uint32_t k, uint32_t column) { return value_at(along_k(b, column, 2 * k), half); });
}

}  // namespace blink
