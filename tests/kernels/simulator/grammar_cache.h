/* The grammars that a simulated frontend has in its lease's heap of prompts, shared by its requests. */
#pragma once
#include <list>
#include <map>

#include "simulated_ring.h"

namespace simulator {

struct CachedGrammar {
  Words words;
  uint32_t offset, name;
  uint32_t users;
  bool is_written;
  uint64_t due;  // when the words arrive; 0: nobody has decided
};

class GrammarCache {
 public:
  GrammarCache(SimulatedRing& ring, uint32_t lease, std::mt19937_64& random)
      : heap_(ring.c.prompts + uint64_t(lease) * ring.c.prompt_heap), random_(random) {}

  // A grammar for the request in `slot`: one of those that there are, or a new one at place(words), which is ~0 where
  // there is no room. One that is not good is always new. Null: there is none.
  template <class Place>
  const CachedGrammar* take(uint32_t slot, bool is_good, const Place& place) {
    if (is_good && !all_.empty() && random_() % 2) {
      for (CachedGrammar& grammar : all_) {
        if (random_() % all_.size() == 0 && book().by_crc.count(crc_of(grammar.words))) return used(slot, grammar);
      }
    }
    if (all_.size() > 5) all_.remove_if([](const CachedGrammar& grammar) { return grammar.users == 0; });
    Words words = std::next(book().by_crc.begin(), random_() % book().by_crc.size())->second;
    if (!is_good) spoil_grammar(words, random_);
    const uint32_t offset = place(words.size());
    if (offset == ~0u) return nullptr;
    all_.push_back({words, offset, ++names_, 0, false, 0});
    return used(slot, all_.back());
  }
  void give_back(uint32_t slot) {
    const auto it = of_.find(slot);
    if (it == of_.end()) return;
    --it->second->users;
    of_.erase(it);
  }
  bool is_free(uint32_t offset, uint32_t room) const {
    for (const CachedGrammar& grammar : all_) {
      if (offset < grammar.offset + grammar.words.size() && grammar.offset < offset + room) return false;
    }
    return true;
  }
  // Of a lease that was lost.
  void clear() {
    all_.clear();
    of_.clear();
  }

  void write(const CachedGrammar& grammar) {
    for (uint32_t i = 0; i < grammar.words.size(); ++i)
      __atomic_store_n(heap_ + grammar.offset + i, grammar.words[i], __ATOMIC_RELAXED);
    own(grammar).is_written = true;
  }
  void delay(const CachedGrammar& grammar, uint64_t due) {
    if (!grammar.due) own(grammar).due = due;
  }
  void write_due(uint64_t now) {
    for (CachedGrammar& grammar : all_) {
      if (!grammar.is_written && grammar.due && now >= grammar.due) write(grammar);
    }
  }

 private:
  const CachedGrammar* used(uint32_t slot, CachedGrammar& grammar) {
    ++grammar.users;
    of_[slot] = &grammar;
    return &grammar;
  }
  CachedGrammar& own(const CachedGrammar& grammar) {
    for (CachedGrammar& other : all_) {
      if (&other == &grammar) return other;
    }
    std::abort();
  }

  uint32_t* const heap_;
  std::mt19937_64& random_;
  std::list<CachedGrammar> all_;
  std::map<uint32_t, CachedGrammar*> of_;  // by slot
  uint32_t names_ = 0;
};

}  // namespace simulator
