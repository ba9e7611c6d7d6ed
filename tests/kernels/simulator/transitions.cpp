/* What the scheduler makes of each request word in each state of a slot: the table of on_request_word, for the model
 * of the ring's protocol (tests/ringbuffer/protocol_model.py).
 *
 *   transitions     prints a line a case: state, lease's state, command, sequence, epoch, and sequence and state after
 *
 * The slot's sequence is 3 and the granted epoch is 2 before.
 */
#include <cstdio>

#include "simulated_ring.h"

#include "kernels/scheduler/host.h"

#define private public  // the table is of a part of the scheduler, not of its loop
#include "kernels/scheduler/scheduler.h"
#undef private

using namespace simulator;

namespace {

constexpr Sizes kSizes{16, 1, 4, 64, 4, 64, 64, 4, 0};
constexpr uint32_t kSlot = 5, kSequence = 3, kEpoch = 2;

class Platform : public blink::HostMemoryModel {
 public:
  explicit Platform(blink::Team& team) : HostMemoryModel(team, 0) {}
  uint64_t now() { return 1'000'000; }
  int launch(uint64_t, uint32_t, uint32_t) { return 0; }
  int relaunch() { return 0; }
  void pause(bool) {}
};

blink::Status after(uint32_t state, uint32_t lease, uint64_t word) {
  SimulatedRing ring(kSizes);
  blink_scheduler_config& c = ring.c;
  blink::Team team(1);
  Platform platform(team);
  blink::Scheduler<Platform> scheduler(platform, c);
  scheduler.restore();
  c.state->leases[0].state = lease;
  c.state->leases[0].epoch = kEpoch;
  blink_request& r = c.requests[kSlot];
  r.submission = kSequence;
  r.state = state;
  c.state->n_waiting = state == BLINK_STATE_PREFILL_PENDING;
  if (state == BLINK_STATE_PREFILL_PROCESSING) {  // an admitted request has a sequence
    r.sequence_index = 0;
    c.sequences[0].use = BLINK_SEQUENCE_ACTIVE;
    c.sequences[0].slot = kSlot;
    c.state->n_active = 1;
  }
  scheduler.publish(kSlot);
  c.request_words[kSlot] = word;
  scheduler.observe_requests();
  return blink::unpack_status(c.progress[kSlot].status);
}

}  // namespace

int main() {
  for (uint32_t state :
       {BLINK_STATE_EMPTY, BLINK_STATE_PREFILL_PENDING, BLINK_STATE_PREFILL_PROCESSING, BLINK_STATE_DECODE_COMPLETED})
    for (uint32_t lease : {BLINK_LEASE_GRANTED, BLINK_LEASE_RECLAIMED})
      for (uint32_t command = 0; command < 6; ++command)
        for (uint32_t sequence = kSequence - 2; sequence <= kSequence + 2; ++sequence)
          for (uint32_t epoch : {kEpoch, kEpoch - 1}) {
            const blink::Status s = after(state, lease, blink::request_word(sequence, command, epoch));
            std::printf("%u %u %u %u %u %u %u\n", state, lease, command, sequence, epoch, s.sequence, s.state);
          }
}
