/* What the scheduler's tables say of one another, checked at every turn: pages, sequences, requests, grammars. */
#pragma once
#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "kernels/scheduler/pages.h"

namespace simulator {

class Bookkeeping {
 public:
  explicit Bookkeeping(const blink_scheduler_config& config) : c(config) {}

  std::string error;
  bool midway = false;  // in an iteration: a launch is tried again, behind which steps are concluded (S24)

  // S1: a page is free, or idle, or used by whom it says. S3: sequences and requests point at each other, and the
  // counters count them.
  void check() {
    const blink_scheduler_state& s = *c.state;
    std::vector<uint32_t>& users = cleared(users_, c.total_pages + c.host_pages);
    std::vector<uint32_t>& is_free = cleared(is_free_, c.total_pages);
    const blink::PageCounts counts(c);
    for (uint32_t i = 0; i < counts.free(); ++i) ++is_free[counts.nth(i)];
    uint32_t active = 0, zombies = 0, waiting = 0, staged = 0;
    std::array<uint32_t, 64> places{};  // by place in the first table, which hostile numbers of clients share
    for (uint32_t i = 0; i < c.tables.n_sequences; ++i) {
      const blink_sequence& row = c.sequences[i];
      if (row.unshown && !midway) fail("S24: a frontend is not shown what has become of its request");
      if (c.prefix_cache && row.n_linked < row.filled && !midway) fail("S24: pages that were filled are not linked");
      if (row.use == BLINK_SEQUENCE_FREE) continue;
      for (uint32_t p = 0; p < row.n_pages; ++p)
        ++users[c.tables.block_table[uint64_t(i) * c.tables.pages_per_sequence + p]];
      if (row.use == BLINK_SEQUENCE_ZOMBIE) {
        ++zombies;
        continue;
      }
      const blink_request& r = c.requests[row.slot];
      if (r.sequence_index != i) fail("S3: a sequence's request does not point back");
      if (row.use == BLINK_SEQUENCE_STAGED) {
        ++staged;
        if (row.n_pages) fail("S13: a staged sequence has pages");
        if (!waits(r)) fail("S13: a staged sequence's request does not wait");
        continue;
      }
      ++active;
      const uint32_t place = r.client % BLINK_CLIENT_COUNTS;
      if (place < places.size()) ++places[place];
      if (r.client != row.client) fail("S3: a sequence is its request's client's");
      if (r.state != BLINK_STATE_PREFILL_PROCESSING && r.state != BLINK_STATE_DECODE_PROCESSING)
        fail("S3: a sequence's request is not running");
    }
    check_host_pages();
    check_grammars();
    uint32_t idle = 0;
    for (uint32_t page = 0; page < c.total_pages; ++page) {
      const blink_page& g = c.pages[page];
      const bool findable = g.entry != BLINK_NO_PAGE;
      if (users[page] != g.users) return fail("S1: a page's users are miscounted");
      if (is_free[page] > 1 || (is_free[page] && (g.users || findable))) return fail("S1: a free page is in use");
      if (!is_free[page] && !g.users && !findable) return fail("S1: a page is lost");
      idle += !g.users && findable;
    }
    if (idle != counts.idle()) fail("S1: the idle pages are miscounted");
    for (uint32_t i = 0; i < c.n_slots; ++i) {
      waiting += waits(c.requests[i]);
    }
    if (active != s.n_active || zombies != s.n_zombies || waiting != s.n_waiting || staged != s.n_staged)
      fail("S3: a counter is wrong");
    for (uint32_t i = 0; i < places.size(); ++i) {
      if (s.clients[i].places != places[i]) fail("S3: a client's places are miscounted");
    }
  }

 private:
  // S19: a host page is found, or is one of a pair whose other page is found, or is empty. S17: no content is found
  // twice.
  void check_host_pages() {
    contents_.clear();
    for (uint32_t page = 0; page < c.total_pages + c.host_pages; ++page) {
      const blink_page& g = c.pages[page];
      const bool findable = g.entry != BLINK_NO_PAGE, host = page >= c.total_pages;
      if (findable && c.page_index[g.entry] != page + 2) fail("S17: the index has another page in this one's place");
      if (findable) contents_.push_back(g.content);
      if (host && g.users) fail("S19: a block table names a host page");
      if (g.copy == BLINK_NO_PAGE) continue;
      const blink_page& other = c.pages[g.copy];
      if (other.copy != page || (g.copy >= c.total_pages) == host) fail("S19: a page has the copy of another");
      if (other.content != g.content || other.parent != g.parent || other.depth != g.depth)
        fail("S19: a copy is described otherwise");
      if (findable == host) fail("S19: of a pair the host page is found");
    }
    std::sort(contents_.begin(), contents_.end());
    if (std::adjacent_find(contents_.begin(), contents_.end()) != contents_.end())
      fail("S17: two pages with the same content are found");
  }

  // S21: who has a grammar is counted, no two lie in the same place, and those in use are as they were read.
  void check_grammars() {
    std::vector<uint32_t>& users = cleared(grammar_users_, c.n_grammar_places);
    std::vector<uint32_t>& staged = cleared(grammar_staged_, c.n_grammar_places);
    for (uint32_t i = 0; i < c.tables.n_sequences; ++i) {
      const blink_sequence& row = c.sequences[i];
      if (row.use == BLINK_SEQUENCE_FREE) continue;
      const bool wants = c.tables.params[i].grammar_words, has = row.grammar != BLINK_NO_GRAMMAR;
      if (has && !wants) return fail("S21: a sequence has a grammar that it does not want");
      if (row.use != BLINK_SEQUENCE_STAGED && wants && !has) return fail("S21: a sequence runs without its grammar");
      if (has) ++(row.use == BLINK_SEQUENCE_STAGED ? staged : users)[row.grammar];
    }
    const blink_grammar_reading& reading = c.state->grammar_reading;
    if (reading.arrival) ++staged[reading.place];
    uint32_t end = 0;
    lengths_.clear();
    for (uint32_t i = 0; i < c.n_grammar_places; ++i) {
      const blink_grammar_place& place = c.grammar_places[i];
      if (place.users != users[i] || place.staged != staged[i]) return fail("S21: a grammar's users are miscounted");
      if (place.words) lengths_.emplace_back(place.at, place.words);
      if (place.users && !place.whole) return fail("S21: a sequence has a grammar that is not whole");
    }
    std::sort(lengths_.begin(), lengths_.end());
    for (const auto& [at, words] : lengths_) {
      if (at < end || at + words > c.max_grammar_words) return fail("S21: grammars overlap");
      end = at + words;
    }
  }

  static bool waits(const blink_request& r) {
    return r.state == BLINK_STATE_PREFILL_PENDING || r.state == BLINK_STATE_DECODE_PAUSED;
  }

  void fail(const char* what) {
    if (error.empty()) error = what;
  }

  static std::vector<uint32_t>& cleared(std::vector<uint32_t>& counts, size_t size) {
    counts.assign(size, 0);
    return counts;
  }

  const blink_scheduler_config& c;
  // Kept from turn to turn, so that their memory is: to allocate it anew took half of a simulation.
  std::vector<uint32_t> users_, is_free_, grammar_users_, grammar_staged_;
  std::vector<uint64_t> contents_;
  std::vector<std::pair<uint32_t, uint32_t>> lengths_;
};

}  // namespace simulator
