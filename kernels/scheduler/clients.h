/* What a client has and has had: its places in the batch, and its last turn (turns.h).
 *
 * It is counted in two tables, at places that different bits of the client's number choose. The smaller count is never
 * too small, and too large only where others share both places.
 */
#ifndef BLINK_SCHEDULER_CLIENTS_H
#define BLINK_SCHEDULER_CLIENTS_H

#include "arrivals.h"

namespace blink {

template <class P>
class Clients {
 public:
  BLINK_FN Clients(P& platform, const blink_scheduler_config& config) : p_(platform), s_(*config.state) {}

  // The number of places that a client has in the batch.
  BLINK_FN uint32_t places_of(uint32_t client) const {
    return Min()(count_of(client, false).places, count_of(client, true).places);
  }
  BLINK_FN void count_places(uint32_t client, uint32_t change) {
    for (uint32_t second = 0; second < 2; ++second) p_.add(&count_of(client, second).places, change);
  }

  // When the client last had a request admitted, on the scale of arrivals.
  BLINK_FN uint64_t last_turn(uint32_t client) const {
    return Min()(count_of(client, false).turn, count_of(client, true).turn);
  }
  // A request of the client was admitted: what else of it waits comes behind all who wait now.
  BLINK_FN void had_turn(uint32_t client) {
    if (p_.thread() == 0) {
      ++s_.claims;
      for (uint32_t second = 0; second < 2; ++second) count_of(client, second).turn = make_turn(s_.claims);
    }
    p_.sync();
  }

 private:
  BLINK_FN blink_client_count& count_of(uint32_t client, bool second) const {
    return s_.clients[second ? BLINK_CLIENT_COUNTS + client / BLINK_CLIENT_COUNTS % BLINK_CLIENT_COUNTS
                             : client % BLINK_CLIENT_COUNTS];
  }

  P& p_;
  blink_scheduler_state& s_;
};

}  // namespace blink

#endif
