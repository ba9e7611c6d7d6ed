/* kernels/primitives/tma_sm90.h for the emulator, after the PTX manual's description of each instruction. */
namespace blink {

/* A tensor of four dimensions as gpu_backend/ops/skinny_cut.py describes it, the slowest first; strides in elements, of
 * all but the last. Elements are of 16 bits, but for those of a map that is only written to and is_fp32. */
struct BoxMap {
  uint64_t data, shape[4], strides[3], box[4], is_fp32, unused[3];
};
inline uint64_t evict_first() {
  return 0;
}
inline uint64_t evict_last() {
  return 0;
}
inline void prefetch_map(const BoxMap&) {}
inline void copy_box(void* to, const BoxMap& map, uint32_t x, uint32_t y, uint32_t z, uint32_t w, uint64_t* word,
                     uint64_t) {
  static const uint16_t zeros[8] = {};
  if (reinterpret_cast<uintptr_t>(to) % 1024) emulator::fail("a swizzled box to an address not aligned to 1024 bytes");
  const uint64_t n_words = map.box[3] / 8, rows = map.box[0] * map.box[1] * map.box[2];
  for (uint64_t i = 0; i < rows * n_words; ++i) {
    const uint64_t row = i / n_words;
    const uint64_t at[4] = {w + row / map.box[2] / map.box[1], z + row / map.box[2] % map.box[1], y + row % map.box[2],
                            x + i % n_words * 8};
    bool inside = true;
    uint64_t element = at[3];
    for (uint32_t d = 0; d < 4; ++d) {
      inside = inside && at[d] < map.shape[d];
      if (d < 3) element += at[d] * map.strides[d];
    }
    char* target = swizzled(static_cast<char*>(to) + 16 * i);
    memset(target, 0xff, 16); /* until somebody has waited */
    bulk_barrier(word).add({target, inside ? reinterpret_cast<const uint16_t*>(map.data) + element : zeros, 16});
  }
}

inline void copy_bytes(void* to, const void* from, uint32_t bytes, uint64_t* word) {
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes) % 16)
    emulator::fail("a bulk copy that is not 16-byte aligned");
  memset(to, 0xff, bytes); /* until somebody has waited */
  bulk_barrier(word).add({to, from, bytes});
}

inline void add_to(float* p, float x) {
  *p += x;
}

}  // namespace blink
