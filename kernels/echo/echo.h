/* The scheduler's end of the ring and nothing behind it: grants the lease, takes submissions, answers with tokens at a
 * fixed pace. `blink bench transport` measures a frontend's way to the ring against it, on the GPU and on the CPU, so
 * it is written once over the scheduler's platform (kernels/scheduler/platform.h).
 *
 * It serves lease 0 of a ring with one lease and never takes it back.
 */
#ifndef BLINK_ECHO_H
#define BLINK_ECHO_H

#include "kernels/scheduler/platform.h"
#include "ringbuffer/words.h"

/* One slot as the echo sees it; an array [n_slots] in the scheduler's memory, zeroed. */
struct blink_echo_slot {
  uint64_t seen; /* request word */
  uint64_t due;  /* of the next token, nanoseconds */
  uint32_t sequence, state, count, limit;
  uint32_t output_offset, reserved;
};

namespace blink {

template <class P>
class Echo {
 public:
  // `step_ns` lies between two tokens of a slot.
  BLINK_FN Echo(P& platform, uint8_t* ring, blink_echo_slot* slots, uint64_t step_ns)
      : p_(platform), ring_(ring), header_(reinterpret_cast<blink_header*>(ring)), slots_(slots), step_ns_(step_ns) {}

  // Until the control word is not RUN.
  BLINK_FN void run() {
    if (p_.thread() == 0) p_.release(&header_->phase, BLINK_PHASE_SERVING);
    for (uint64_t beat = 1;; ++beat) {
      if (beat % kLookEvery == 0) {
        if (p_.broadcast(p_.acquire(&header_->control)) != BLINK_CONTROL_RUN) break;
        const uint32_t epoch = low(p_.broadcast(p_.acquire(word<uint64_t>(header_->leases_offset, 0))));
        if (epoch != epoch_) grant(epoch);
        if (p_.thread() == 0) p_.release(&header_->heartbeat, beat);
      }
      for (uint32_t i = p_.thread(); i < header_->n_slots; i += p_.threads()) turn(i);
    }
    if (p_.thread() == 0) p_.release(&header_->phase, BLINK_PHASE_STOPPED);
  }

 private:
  static constexpr uint64_t kLookEvery = 16;  // turns between two looks at the lease, which costs a barrier

  template <class T>
  BLINK_FN T* word(uint64_t section, uint64_t index) {
    return reinterpret_cast<T*>(ring_ + section) + index;
  }
  BLINK_FN blink_progress* progress(uint32_t i) { return word<blink_progress>(header_->progress_offset, i); }

  // Slots are given out idle, with the sequence of their last request word (R6).
  BLINK_FN void grant(uint32_t epoch) {
    epoch_ = epoch;
    for (uint32_t i = p_.thread(); i < header_->n_slots; i += p_.threads()) {
      const uint64_t request = p_.acquire(word<uint64_t>(header_->requests_offset, i));
      slots_[i] = {request, 0, low(request), BLINK_STATE_EMPTY, 0, 0, 0, 0};
      publish(i, BLINK_REASON_NONE);
    }
    p_.sync();
    if (p_.thread() == 0 && epoch)
      p_.release(word<uint64_t>(header_->lease_acks_offset, 0), pair_word(epoch, BLINK_LEASE_GRANTED));
  }

  BLINK_FN void publish(uint32_t i, uint32_t reason) {
    const blink_echo_slot& s = slots_[i];
    p_.release(&progress(i)->status, status_word({s.sequence, s.state, reason, s.count}));
  }

  BLINK_FN void turn(uint32_t i) {
    blink_echo_slot& s = slots_[i];
    const uint64_t* request = word<uint64_t>(header_->requests_offset, i);
    if (p_.load(request) != s.seen) observe(i, p_.acquire(request));
    if (s.state == BLINK_STATE_DECODE_PROCESSING && p_.now() >= s.due) answer(i);
  }

  BLINK_FN void observe(uint32_t i, uint64_t request) {
    blink_echo_slot& s = slots_[i];
    const uint32_t command = request_command(request);
    if (request_epoch(request) == (epoch_ & BLINK_EPOCH_MASK)) {
      if (command == BLINK_COMMAND_SUBMIT && s.state == BLINK_STATE_EMPTY && low(request) == s.sequence + 1) {
        if (!accept(i, low(request))) return;  // and look again
      } else if (command == BLINK_COMMAND_RELEASE && low(request) == s.sequence) {
        s.state = BLINK_STATE_EMPTY;
        s.count = 0;
        publish(i, BLINK_REASON_NONE);
      }
    }
    s.seen = request;
  }

  // The payload must be that of the word which published it (R2): the descriptor carries sequence and epoch, and the
  // prompt's last token the low half of `seed`. One that is not is counted.
  BLINK_FN bool accept(uint32_t i, uint32_t sequence) {
    blink_echo_slot& s = slots_[i];
    const auto* descriptor = word<blink_descriptor>(header_->descriptors_offset, i);
    const uint32_t n = p_.load(&descriptor->prompt_tokens);
    const uint64_t at = p_.load(&descriptor->prompt_offset);
    const uint32_t* prompt = word<uint32_t>(header_->prompts_offset, at);
    const uint64_t output = p_.load(&descriptor->output_offset), room = p_.load(&descriptor->output_room);
    const bool same = p_.load(&descriptor->sequence) == sequence && p_.load(&descriptor->epoch) == epoch_;
    if (!same || n == 0 || at + n > header_->prompt_heap || room == 0 || output + room > header_->output_heap ||
        p_.load(prompt + n - 1) != low(p_.load(&descriptor->seed))) {
      p_.add(&header_->stats.torn_payloads, uint64_t(1));
      return false;
    }
    s.sequence = sequence;
    s.state = BLINK_STATE_DECODE_PROCESSING;
    s.count = 0;
    s.limit = Min()(p_.load(&descriptor->max_tokens), uint32_t(room));
    s.output_offset = uint32_t(output);
    s.due = 0;
    return true;
  }

  BLINK_FN void answer(uint32_t i) {
    blink_echo_slot& s = slots_[i];
    const uint64_t record = output_record(s.count, s.count, s.sequence);
    p_.store(word<uint64_t>(header_->outputs_offset, uint64_t(s.output_offset) + s.count), record);
    p_.store(&progress(i)->records[s.count % BLINK_INLINE_RECORDS], record);
    s.due = (s.due ? s.due : p_.now()) + step_ns_;
    const bool last = ++s.count >= s.limit;
    if (last) s.state = BLINK_STATE_DECODE_COMPLETED;
    publish(i, last ? BLINK_REASON_LENGTH : BLINK_REASON_NONE);
  }

  P& p_;
  uint8_t* const ring_;
  blink_header* const header_;
  blink_echo_slot* const slots_;
  const uint64_t step_ns_;
  uint32_t epoch_ = 0;
};

}  // namespace blink

#endif
