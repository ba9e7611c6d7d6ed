// Characters as bytes.
#ifndef BLINK_GRAMMAR_UTF8_H
#define BLINK_GRAMMAR_UTF8_H

#include <cstdint>
#include <vector>

namespace blink::grammar {

struct ByteRange {
  uint8_t first, last;
};

using ByteSequence = std::vector<ByteRange>;

// The UTF-8 of all characters from `first` to `last`, surrogates left out: each sequence is the product of its ranges.
std::vector<ByteSequence> utf8_sequences(uint32_t first, uint32_t last);

// How the characters from `first` to `last` stand in a string of JSON: as themselves, but those that have to be escaped
// in the one way that the common encoders do it.
std::vector<ByteSequence> json_sequences(uint32_t first, uint32_t last);

}  // namespace blink::grammar

#endif  // BLINK_GRAMMAR_UTF8_H
