#include "nic_frontend/native/grammar/utf8.h"

#include <algorithm>

namespace blink::grammar {

namespace {

constexpr uint32_t kFirstOfLength[] = {0, 0, 0x80, 0x800, 0x10000, 0x110000};  // characters, by bytes

uint32_t encode(uint32_t character, uint32_t length, uint8_t* to) {
  static constexpr uint8_t kLead[] = {0, 0, 0xc0, 0xe0, 0xf0};
  for (uint32_t i = length; i-- > 1; character >>= 6) to[i] = uint8_t(0x80 | (character & 0x3f));
  to[0] = uint8_t(kLead[length] | character);
  return length;
}

// Of characters with the same number of bytes: cut where a byte but the last would not run through all its values.
void split(uint32_t first, uint32_t last, uint32_t length, std::vector<ByteSequence>& found) {
  for (uint32_t i = 1; i < length; ++i) {
    const uint32_t mask = (1u << (6 * i)) - 1;
    if ((first & ~mask) == (last & ~mask)) continue;
    if (first & mask) {
      split(first, first | mask, length, found);
      return split((first | mask) + 1, last, length, found);
    }
    if ((last & mask) != mask) {
      split(first, (last & ~mask) - 1, length, found);
      return split(last & ~mask, last, length, found);
    }
  }
  uint8_t low[4], high[4];
  encode(first, length, low);
  encode(last, length, high);
  ByteSequence sequence(length);
  for (uint32_t i = 0; i < length; ++i) sequence[i] = {low[i], high[i]};
  found.push_back(sequence);
}

void add(uint32_t first, uint32_t last, std::vector<ByteSequence>& found) {
  for (uint32_t length = 1; length <= 4; ++length) {
    const uint32_t from = std::max(first, kFirstOfLength[length]);
    const uint32_t to = std::min(last, kFirstOfLength[length + 1] - 1);
    if (from <= to) split(from, to, length, found);
  }
}

ByteSequence escape(uint32_t character) {
  static constexpr char kDigits[] = "0123456789abcdef";
  static constexpr char kShort[] = "\b\t\n\f\r\"\\";
  static constexpr char kLetters[] = "btnfr\"\\";
  ByteSequence sequence{{'\\', '\\'}};
  const auto put = [&](char byte) { sequence.push_back({uint8_t(byte), uint8_t(byte)}); };
  for (uint32_t i = 0; kLetters[i]; ++i)
    if (uint32_t(kShort[i]) == character) {
      put(kLetters[i]);
      return sequence;
    }
  for (const char byte : {'u', '0', '0', kDigits[character >> 4], kDigits[character & 15]}) put(byte);
  return sequence;
}

void append(std::vector<ByteSequence>& to, const std::vector<ByteSequence>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

}  // namespace

std::vector<ByteSequence> utf8_sequences(uint32_t first, uint32_t last) {
  std::vector<ByteSequence> found;
  if (first < 0xd800) add(first, std::min(last, 0xd7ffu), found);
  if (last > 0xdfff) add(std::max(first, 0xe000u), last, found);
  return found;
}

std::vector<ByteSequence> json_sequences(uint32_t first, uint32_t last) {
  std::vector<ByteSequence> found;
  uint32_t from = first;
  for (; from < 0x20 && from <= last; ++from) found.push_back(escape(from));
  for (const uint32_t character : {uint32_t('"'), uint32_t('\\')}) {
    if (character < from || character > last) continue;
    if (character > from) append(found, utf8_sequences(from, character - 1));
    found.push_back(escape(character));
    from = character + 1;
  }
  if (from <= last) append(found, utf8_sequences(from, last));
  return found;
}

}  // namespace blink::grammar
