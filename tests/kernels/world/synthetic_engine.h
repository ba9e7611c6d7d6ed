/* An engine without arithmetic that notices every scheduling mistake.
 *
 * Feeding a token writes a tag of (request, position, token) to its place in the paged KV cache; sampling checks the
 * tags of all positions of the sequence through the block table. A page owned twice, freed early or never filled, a
 * token fed at the wrong position and a lost or repeated prefill all show as a wrong tag. The sampled token depends on
 * the request, the position and the token before.
 */
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/scheduler/state.h"

namespace world {

inline uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

constexpr uint32_t kVocab = 1000, kEos = 1;

// What a request with this seed answers at output position `index`, after token `previous`. A quarter of all random
// seeds soon come to where there is no token to sample.
inline uint32_t answer(uint64_t seed, uint32_t index, uint32_t previous) {
  const uint64_t h = mix(seed * 1000003 + index * 7919 + previous);
  if (seed >> 62 == 1 && h % 16 == 1) return BLINK_NO_TOKEN;
  return h % 64 == 0 ? kEos : 2 + h % (kVocab - 2);
}

class SyntheticEngine {
 public:
  SyntheticEngine(const blink_tables& tables, const blink_step_set* sets, uint32_t total_pages)
      : t(tables), sets(sets), kv(uint64_t(total_pages) * tables.page_size) {}

  // Runs the step in `set` and publishes its completion. `now_ns` stamps it.
  void run(uint32_t set_index, uint64_t start_ns, uint64_t done_ns) {
    const blink_step_set& set = sets[set_index];
    blink_step_head& head = *set.head;
    if (head.id != __atomic_load_n(t.completed, __ATOMIC_ACQUIRE) + 1) fail("steps ran out of order");
    for (uint32_t i = 0; i < head.n_tokens; ++i) {
      const uint32_t row = set.token_row[i], position = set.token_position[i];
      if (exists(row, position)) cell(row, position) = tag(row, position);
    }
    for (uint32_t lane = 0; lane < head.n_decode; ++lane) {
      if (set.lane_first[lane] != lane || set.lane_last[lane] != lane || !set.lane_emit[lane])
        fail("the rows that decode do not come first");
    }
    for (uint32_t lane = 0; lane < head.n_lanes; ++lane) sample(set, lane);
    head.start_ns = start_ns;
    head.done_ns = done_ns;
    __atomic_store_n(t.completed, head.id, __ATOMIC_RELEASE);
  }

  std::string error;

 private:
  bool exists(uint32_t row, uint32_t position) {
    if (row < t.n_rows && position < t.max_context) return true;
    return fail("row or position out of range"), false;
  }

  // Of a row and a position that exist, like `cell`.
  uint64_t tag(uint32_t row, uint32_t position) {
    return mix(t.params[row].seed ^ mix(position) ^ mix(t.history[uint64_t(row) * t.max_context + position] + 77));
  }

  uint64_t& cell(uint32_t row, uint32_t position) {
    static uint64_t nowhere;
    const uint64_t page = t.block_table[uint64_t(row) * t.pages_per_row + position / t.page_size];
    if (page * t.page_size >= kv.size()) return fail("page out of range"), nowhere;
    return kv[page * t.page_size + position % t.page_size];
  }

  void sample(const blink_step_set& set, uint32_t lane) {
    const uint32_t row = set.lane_row[lane], position = set.token_position[set.lane_last[lane]];
    if (!exists(row, position)) return;
    if (set.token_row[set.lane_last[lane]] != row || set.token_row[set.lane_first[lane]] != row)
      fail("lane and tokens disagree");
    for (uint32_t q = 0; q <= position; ++q) {
      if (cell(row, q) != tag(row, q))
        return fail("the KV cache of row " + std::to_string(row) + " is wrong at position " + std::to_string(q));
    }
    if (!set.lane_emit[lane]) return;
    uint32_t* history = t.history + uint64_t(row) * t.max_context;
    const uint32_t token = answer(t.params[row].seed, position + 1 - t.params[row].prompt_tokens, history[position]);
    set.out_token[lane] = token;
    if (position + 1 < t.max_context) history[position + 1] = token == BLINK_NO_TOKEN ? 0 : token;
  }

  void fail(const std::string& what) {
    if (error.empty()) error = "engine: " + what;
  }

  const blink_tables& t;
  const blink_step_set* sets;
  std::vector<uint64_t> kv;
};

}  // namespace world
