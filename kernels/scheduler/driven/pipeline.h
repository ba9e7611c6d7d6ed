/* How a host gets a step onto the GPU and its tokens back, in three designs that differ in nothing but the streams they
 * use and in how many steps they keep in flight. README.md numbers the invariants (D1..).
 */
#ifndef BLINK_DRIVEN_PIPELINE_H
#define BLINK_DRIVEN_PIPELINE_H

#include <string.h>

#include <vector>

#include "../../../ringbuffer/extents.h"
#include "../state.h"
#include "runtime.h"

namespace blink {

/* Streams are numbers; roles with the same number share a stream and need no event between them. */
struct Design {
  const char* name;
  unsigned n_streams, inputs, compute, outputs;
  uint32_t step_sets; /* and so many steps in flight at most */
};

constexpr Design kDesigns[] = {
    /* one thing after the other */
    {"blocking", 1, 0, 0, 0, 1},
    /* Photon: ping-pong sets, results come back on a copy stream of their own */
    {"pipelined", 2, 0, 0, 1, 2},
    /* Hugging Face: inputs travel beside the running step too */
    {"async", 3, 0, 1, 2, 2},
};

inline const Design* find_design(const char* name) {
  for (const Design& design : kDesigns) {
    if (!strcmp(design.name, name)) return &design;
  }
  return nullptr;
}

class Pipeline {
 public:
  /* `host` is what the policy works on; `tables` and `sets` are what the engine's graphs are bound to. */
  Pipeline(Runtime& runtime, const Design& design, const blink_scheduler_config& host, const blink_tables& tables,
           const blink_step_set* sets)
      : runtime_(runtime),
        design_(design),
        host_(host),
        tables_(tables),
        sets_(sets, sets + BLINK_STEP_SETS),
        pages_sent_(host.tables.n_sequences) {
    runtime_.open(design.n_streams, design.step_sets * kEvents);
  }

  uint32_t step_sets() const { return design_.step_sets; }

  /* Enqueues the step that the policy has planned into set `set`. Returns 0 or the runtime's error code. */
  int submit(uint32_t shape, uint32_t set) {
    const blink_step_set &from = host_.sets[set], &to = sets_[set];
    const unsigned sent = event(set, kSent), computed = event(set, kComputed), returned = event(set, kReturned);
    send_sequences(from);
    runtime_.copy_in(design_.inputs, to.token_sequence, from.token_sequence, input_bytes(from));
    order(design_.inputs, sent, design_.compute);
    runtime_.launch(design_.compute, shape, set);
    order(design_.compute, computed, design_.outputs);
    runtime_.copy_out(design_.outputs, outputs(from), outputs(to), output_bytes(from, host_.shapes[shape].batch_slots));
    if (tells(from)) runtime_.copy_out(design_.outputs, from.out_logprobs, to.out_logprobs, logprob_bytes(*from.head));
    runtime_.record(returned, design_.outputs);
    submitted_ = from.head->id;
    return runtime_.error();
  }

  /* Publishes the oldest step in flight to the policy if its results are in host memory (D3). */
  void poll() {
    if (completed_ == submitted_) return;
    if (!runtime_.reached(event((completed_ + 1) % design_.step_sets, kReturned))) return;
    __atomic_store_n(host_.tables.completed, ++completed_, __ATOMIC_RELEASE);
  }

 private:
  enum Event { kSent, kComputed, kReturned, kEvents };

  static unsigned event(uint32_t set, Event which) { return set * kEvents + which; }

  void order(unsigned before, unsigned event, unsigned after) {
    if (before == after) return;
    runtime_.record(event, before);
    runtime_.wait(after, event);
  }

  /* A sequence is new to the GPU in the step that feeds its position 0; later steps bring it pages alone (D4). */
  void send_sequences(const blink_step_set& set) {
    const blink_step_head& head = *set.head;
    for (uint32_t batch_slot = 0; batch_slot < head.batch_size; ++batch_slot) {
      const uint32_t sequence = set.batch_sequence[batch_slot];
      if (set.token_position[set.batch_first[batch_slot]] == 0) send_request(sequence);
      send_pages(sequence);
    }
  }

  void send_request(uint32_t sequence) {
    const blink_tables& from = host_.tables;
    const uint64_t history = uint64_t(sequence) * from.max_context;
    runtime_.copy_in(design_.inputs, tables_.params + sequence, from.params + sequence, sizeof *from.params);
    runtime_.copy_in(design_.inputs, tables_.history + history, from.history + history,
                     host_.sequences[sequence].prefill_end * sizeof *from.history);
    if (const uint64_t words = control_words(from.params[sequence], from.vocab_size)) {
      const uint64_t at = uint64_t(sequence) * from.control_words;
      runtime_.copy_in(design_.inputs, tables_.controls + at, from.controls + at, words * sizeof *from.controls);
    }
    if (from.params[sequence].grammar_words) send_grammar(sequence);
    pages_sent_[sequence] = 0;
  }

  /* It lies in the same place on both sides, and whoever runs with it there keeps it from being overwritten (S21). */
  void send_grammar(uint32_t sequence) {
    const blink_tables& from = host_.tables;
    const uint32_t at = from.grammar_at[sequence];
    runtime_.copy_in(design_.inputs, tables_.grammars + at, from.grammars + at,
                     from.params[sequence].grammar_words * sizeof *from.grammars);
    runtime_.copy_in(design_.inputs, tables_.grammar_at + sequence, from.grammar_at + sequence,
                     sizeof *from.grammar_at);
  }

  /* Only the entries that are new: the running step reads the others. */
  void send_pages(uint32_t sequence) {
    const uint32_t first = pages_sent_[sequence], n = host_.sequences[sequence].n_pages - first;
    if (n == 0) return;
    const uint64_t at = uint64_t(sequence) * host_.tables.pages_per_sequence + first;
    runtime_.copy_in(design_.inputs, tables_.block_table + at, host_.tables.block_table + at,
                     n * sizeof *tables_.block_table);
    pages_sent_[sequence] += n;
  }

  /* Whether a batch slot's request wants to be told of log-probabilities. */
  bool tells(const blink_step_set& set) const {
    for (uint32_t batch_slot = 0; batch_slot < set.head->batch_size; ++batch_slot) {
      const blink_descriptor& d = host_.tables.params[set.batch_sequence[batch_slot]];
      if (d.logprob_words || d.prompt_logprob_words) return true;
    }
    return false;
  }
  static size_t logprob_bytes(const blink_step_head& head) {
    return head.batch_size * BLINK_LOGPROB_WORDS * sizeof(uint64_t);
  }

  /* A set is one block (step.h): one copy takes all that the scheduler writes, another all that the engine writes. */
  static uint8_t* outputs(const blink_step_set& set) { return reinterpret_cast<uint8_t*>(&set.head->start_ns); }
  static size_t input_bytes(const blink_step_set& set) {
    return outputs(set) - reinterpret_cast<uint8_t*>(set.token_sequence);
  }
  static size_t output_bytes(const blink_step_set& set, uint32_t batch_slots) {
    return reinterpret_cast<uint8_t*>(set.out_token + batch_slots) - outputs(set);
  }

  Runtime& runtime_;
  const Design& design_;
  const blink_scheduler_config& host_;
  const blink_tables tables_;
  const std::vector<blink_step_set> sets_;
  std::vector<uint32_t> pages_sent_; /* [n_sequences] block-table entries that the GPU has */
  uint64_t submitted_ = 0, completed_ = 0;
};

}  // namespace blink

#endif
