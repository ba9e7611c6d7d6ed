/* Choices that are drawn from a seed. */
#pragma once
#include <random>

namespace simulator {

struct Random : std::mt19937_64 {
  using std::mt19937_64::mt19937_64;
  bool chance(unsigned percent) { return (*this)() % 100 < percent; }
};

}  // namespace simulator
