// The token reader (paper section 4.4): a thread that turns the ring's progress table into batches of new
// tokens for the event loop, keeps the lease alive and watches the scheduler's heartbeat. It never takes
// Python's lock.
#ifndef BLINK_FRONTEND_TOKEN_READER_H
#define BLINK_FRONTEND_TOKEN_READER_H

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "nic_frontend/native/event_queue.h"
#include "nic_frontend/native/lease_keeper.h"
#include "nic_frontend/native/poll_pacing.h"

namespace blink {

class TokenReader {
 public:
  // `header` is the ring's.
  TokenReader(Link& link, const blink_header& header, const blink_reader_options& options, int eventfd);
  ~TokenReader();

  int eventfd() const { return eventfd_; }
  uint32_t open(uint32_t epoch, uint32_t beat);
  uint32_t submit(uint32_t n, const uint32_t* slots, blink_descriptor* descriptors, const uint32_t* prompts);
  void cancel(uint32_t slot, uint32_t sequence);
  uint32_t drain(blink_event* events, uint32_t max_events, uint32_t* tokens, uint32_t max_tokens);
  blink_health health();

 private:
  enum class Phase : uint8_t { kIdle, kOpen, kCancelled, kReleasing };

  // An idle slot belongs to the event loop, which may submit to it; every other one to the reader's thread,
  // which alone publishes its request word until the scheduler has freed it (F2). The inbox hands it over one
  // way, BLINK_EVENT_FREED the other.
  struct Slot {
    Phase phase = Phase::kIdle;
    uint32_t sequence = 0;
    uint32_t next = 0;                            // position of the next record
    uint32_t output_offset = 0, output_room = 0;  // of its records in the lease's heap
    uint32_t logprob_words = 0;                   // behind them, of each record
    uint32_t prompt_words = 0, prompt_told = 0;   // behind those, of the prompt: in all, and delivered
    uint32_t connection = 0;                      // over which it was submitted, or has been found to have arrived
    uint64_t unreadable_since = 0;
    uint64_t admitted = 0;  // when it was first seen out of PREFILL_PENDING; 0: it was not yet
  };
  struct Message {
    bool submitted;  // else cancelled
    uint32_t slot, sequence;
    uint32_t connection;  // over which it was submitted
    uint32_t output_offset, output_room;
    uint32_t logprob_words, prompt_words;
  };

  void stop();
  void run();
  bool take_messages();
  bool connected();
  bool resolve(uint32_t connection);
  void poll();
  void visit(uint32_t index, const blink_progress& entry);
  bool collect(uint32_t index, const blink_progress& entry);
  bool tell_prompt(uint32_t index);
  bool read_logprobs(uint32_t index, uint32_t n, uint64_t* words);
  bool read_outputs(const Slot& slot, uint64_t first, uint32_t n, uint64_t* words);
  uint32_t read_records(uint32_t index, const blink_progress& entry, uint32_t n, uint32_t* tokens);
  bool read_cached(uint32_t index, const blink_progress& entry, uint32_t* cached);
  bool push(uint32_t index, blink_event_kind kind, uint32_t reason, const uint32_t* tokens, uint32_t n,
            uint32_t cached = 0, uint32_t prefill_us = 0);
  bool push_words(uint32_t index, blink_event_kind kind, const uint64_t* words, uint32_t n);
  void end(uint32_t index, Phase phase, uint32_t command);
  void regroup();
  void leave_slots();
  void watch();
  void report();
  void wake();
  void pause(uint64_t now, bool up);

  Link& link_;
  const blink_reader_options options_;
  const int eventfd_;
  const blink_header header_;  // its constant part
  uint32_t first_slot_ = 0;
  std::vector<Slot> slots_;
  LeaseKeeper lease_;
  EventQueue queue_;
  std::atomic<bool> signalled_{false};
  uint32_t ticket_ = 0;  // the event loop's

  std::mutex inbox_mutex_;  // guards what follows
  std::condition_variable inbox_ready_;
  std::vector<Message> inbox_;
  bool stopping_ = false;

  // The reader thread's. Slots that wait for their first token are urgent and visited first.
  std::vector<Message> messages_;
  std::vector<uint32_t> urgent_, flowing_;
  std::vector<uint32_t> visiting_;
  std::vector<blink_progress> entries_;
  bool regroup_ = false;
  uint32_t resolved_ = 0;    // what every slot was told over connections before this one is settled (V7)
  size_t cursor_ = 0;        // the flowing slot whose turn is next, so that a full cycle starves none
  uint32_t budget_ = 0;      // records that this cycle may still take
  uint32_t pushed_ = 0;      // events of this cycle
  bool behind_ = false;      // this cycle left records that it could have taken
  bool unreported_ = false;  // the last look is not in health_ yet
  uint64_t now_ = 0;
  PollPacing pacing_;

  std::mutex health_mutex_;
  blink_health health_{};
  blink_health counters_{};  // the reader thread's; copied under the mutex with every tick of the lease

  std::thread thread_;  // last: it starts when everything else is in place
};

}  // namespace blink

#endif  // BLINK_FRONTEND_TOKEN_READER_H
