/* A ring and a scheduler's memory on the heap, for tests that have no backend process. */
#pragma once
#include <algorithm>
#include <memory>
#include <utility>

#include "synthetic_engine.h"

namespace simulator {

struct Sizes {
  uint32_t n_slots, n_leases, max_batch, max_context, page_size, total_pages, max_prefill_tokens, max_prefill_slots;
  uint64_t arm_margin_ns;
  uint32_t max_mixed_tokens = 0;  // 0: as many as sequences and prompts may have
  uint32_t mixed_share = 16;
  uint32_t prefix_cache = 1;
  uint32_t attention_keys = 0;
  uint32_t stage_words = 0;  // 0: as many as on a GPU
  uint32_t kv_event_capacity = 0;
  uint32_t host_pages = 0;
  uint32_t copied_pages = 0;   // by one step, at most
  uint32_t grammar_words = 0;  // of all grammars in device memory
  uint32_t priorities = 0;     // that requests have, around 0; at most 256
  uint32_t max_drafts = 0;     // of a sequence in one step
  uint32_t verify_rows = 0;    // of a step with drafts, beside max_batch
  uint32_t suffix = 0;         // not 0: drafts are looked up by that method
  uint32_t target_itl_ns = 0;  // of steps beside sequences that decode
  uint32_t min_itl_ns = 0;     // between steps without prompts
};

class SimulatedRing {
 public:
  explicit SimulatedRing(const Sizes& z) : sizes(z) {
    c.header = array<blink_header>(1);
    c.leases = array<blink_lease>(BLINK_MAX_LEASES);
    c.lease_acks = array<blink_lease_ack>(BLINK_MAX_LEASES);
    c.request_words = array<uint64_t>(z.n_slots);
    c.descriptors = array<blink_descriptor>(z.n_slots);
    c.progress = array<blink_progress>(z.n_slots);
    c.n_slots = z.n_slots;
    c.n_leases = z.n_leases;
    // Each slot could have a whole context.
    c.prompt_heap = c.output_heap = z.n_slots / z.n_leases * words(z.max_context);
    c.prompts = array<uint32_t>(uint64_t(z.n_leases) * c.prompt_heap);
    c.outputs = array<uint64_t>(uint64_t(z.n_leases) * c.output_heap);
    blink_tables& t = c.tables;
    t.n_sequences = z.max_batch + z.max_prefill_slots;
    t.max_context = z.max_context;
    t.page_size = z.page_size;
    t.pages_per_sequence = (z.max_context + z.page_size - 1) / z.page_size;
    t.vocab_size = kVocab;
    t.n_eos = 1;
    t.n_processors = 1;
    t.eos[0] = kEos;
    t.history = array<uint32_t>(uint64_t(t.n_sequences) * z.max_context);
    t.block_table = array<uint32_t>(uint64_t(t.n_sequences) * t.pages_per_sequence);
    t.params = array<blink_descriptor>(t.n_sequences);
    t.control_words = kControlWords;
    t.controls = array<uint32_t>(uint64_t(t.n_sequences) * kControlWords);
    t.completed = array<uint64_t>(1);
    t.grammars = array<uint32_t>(z.grammar_words);
    t.grammar_at = array<uint32_t>(t.n_sequences);
    t.grammar_states = array<blink_grammar_state>(BLINK_GRAMMAR_STATES * t.n_sequences);
    t.vocabulary.first = const_cast<uint32_t*>(book().vocabulary.first.data());
    t.vocabulary.bytes = const_cast<uint8_t*>(book().vocabulary.bytes.data());
    const uint32_t mixed = z.max_mixed_tokens ? z.max_mixed_tokens : z.max_batch + z.max_prefill_tokens;
    const uint32_t verify_rows = z.max_drafts ? z.max_batch + z.verify_rows : 0;
    const uint32_t tokens = std::max({mixed, z.max_prefill_tokens, z.copied_pages, verify_rows});
    const uint32_t batch_slots = t.n_sequences, most_slots = std::max(batch_slots, verify_rows);
    for (blink_step_set& set : c.sets) {
      uint32_t* at = array<uint32_t>(2 * words(tokens) + 5 * words(most_slots) + words(sizeof(blink_step_head) / 4));
      auto take = [&at](uint64_t n) { return std::exchange(at, at + words(n)); };
      for (uint32_t** p : {&set.token_sequence, &set.token_position}) *p = take(tokens);
      for (uint32_t** p : {&set.batch_sequence, &set.batch_first, &set.batch_last, &set.batch_emit})
        *p = take(most_slots);
      set.head = reinterpret_cast<blink_step_head*>(take(sizeof(blink_step_head) / 4));
      set.out_token = take(most_slots);
      set.out_logprobs = array<uint64_t>(uint64_t(most_slots) * BLINK_LOGPROB_WORDS);
    }
    // One decode shape, one prefill shape, mixed ones of two sizes, each of few batch slots and of all; two that
    // verify; copies.
    c.n_shapes = 6 + (z.max_drafts ? 2 : 0) + (z.host_pages ? 1 : 0);
    c.shapes = array<blink_shape>(c.n_shapes);
    const uint32_t verifies = z.max_drafts != 0;
    const uint32_t small = (mixed + 1) / 2, few = (batch_slots + 1) / 2;
    c.shapes[0] = {BLINK_STEP_DECODE, z.max_batch, z.max_batch, 0};
    c.shapes[1] = {BLINK_STEP_PREFILL, z.max_prefill_tokens, z.max_prefill_slots, 0};
    c.shapes[2] = {BLINK_STEP_MIXED, small, std::min(few, small), verifies};
    c.shapes[3] = {BLINK_STEP_MIXED, small, std::min(batch_slots, small), verifies};
    c.shapes[4] = {BLINK_STEP_MIXED, mixed, std::min(few, mixed), verifies};
    c.shapes[5] = {BLINK_STEP_MIXED, mixed, std::min(batch_slots, mixed), verifies};
    c.copy_shape = c.n_shapes - 1;
    if (z.host_pages) c.shapes[c.copy_shape] = {BLINK_STEP_COPY, z.copied_pages, 0, 0};
    const uint32_t half = (verify_rows + 1) / 2;
    if (z.max_drafts) c.shapes[6] = {BLINK_STEP_DECODE, half, half, 1};
    if (z.max_drafts) c.shapes[7] = {BLINK_STEP_DECODE, verify_rows, verify_rows, 1};
    c.verify_lookup = array<uint32_t>(verify_rows + 1);
    for (uint32_t n = 0; n <= verify_rows; ++n) c.verify_lookup[n] = n <= half ? 6 : 7;
    c.max_drafts = z.max_drafts;
    c.max_verify_rows = verify_rows;
    c.longest_match = z.suffix ? 23 : 4;
    c.shortest_match = 1;
    c.drafts_per_matched_token = z.suffix ? 1 << 16 : 0;
    c.least_share = z.suffix ? (1 << 16) / 10 : 0;
    c.n_draft_places = 64;
    c.draft_places = array<uint32_t>(uint64_t(t.n_sequences) * c.n_draft_places);
    c.host_pages = z.host_pages;
    c.decode_lookup = array<uint32_t>(z.max_batch + 1);
    c.prefill_lookup = lookup(z.max_prefill_tokens);
    for (uint32_t n = 0; n <= z.max_prefill_tokens; ++n) c.prefill_lookup[granules(n)] = 1;
    c.mixed_lookup = lookup(mixed);
    for (uint32_t n = 0; n <= mixed; ++n) c.mixed_lookup[granules(n)] = n <= small ? 2 : 4;
    c.seen = array<uint64_t>(z.n_slots);
    c.requests = array<blink_request>(z.n_slots);
    c.sequences = array<blink_sequence>(t.n_sequences);
    c.free_pages = array<uint32_t>(z.total_pages);
    const uint32_t all_pages = z.total_pages + z.host_pages;
    c.pages = array<blink_page>(all_pages);
    c.page_tokens = array<uint32_t>(uint64_t(all_pages) * z.page_size);
    for (c.n_index = 4; c.n_index < 4 * all_pages;) c.n_index *= 2;
    for (c.n_idle = 2; c.n_idle < 2 * z.total_pages;) c.n_idle *= 2;
    c.page_index = array<uint32_t>(c.n_index);
    c.idle_pages = array<uint32_t>(c.n_idle);
    c.prefix_cache = z.prefix_cache;
    c.hash_key = 0x243f6a8885a308d3ull;
    c.attention_keys = z.attention_keys;
    c.kv_event_capacity = z.kv_event_capacity;
    c.kv_event_bytes = (sizeof(blink_kv_event) + 4 * z.page_size + 63) / 64 * 64;
    c.kv_events = reinterpret_cast<blink_kv_events*>(
        array<uint8_t>(sizeof(blink_kv_events) + uint64_t(c.kv_event_capacity) * c.kv_event_bytes));
    c.n_kv_event_queue = 256;  // for 64 threads
    c.kv_event_queue = array<uint64_t>(c.n_kv_event_queue);
    c.kv_event_told = array<uint32_t>(z.total_pages);
    c.max_grammar_words = z.grammar_words;
    c.n_grammar_places = 8;
    c.grammar_places = array<blink_grammar_place>(c.n_grammar_places);
    c.shape_times = array<blink_shape_time>(c.n_shapes);
    c.trace = array<blink_step_trace>(BLINK_TRACE_STEPS);
    c.state = array<blink_scheduler_state>(1);
    c.total_pages = z.total_pages;
    c.max_prefill_tokens = z.max_prefill_tokens;
    c.max_prefill_slots = z.max_prefill_slots;
    c.max_mixed_tokens = mixed;
    c.mixed_share = z.mixed_share;
    c.target_itl_ns = z.target_itl_ns;
    c.min_itl_ns = z.min_itl_ns;
    c.max_batch = z.max_batch;
    c.priorities = z.priorities != 0;
    c.stage_words = z.stage_words ? z.stage_words : BLINK_STAGE_WORDS;
    c.arm_margin_ns = z.arm_margin_ns;
    c.scan_interval_ns = 5000;
    c.step_timeout_ns = 10'000'000'000ull;
  }

  // Gives a slot's request the ranges that its place in its lease would have if each slot had the same.
  void place(uint32_t slot, blink_descriptor& d) const {
    const uint32_t share = c.n_slots / c.n_leases;
    d.prompt_room = c.prompt_heap / share;
    d.prompt_offset = slot % share * d.prompt_room;
    d.output_room = c.output_heap / share;
    d.output_offset = slot % share * d.output_room;
  }
  uint32_t lease_of(uint32_t slot) const { return slot / (c.n_slots / c.n_leases); }
  uint32_t* prompt(uint32_t slot, const blink_descriptor& d) const {
    return c.prompts + uint64_t(lease_of(slot)) * c.prompt_heap + d.prompt_offset;
  }
  uint64_t* outputs(uint32_t slot, const blink_descriptor& d) const {
    return c.outputs + uint64_t(lease_of(slot)) * c.output_heap + d.output_offset;
  }

  const Sizes sizes;
  std::vector<std::vector<uint32_t>> texts;  // prompts with their answers, with which later prompts begin
  blink_scheduler_config c{};

 private:
  // 32-bit words in whole lines.
  static uint64_t words(uint64_t n) { return (n + 31) / 32 * 32; }

  static uint32_t granules(uint32_t n) { return (n + BLINK_TOKEN_GRANULE - 1) / BLINK_TOKEN_GRANULE; }

  // For up to n tokens; behind its end it names a shape that there is not.
  uint32_t* lookup(uint32_t n) {
    const uint32_t entries = granules(n) + 1;
    uint32_t* at = array<uint32_t>(2 * entries);
    std::fill_n(at, 2 * entries, c.n_shapes);
    return at;
  }

  template <class T>
  T* array(uint64_t n) {
    const uint64_t bytes = (n * sizeof(T) + 127) / 128 * 128;
    memory_.emplace_back(static_cast<uint8_t*>(std::aligned_alloc(128, bytes)), std::free);
    std::fill_n(memory_.back().get(), bytes, 0);
    return reinterpret_cast<T*>(memory_.back().get());
  }
  std::vector<std::unique_ptr<uint8_t, void (*)(void*)>> memory_;
};

}  // namespace simulator
