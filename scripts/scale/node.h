/* A node of the fleet: blink's scheduler, its own source, in virtual time, over an engine that takes the time that a
 * GPU was measured to take, and computes nothing.
 *
 * The scheduler believes it runs for ever; it runs on a stack of its own (ucontext), and hands back in its back-off,
 * when its clock has come to where the fleet's is.
 */
#pragma once
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <unordered_map>

#include "kernels/scheduler/host.h"
#include "kernels/scheduler/scheduler.h"
#include "nic_frontend/native/crc32c.h"
#include "scripts/scale/request.h"
#include "ringbuffer/words.h"
#include "scripts/scale/step_time.h"
#include "tests/kernels/simulator/simulated_ring.h"
#include "scripts/scale/text.h"

namespace scale {

struct Grid {  // of shapes, as a backend captures them (gpu_backend/engines/graph_grid.py)
  std::vector<blink_shape> shapes;
  std::vector<uint32_t> decode_lookup, prefill_lookup, mixed_lookup;
};

// Told of a page that can be found from now on, or not any more: whose text it is of, and its number therein.
struct BlockEvent {
  bool stored;
  uint32_t label, block;
};

class Node {
 public:
  Node(const simulator::Sizes& sizes, const Grid& grid, const StepTime& step_time, uint32_t system_tokens)
      : ring_(sizes),
        c_(ring_.c),
        step_time_(step_time),
        system_tokens_(system_tokens),
        open_(sizes.n_slots),
        sequences_(sizes.n_slots),
        queue_(kQueue),
        stack_(new char[kStackBytes]) {
    c_.tables.vocab_size = kVocabulary;
    c_.n_shapes = grid.shapes.size();
    c_.shapes = const_cast<blink_shape*>(grid.shapes.data());  // all nodes' alike, which nobody writes
    c_.decode_lookup = const_cast<uint32_t*>(grid.decode_lookup.data());
    c_.prefill_lookup = const_cast<uint32_t*>(grid.prefill_lookup.data());
    c_.mixed_lookup = const_cast<uint32_t*>(grid.mixed_lookup.data());
    times_.resize(c_.n_shapes);
    c_.shape_times = times_.data();
    c_.kv_event_queue = queue_.data();
    c_.n_kv_event_queue = kQueue;
    for (uint32_t slot = sizes.n_slots; slot-- > 0;) free_.push_back(slot);
    give_back(c_.prompts, 4ull * c_.n_leases * c_.prompt_heap);
    give_back(c_.outputs, 8ull * c_.n_leases * c_.output_heap);
    give_back(c_.tables.history, 4ull * c_.tables.n_sequences * c_.tables.max_context);
    give_back(c_.pages, sizeof(blink_page) * sizes.total_pages);
    give_back(c_.page_tokens, 4ull * sizes.total_pages * sizes.page_size);
    give_back(c_.page_index, 4ull * c_.n_index);
    give_back(c_.trace, sizeof(blink_step_trace) * BLINK_TRACE_STEPS);
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack_.get();
    context_.uc_stack.ss_size = kStackBytes;
    context_.uc_link = nullptr;
    const uint64_t self = reinterpret_cast<uint64_t>(this);
    makecontext(&context_, reinterpret_cast<void (*)()>(enter), 2, uint32_t(self >> 32), uint32_t(self));
  }
  Node(const Node&) = delete;

  // In the order of their arrival.
  void submit(Request* request) { arriving_.push_back(request); }

  // Runs until its clock is at least there.
  void advance(uint64_t until) {
    until_ = until;
    swapcontext(&fleet_, &context_);
    follow();
  }

  std::vector<Request*> finished;   // since the fleet looked last
  std::vector<Request*> answering;  // ... that got their first token
  std::vector<BlockEvent> events;

  const blink_stats& stats() const { return c_.state->stats; }

 private:
  struct Run {
    uint32_t set;
    uint64_t start, done;
  };

  class Platform : public blink::HostMemoryModel {
   public:
    Platform(blink::Team& team, Node& node) : HostMemoryModel(team, 0), node_(node) {}
    uint64_t now() { return node_.clock_ += kReadNs; }
    unsigned rank(bool flag, unsigned* n) { return *n = flag, 0; }  // of one thread
    uint64_t sum_below(uint64_t value, uint64_t* sum) { return *sum = value, 0; }
    int launch(uint64_t, uint32_t shape, uint32_t set) { return node_.launch(shape, set); }
    int relaunch() { return 0; }
    void pause(bool) { node_.pause(); }

   private:
    Node& node_;
  };

  static constexpr size_t kStackBytes = 64 * 1024;
  static constexpr uint32_t kQueue = 1 << 12;
  static constexpr uint64_t kReadNs = 20, kTurnNs = 20'000;
  static constexpr unsigned kTurns = 8;  // after each event, for the scheduler to read what has come
  static constexpr uint32_t kAttachment = 1, kEpoch = 1;

  static void enter(uint32_t high, uint32_t low) { reinterpret_cast<Node*>(uint64_t(high) << 32 | low)->run(); }
  void run() {
    blink::Team team(1);
    Platform platform(team, *this);
    publish(&c_.kv_events->reader, blink::event_word(kAttachment, 0));
    while (blink::Scheduler<Platform>(platform, c_).run() == blink::Exit::kRelaunch) continue;
    for (;;) swapcontext(&context_, &fleet_);  // it has failed, and the fleet sees that nothing goes on
  }

  // To the system, zeros as it is, until it is used: there are many nodes, and each uses few slots at a time.
  static void give_back(void* memory, size_t bytes) {
    const uintptr_t page = 4096, first = (uintptr_t(memory) + page - 1) / page * page;
    const uintptr_t end = (uintptr_t(memory) + bytes) / page * page;
    if (end > first) madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
  }

  template <class T>
  static void publish(T* word, uint64_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
  }

  int launch(uint32_t shape, uint32_t set) {
    const uint64_t start = runs_.empty() ? clock_ : std::max(clock_, runs_.back().done);
    runs_.push_back({set, start, start + step_time_.of(c_.sets[set], c_.shapes[shape])});
    return 0;
  }

  void pause() {
    release();
    if (turns_) {
      --turns_;
      clock_ += kTurnNs;
    } else {
      uint64_t next = until_;
      if (!runs_.empty()) next = std::min(next, runs_.front().done);
      if (!arriving_.empty() && !free_.empty()) next = std::min(next, arriving_.front()->arrived);
      clock_ = std::max(clock_, next);
    }
    while (clock_ >= until_) swapcontext(&context_, &fleet_);
    publish(&c_.leases[0].word, blink::pair_word(kEpoch, ++beat_));
    while (!runs_.empty() && runs_.front().done <= clock_) complete();
    if (c_.lease_acks[0].word != blink::pair_word(kEpoch, BLINK_LEASE_GRANTED)) return;
    while (!arriving_.empty() && arriving_.front()->arrived <= clock_ && !free_.empty()) arrive();
  }

  void arrive() {
    Request* request = arriving_.front();
    arriving_.pop_front();
    const uint32_t slot = free_.back();
    free_.pop_back();
    open_[slot] = request;
    blink_descriptor d{};
    d.sequence = ++sequences_[slot];
    d.epoch = kEpoch;
    d.prompt_tokens = request->prompt;
    d.max_tokens = request->answer;
    d.top_p = d.repetition_penalty = 1;
    d.flags = BLINK_FLAG_IGNORE_EOS;
    d.ticket = ++tickets_;
    ring_.place(slot, d);
    uint32_t* prompt = ring_.prompt(slot, d);
    for (uint32_t i = 0; i < request->prompt; ++i)
      prompt[i] = token(i < system_tokens_ ? request->app : request->label, i);
    d.crc32c = blink::crc32c(blink::crc32c(0, &d, sizeof d - 4), prompt, 4ull * request->prompt);
    c_.descriptors[slot] = d;
    publish(&c_.request_words[slot], blink::request_word(d.sequence, BLINK_COMMAND_SUBMIT, kEpoch));
    turns_ = kTurns;
  }

  void complete() {
    const Run run = runs_.front();
    runs_.pop_front();
    const blink_step_set& set = c_.sets[run.set];
    blink_tables& t = c_.tables;
    for (uint32_t b = 0; b < set.head->batch_size; ++b) {
      if (!set.batch_emit[b]) continue;
      const uint32_t i = set.batch_sequence[b], position = set.token_position[set.batch_last[b]];
      Request* request = open_[c_.sequences[i].slot];
      const uint32_t next = token(request ? request->label : 0, position + 1);
      set.out_token[b] = next;
      if (position + 1 < t.max_context) t.history[uint64_t(i) * t.max_context + position + 1] = next;
      if (request) emit(request, c_.sequences[i].slot, position, run.done);
    }
    set.head->start_ns = run.start;
    set.head->done_ns = run.done;
    publish(t.completed, set.head->id);
    turns_ = kTurns;
  }

  void emit(Request* request, uint32_t slot, uint32_t position, uint64_t now) {
    if (!request->first) {
      request->first = now;
      answering.push_back(request);
    }
    if (position + 2 - request->prompt < request->answer || request->done) return;
    request->done = now;
    ending_.push_back(slot);
  }

  // Takes what has ended, and gives slots back.
  void release() {
    for (size_t i = 0; i < ending_.size();) {
      const uint32_t slot = ending_[i];
      const blink::Status status = blink::unpack_status(c_.progress[slot].status);
      if (open_[slot] && status.state == BLINK_STATE_DECODE_COMPLETED) {
        open_[slot]->cached = blink::high(c_.progress[slot].prefix);
        finished.push_back(open_[slot]);
        open_[slot] = nullptr;
        publish(&c_.request_words[slot], blink::request_word(sequences_[slot], BLINK_COMMAND_RELEASE, kEpoch));
      }
      if (open_[slot] || status.state != BLINK_STATE_EMPTY) {
        ++i;
        continue;
      }
      free_.push_back(slot);
      ending_[i] = ending_.back();
      ending_.pop_back();
    }
  }

  // Reads the KV events (ringbuffer/README.md).
  void follow() {
    const uint64_t word = __atomic_load_n(&c_.kv_events->written, __ATOMIC_ACQUIRE);
    if (blink::event_attachment(word) != kAttachment) return;
    const uint64_t written = blink::event_count(word);
    const uint8_t* records = reinterpret_cast<const uint8_t*>(c_.kv_events + 1);
    for (; read_ < written; ++read_) {
      const uint8_t* at = records + read_ % c_.kv_event_capacity * c_.kv_event_bytes;
      const auto& record = *reinterpret_cast<const blink_kv_event*>(at);
      if (record.kind == BLINK_KV_EVENT_STORED) {
        const auto* tokens = reinterpret_cast<const uint32_t*>(at + sizeof record);
        const BlockEvent event{true, label_of(tokens), block_of(tokens)};
        names_[record.block] = event;
        events.push_back(event);
      } else if (const auto known = names_.find(record.block);
                 record.kind == BLINK_KV_EVENT_REMOVED && known != names_.end()) {
        events.push_back({false, known->second.label, known->second.block});
        names_.erase(known);
      } else if (record.kind == BLINK_KV_EVENT_CLEARED) {
        for (const auto& [name, event] : names_) events.push_back({false, event.label, event.block});
        names_.clear();
      }
    }
    publish(&c_.kv_events->reader, blink::event_word(kAttachment, read_));
  }

  simulator::SimulatedRing ring_;
  blink_scheduler_config& c_;
  const StepTime& step_time_;
  const uint32_t system_tokens_;
  std::vector<Request*> open_;  // by slot
  std::vector<uint32_t> sequences_, free_, ending_;
  std::vector<blink_shape_time> times_;
  std::vector<uint64_t> queue_;
  std::deque<Request*> arriving_;
  std::deque<Run> runs_;
  std::unordered_map<uint64_t, BlockEvent> names_;
  std::unique_ptr<char[]> stack_;
  ucontext_t context_{}, fleet_{};
  uint64_t clock_ = 1'000'000, until_ = 0, read_ = 0;
  uint32_t beat_ = 0, tickets_ = 0;
  unsigned turns_ = kTurns;
};

}  // namespace scale
