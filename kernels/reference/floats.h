/* The reference engine's memory. */
#ifndef BLINK_REFERENCE_FLOATS_H
#define BLINK_REFERENCE_FLOATS_H

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace blink {

/* Floats that start as zero without being touched: the pages of a cache that is never filled cost nothing. */
class Floats {
 public:
  explicit Floats(uint64_t n) : data_(static_cast<float*>(calloc(std::max<uint64_t>(n, 1), sizeof(float)))) {
    if (!data_) throw std::bad_alloc();
  }
  float* operator+(uint64_t offset) const { return data_.get() + offset; }
  float* get() const { return data_.get(); }

 private:
  struct Free {
    void operator()(float* p) const { free(p); }
  };
  std::unique_ptr<float, Free> data_;
};

}  // namespace blink

#endif /* BLINK_REFERENCE_FLOATS_H */
