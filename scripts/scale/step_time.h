// How long a step takes on a GPU: fitted to measured steps by whoever gives the points (simulate.py).
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/scheduler/state.h"

namespace scale {

struct StepTime {
  std::vector<double> tokens, us;      // of a step's matmuls, which run at its shape's capacity; ascending
  double decode_us_per_key = 0;        // keys that sequences that decode read
  double prompt_us_per_token_key = 0;  // keys that a prompt's tokens see, each

  double matmuls(double n) const {
    size_t i = 1;
    while (i + 1 < tokens.size() && tokens[i] < n) ++i;
    const double slope = (us[i] - us[i - 1]) / (tokens[i] - tokens[i - 1]);
    return us[i - 1] + slope * (n - tokens[i - 1]);
  }

  // Nanoseconds of the step in `set`, which runs at `shape`.
  uint64_t of(const blink_step_set& set, const blink_shape& shape) const {
    const blink_step_head& head = *set.head;
    double decode_keys = 0, prompt_keys = 0;
    for (uint32_t i = 0; i < head.n_decode; ++i) decode_keys += set.token_position[i];
    for (uint32_t b = head.n_decode; b < head.batch_size; ++b) {
      const double first = set.token_position[set.batch_first[b]], last = set.token_position[set.batch_last[b]];
      prompt_keys += (last - first + 1) * (first + last) / 2;
    }
    return 1000 * (matmuls(shape.tokens) + decode_keys * decode_us_per_key + prompt_keys * prompt_us_per_token_key);
  }
};

}  // namespace scale
