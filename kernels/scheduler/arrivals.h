/* Arrivals: a request's arrival is a number that says how old it is, made of the scan of the ring that found it and of
 * its frontend's ticket. */
#ifndef BLINK_SCHEDULER_ARRIVALS_H
#define BLINK_SCHEDULER_ARRIVALS_H

#include "platform.h"

namespace blink {

// A ticket's place among those of its lease, seen from the lease's last: from 1 to 2^32 - 1, kNewTicket the same.
constexpr uint32_t kNewTicket = 1u << 31;
BLINK_FN inline uint32_t ticket_order(uint32_t ticket, const blink_lease_record& lease) {
  return Max()(ticket - lease.ticket + kNewTicket, 1u);
}

// arrival: claim:39 | order within the claim:13 | slot:12
BLINK_FN inline uint64_t make_arrival(uint64_t claim, uint32_t order, uint32_t slot) {
  constexpr uint32_t kFirst = kNewTicket - BLINK_MAX_SLOTS + 1, kLast = kNewTicket + BLINK_MAX_SLOTS;
  return claim << 25 | uint64_t(Min()(Max()(order, kFirst), kLast) - kFirst) << 12 | slot;
}
// The place behind all who have arrived by the claim, and before those who arrive later.
BLINK_FN inline uint64_t make_turn(uint64_t claim) {
  return claim << 25;
}
BLINK_FN inline uint64_t arrival_claim(uint64_t arrival) {
  return arrival >> 25;
}
BLINK_FN inline uint32_t arrival_slot(uint64_t arrival) {
  return arrival & (BLINK_MAX_SLOTS - 1);
}

}  // namespace blink

#endif
