#include <cstring>

#include "nic_frontend/native/link.h"

namespace blink {
namespace {

class SharedMemoryLink final : public Link {
 public:
  explicit SharedMemoryLink(void* address) : base_(static_cast<uint8_t*>(address)) {}

  bool read(uint64_t offset, uint64_t* to, size_t words) override {
    const uint64_t* from = word(offset);
    for (size_t i = 0; i < words; ++i) to[i] = __atomic_load_n(from + i, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return true;
  }

  bool gather(uint64_t table, const uint32_t* entries, size_t n, blink_progress* to) override {
    for (size_t i = 0; i < n; ++i) {
      const uint64_t* from = word(table + entries[i] * sizeof(blink_progress));
      to[i].status = __atomic_load_n(from, __ATOMIC_ACQUIRE);
      to[i].prefix = __atomic_load_n(from + 1, __ATOMIC_RELAXED);
      for (size_t r = 0; r < BLINK_INLINE_RECORDS; ++r)
        to[i].records[r] = __atomic_load_n(from + 2 + r, __ATOMIC_RELAXED);
    }
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return true;
  }

  void write(const Piece& piece) override { std::memcpy(base_ + piece.offset, piece.from, piece.bytes); }

  void publish(uint64_t offset, uint64_t value) override { __atomic_store_n(word(offset), value, __ATOMIC_RELEASE); }

 private:
  uint64_t* word(uint64_t offset) { return reinterpret_cast<uint64_t*>(base_ + offset); }
  uint8_t* base_;
};

}  // namespace

std::unique_ptr<Link> make_shared_memory_link(void* address) {
  return std::make_unique<SharedMemoryLink>(address);
}

}  // namespace blink
