// One turn of a conversation, as the fleet follows it. Times in nanoseconds of the simulation.
#pragma once
#include <cstdint>

namespace scale {

struct Request {
  uint32_t app, label;  // whose system prompt it begins with; the conversation's text behind it
  uint32_t prompt, answer, turn;
  uint64_t arrived, first = 0, done = 0;
  uint32_t cached = 0, node = 0;
  double to_compute = 0;  // blocks, as far as the router knew when it chose
};

}  // namespace scale
