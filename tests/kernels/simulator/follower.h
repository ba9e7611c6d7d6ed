/* A reader of the KV events that is slow, or quick, or attaches anew, at random; whenever it has caught up it knows
 * exactly what the scheduler's prefix cache can find (S20). */
#pragma once
#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "ringbuffer/words.h"
#include "simulated_ring.h"

namespace simulator {

class Follower {
 public:
  Follower(SimulatedRing& ring, std::mt19937_64& random) : c_(ring.c), random_(random) {}

  std::string error;
  bool quiet = false;  // reads all there is
  uint64_t records = 0, retold = 0, compared = 0;

  void act(uint64_t now) {
    if (c_.kv_event_capacity == 0) return;
    if (attachment_ == 0 || (!quiet && random_() % 3000 == 0)) attach();
    if (!quiet && now < slow_until_) return;
    if (random_() % 300 == 0) slow_until_ = now + random_() % 3'000'000;
    const uint64_t word = __atomic_load_n(&c_.kv_events->written, __ATOMIC_ACQUIRE);
    if (blink::event_attachment(word) != attachment_) return;
    const uint64_t written = blink::event_count(word), before = read_;
    fresh_.clear();
    if (written - read_ > c_.kv_event_capacity) return fail("more records than there is room for");
    for (uint64_t most = quiet ? ~0ull : 1 + random_() % 30; read_ < written && most; --most) read(read_++);
    if (read_ == before) return;
    __atomic_store_n(&c_.kv_events->reader, blink::event_word(attachment_, read_), __ATOMIC_RELEASE);
  }

  // Everything that has happened so far has been told, and read.
  bool caught_up() const {
    if (c_.kv_event_capacity == 0) return true;
    const blink_kv_event_state& e = c_.state->kv_events;
    return complete_ && e.attachment == attachment_ && e.following && e.head == e.tail && e.swept >= c_.total_pages &&
           read_ == e.written;
  }

  void compare() {
    if (c_.kv_event_capacity == 0) return;
    if (fresh_.empty() && !caught_up()) return;
    index_.clear();
    for (uint32_t page = 0; page < c_.total_pages; ++page) {
      if (c_.pages[page].entry != BLINK_NO_PAGE) index_.emplace_back(c_.pages[page].content, page);
    }
    std::sort(index_.begin(), index_.end());
    for (uint64_t id : fresh_) {
      const uint32_t page = page_of(id);
      if (page == BLINK_NO_PAGE) continue;
      if (c_.pages[page].ready > __atomic_load_n(c_.tables.completed, __ATOMIC_ACQUIRE))
        return fail("is told of a block that is not computed yet");
    }
    fresh_.clear();
    if (!caught_up()) return;
    ++compared;
    reachable_.assign(c_.total_pages, kUnknown);
    size_t n = 0;
    for (const auto& [content, page] : index_) n += reachable(content);
    if (n != blocks_.size()) return fail("knows " + std::to_string(blocks_.size()) + " blocks of " + std::to_string(n));
    for (const auto& [id, block] : blocks_) {
      if (!reachable(id)) return fail("knows a block that there is not");
      const uint32_t number = page_of(id);
      const blink_page& page = c_.pages[number];
      const uint32_t* tokens = c_.page_tokens + uint64_t(number) * c_.tables.page_size;
      if (block.parent != parent_of(page) || !std::equal(block.tokens.begin(), block.tokens.end(), tokens) ||
          block.salt != std::make_pair(page.salt[0], page.salt[1]))
        return fail("knows a block wrongly");
    }
  }

 private:
  struct Block {
    uint64_t parent;
    std::pair<uint64_t, uint64_t> salt;
    std::vector<uint32_t> tokens;
  };

  void fail(const std::string& what) {
    if (error.empty()) error = "the follower " + what;
  }

  void attach() {
    const uint32_t before = attachment_;
    while (attachment_ == 0 || attachment_ == before) attachment_ = random_() & 0xffff;
    read_ = 0;
    cleared_ = complete_ = false;
    __atomic_store_n(&c_.kv_events->reader, blink::event_word(attachment_, 0), __ATOMIC_RELEASE);
  }

  void read(uint64_t number) {
    const uint64_t* words = reinterpret_cast<const uint64_t*>(reinterpret_cast<const uint8_t*>(c_.kv_events + 1) +
                                                              number % c_.kv_event_capacity * c_.kv_event_bytes);
    auto load = [](const uint64_t* from) { return __atomic_load_n(from, __ATOMIC_RELAXED); };
    ++records;
    if (load(words) != blink::event_word(attachment_, number)) return fail("reads another record than was written");
    const uint64_t kind = load(words + 1), id = load(words + 2);
    if (number == 0 && kind != BLINK_KV_EVENT_CLEARED) return fail("is not told first to forget");
    if (kind == BLINK_KV_EVENT_CLEARED) {
      retold += cleared_;
      cleared_ = true;
      complete_ = false;
      blocks_.clear();
      waiting_.clear();
    } else if (kind == BLINK_KV_EVENT_COMPLETE) {
      complete_ = true;
      waiting_.clear();
    } else if (kind == BLINK_KV_EVENT_REMOVED) {
      waiting_.erase(id);
      remove(id);
    } else if (kind == BLINK_KV_EVENT_STORED) {
      Block block{load(words + 3), {load(words + 4), load(words + 5)}, {}};
      for (uint32_t i = 0; i < c_.tables.page_size; ++i) {
        const uint64_t pair = load(words + sizeof(blink_kv_event) / 8 + i / 2);
        block.tokens.push_back(i % 2 ? blink::high(pair) : blink::low(pair));
      }
      if (blocks_.count(id) || waiting_.count(id)) return fail("is told of a block twice");
      store(id, block);
      fresh_.push_back(id);
    } else {
      fail("reads a record of no kind");
    }
  }

  void store(uint64_t id, const Block& block) {
    if (block.parent != BLINK_NO_BLOCK && !blocks_.count(block.parent)) {
      if (!complete_) waiting_[id] = block;  // else its parent has been removed, and nobody will ever find it
      return;
    }
    blocks_[id] = block;
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      if (it->second.parent != id) {
        ++it;
        continue;
      }
      const auto [child, found] = *it;
      waiting_.erase(it);
      store(child, found);
      it = waiting_.begin();
    }
  }

  void remove(uint64_t id) {
    if (!blocks_.erase(id)) return;
    std::vector<uint64_t> children;
    for (const auto& [child, block] : blocks_) {
      if (block.parent == id) children.push_back(child);
    }
    for (uint64_t child : children) remove(child);
  }

  static uint64_t parent_of(const blink_page& page) { return page.parent ? page.parent : BLINK_NO_BLOCK; }

  // Of the index; BLINK_NO_PAGE if no page has this content.
  uint32_t page_of(uint64_t content) const {
    const auto found = std::lower_bound(index_.begin(), index_.end(), std::make_pair(content, 0u));
    return found != index_.end() && found->first == content ? found->second : BLINK_NO_PAGE;
  }

  // Whether a prompt could find a content: the index has all that is before it, too.
  bool reachable(uint64_t content) {
    if (content == 0) return true;
    const uint32_t page = page_of(content);
    if (page == BLINK_NO_PAGE) return false;
    if (reachable_[page] == kUnknown) reachable_[page] = reachable(c_.pages[page].parent) ? kYes : kNo;
    return reachable_[page] == kYes;
  }

  const blink_scheduler_config& c_;
  std::mt19937_64& random_;
  uint32_t attachment_ = 0;
  uint64_t read_ = 0, slow_until_ = 0;
  bool cleared_ = false, complete_ = false;
  enum Known : uint8_t { kUnknown, kYes, kNo };
  std::vector<std::pair<uint64_t, uint32_t>> index_;  // contents and their pages, at the last comparison
  std::vector<Known> reachable_;                      // by page
  std::vector<uint64_t> fresh_;                       // what it was told last
  std::map<uint64_t, Block> blocks_, waiting_;        // those that wait for their parent, while everything is told anew
};

}  // namespace simulator
