/* The checksum that a frontend computes, bit by bit from the definition (not the policy's code). */
#pragma once
#include <cstddef>

#include "ringbuffer/extents.h"
#include "synthetic_answer.h"

namespace simulator {

// ~CRC-32C of some bytes, behind others of which it is `crc`; at first ~0.
inline uint32_t crc_bytes(uint32_t crc, const void* data, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    crc ^= static_cast<const uint8_t*>(data)[i];
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  return crc;
}

// `payload`: the prompt, and the controls behind it.
inline uint32_t reference_crc(const blink_descriptor& d, const uint32_t* payload) {
  return ~crc_bytes(crc_bytes(~0u, &d, sizeof(d) - 4), payload, 4 * blink::payload_words(d, kVocab));
}

}  // namespace simulator
