/* kernels/primitives/tma_sm90.h for the emulator, after the PTX manual's description of each instruction. */
namespace blink {

inline uint64_t evict_normal() {
  return 0;
}
inline void copy_box_to_pair(void* to, const BoxMap& map, uint32_t x, uint32_t y, uint32_t z, uint32_t w,
                             uint64_t* word) {
  for (uint32_t rank = 0; rank < 2; ++rank)
    copy_box(peer_shared(static_cast<uint64_t*>(to), rank), map, x, y, z, w, peer_shared(word, rank), 0);
}
inline void barrier_arrive_at(uint64_t* word, uint32_t rank) {
  if (emulator::blocks.at(rank)->barrier.alive == 0) emulator::fail("a block arrives at one that has ended");
  bulk_barrier(peer_shared(word, rank)).arrive();
}

/* A box on its way from shared memory, which is read as late as can be: when its thread waits. */
struct BoxStore {
  BoxMap map;
  const char* from;
  uint32_t x, y;
  bool adds;

  void run() const {
    for (uint32_t row = y; row < y + map.box[2] && row < map.shape[2]; ++row)
      for (uint32_t column = x; column < x + map.box[3] && column < map.shape[3]; ++column) {
        const uint64_t in_box = (row - y) * map.box[3] + column - x, to = row * map.strides[2] + column;
        if (adds)
          reinterpret_cast<float*>(map.data)[to] += *at<float>(in_box);
        else if (map.is_fp32)
          reinterpret_cast<float*>(map.data)[to] = *at<float>(in_box);
        else
          reinterpret_cast<uint16_t*>(map.data)[to] = *at<uint16_t>(in_box);
      }
  }

 private:
  /* An element of rows of 128 bytes, or 64. */
  template <typename Element>
  const Element* at(uint64_t index) const {
    const uintptr_t address = reinterpret_cast<uintptr_t>(from) + index * sizeof(Element);
    const uintptr_t mask = map.box[3] * sizeof(Element) / 16 - 1;
    return reinterpret_cast<const Element*>(address ^ (address >> 7 & mask) << 4);
  }
};
inline std::map<const void*, std::vector<BoxStore>> issued_stores, committed_stores;

inline void issue_store(const BoxStore& store) {
  if (reinterpret_cast<uintptr_t>(store.from) % 1024) emulator::fail("a swizzled box that is not 1024-byte aligned");
  issued_stores[emulator::current].push_back(store);
}
inline void add_box(const BoxMap& map, const void* from, uint32_t x, uint32_t y) {
  issue_store({map, static_cast<const char*>(from), x, y, true});
}
inline void store_box(const BoxMap& map, const void* from, uint32_t x, uint32_t y) {
  issue_store({map, static_cast<const char*>(from), x, y, false});
}
inline void stores_commit() {
  std::vector<BoxStore>& committed = committed_stores[emulator::current];
  for (const BoxStore& store : issued_stores[emulator::current]) committed.push_back(store);
  issued_stores.erase(emulator::current);
}
inline void stores_wait_read() {
  for (const BoxStore& store : committed_stores[emulator::current]) store.run();
  committed_stores.erase(emulator::current);
}
inline void stores_wait() {
  stores_wait_read();
}

/* Whatever is still on its way when all threads have ended would read or write memory that is not theirs any more. */
inline void check_end() {
  for (const auto& barrier : bulk_barriers)
    if (!barrier->copies.empty()) emulator::fail("a block ends before what is copied to it has come");
  bulk_barriers.clear();
  for (auto& [thread, copies] : thread_copies) {
    copies.groups.push_back(std::move(copies.open));
    for (const auto& group : copies.groups)
      if (!group.empty()) emulator::fail("a thread ends before it has waited for what it copies");
  }
  thread_copies.clear();
  if (!issued_stores.empty() || !committed_stores.empty())
    emulator::fail("a block ends before what it stores has been read");
}
inline const bool ends_are_checked = (emulator::at_end = check_end, true);

}  // namespace blink
