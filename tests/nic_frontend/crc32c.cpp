// Both ways to the prompt's checksum, by table and by instruction, against RFC 3720 (appendix B.4) and each other.
// Exits 1 with a message when one is wrong.
#include "nic_frontend/native/crc32c.h"

#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

namespace {

struct Vector {
  const char* what;
  std::vector<unsigned char> data;
  uint32_t crc;
};

std::vector<Vector> rfc_vectors() {
  std::vector<unsigned char> up(32), down(32);
  for (int i = 0; i < 32; ++i) {
    up[i] = i;
    down[i] = 31 - i;
  }
  return {
      {"32 bytes of 0", std::vector<unsigned char>(32, 0), 0x8a9136aau},
      {"32 bytes of 0xff", std::vector<unsigned char>(32, 0xff), 0x62a8ab43u},
      {"0 to 31", up, 0x46dd794eu},
      {"31 to 0", down, 0x113fdb5cu},
  };
}

}  // namespace

int main() {
  for (const Vector& vector : rfc_vectors()) {
    const uint32_t chosen = blink::crc32c(0, vector.data.data(), vector.data.size());
    const uint32_t table = blink::crc32c_table(0, vector.data.data(), vector.data.size());
    if (chosen != vector.crc || table != vector.crc) {
      std::fprintf(stderr, "%s: %08x by default, %08x by table, %08x is right\n", vector.what, chosen, table,
                   vector.crc);
      return 1;
    }
  }
  std::mt19937 random(3);
  std::vector<unsigned char> data(300);
  for (unsigned char& byte : data) byte = random();
  for (size_t from = 0; from < 9; ++from) {
    for (size_t bytes = 0; bytes < 280; ++bytes) {
      const uint32_t seed = random();
      const uint32_t chosen = blink::crc32c(seed, data.data() + from, bytes);
      const uint32_t table = blink::crc32c_table(seed, data.data() + from, bytes);
      if (chosen != table) {
        std::fprintf(stderr, "%zu bytes from %zu: %08x by default, %08x by table\n", bytes, from, chosen, table);
        return 1;
      }
    }
  }
}
