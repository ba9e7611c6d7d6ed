/* What the scheduler makes of each request word and of each lease word in each state of a slot: the tables of
 * on_request_word and observe_leases, for the model of the ring's protocol (tests/ringbuffer/protocol_model.py).
 *
 *   transitions          state, lease's state, command, sequence, epoch; and after: sequence, state
 *   transitions leases   state, lease's state, sequence of the request word, epoch of the lease word, whether that
 *                        stood still for too long; and after: sequence, state, acknowledged epoch and state of the
 *                        lease, whether the request word counts as seen
 *
 * It prints a line a case.
 * The slot's sequence is 3 and the granted epoch is 2 before.
 */
#include <cstdio>
#include <cstring>

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

constexpr uint32_t kStates[] = {BLINK_STATE_EMPTY, BLINK_STATE_PREFILL_PENDING, BLINK_STATE_PREFILL_PROCESSING,
                                BLINK_STATE_DECODE_COMPLETED};

// A scheduler with one slot in a state, whose lease is in a state.
struct Case {
  SimulatedRing ring{kSizes};
  blink_scheduler_config& c = ring.c;
  blink::Team team{1};
  Platform platform{team};
  blink::Scheduler<Platform> scheduler{platform, c};

  Case(uint32_t state, uint32_t lease) {
    scheduler.restore();
    c.state->leases[0].state = lease;
    c.state->leases[0].epoch = kEpoch;
    c.lease_acks[0].word = blink::pair_word(kEpoch, lease);
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
    scheduler.requests_.publish(kSlot);
  }

  blink::Status status() const { return blink::unpack_status(c.progress[kSlot].status); }
};

void print_requests() {
  for (uint32_t state : kStates)
    for (uint32_t lease : {BLINK_LEASE_GRANTED, BLINK_LEASE_RECLAIMED})
      for (uint32_t command = 0; command < 6; ++command)
        for (uint32_t sequence = kSequence - 2; sequence <= kSequence + 2; ++sequence)
          for (uint32_t epoch : {kEpoch, kEpoch - 1}) {
            Case one(state, lease);
            one.c.request_words[kSlot] = blink::request_word(sequence, command, epoch);
            one.scheduler.intake_.observe_requests();
            const blink::Status s = one.status();
            std::printf("%u %u %u %u %u %u %u\n", state, lease, command, sequence, epoch, s.sequence, s.state);
          }
}

void print_leases() {
  for (uint32_t state : kStates)
    for (uint32_t lease : {BLINK_LEASE_FREE, BLINK_LEASE_GRANTED, BLINK_LEASE_RECLAIMED})
      for (uint32_t sequence : {kSequence, kSequence + 1})
        for (uint32_t asked = 0; asked <= kEpoch + 1; ++asked)
          for (uint32_t silent : {0, 1}) {
            Case one(state, lease);
            const uint64_t word = blink::request_word(sequence, BLINK_COMMAND_SUBMIT, kEpoch);
            one.c.request_words[kSlot] = word;
            one.c.leases[0].word = one.c.state->leases[0].word = blink::pair_word(asked, 7);
            one.c.state->leases[0].changed_ns = 0;
            one.scheduler.clock_.now_ = BLINK_LEASE_TIMEOUT_NS + silent;
            one.scheduler.intake_.observe_leases();
            const blink::Status s = one.status();
            const uint64_t ack = one.c.lease_acks[0].word;
            std::printf("%u %u %u %u %u %u %u %u %u %u\n", state, lease, sequence, asked, silent, s.sequence, s.state,
                        blink::low(ack), blink::high(ack), uint32_t(one.c.seen[kSlot] == word));
          }
}

}  // namespace

int main(int n, char** arguments) {
  if (n > 1 && std::strcmp(arguments[1], "leases") == 0)
    print_leases();
  else
    print_requests();
}
