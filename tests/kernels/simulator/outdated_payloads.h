/* Payloads of an earlier epoch of a simulated frontend's lease, which arrive while the payload of a request that it has
 * submitted is still on its way. They are whole, and have the sequence that the slot has now (R4).
 */
#pragma once
#include "random.h"
#include "reference_crc.h"
#include "sent.h"

namespace simulator {

class OutdatedPayloads {
 public:
  OutdatedPayloads(SimulatedRing& ring, Random& random) : ring_(ring), random_(random) {}

  uint64_t written = 0;

  // In the place of the payload whose descriptor is `due`, which will lie over it.
  void write(uint32_t slot, const blink_descriptor& due) {
    if (due.epoch < 2) return;
    Sent s;
    s.seed = random_();
    while (s.prompt.size() < due.prompt_tokens) s.prompt.push_back(random_() % kVocab);
    blink_descriptor d = due;
    d.epoch = 1 + random_() % (due.epoch - 1);
    d.seed = s.seed;
    d.ticket = random_();
    d.client = random_() % 3;
    const std::vector<uint32_t> payload = s.payload(d);
    d.crc32c = reference_crc(d, payload.data());
    std::copy(payload.begin(), payload.end(), ring_.prompt(slot, d));
    ring_.c.descriptors[slot] = d;
    ++written;
  }

 private:
  SimulatedRing& ring_;
  Random& random_;
};

}  // namespace simulator
