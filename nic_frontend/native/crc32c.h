// CRC-32C (Castagnoli, RFC 3720 section 12.1), as the ring's payloads use it (R4).
#ifndef BLINK_FRONTEND_CRC32C_H
#define BLINK_FRONTEND_CRC32C_H

#include <cstddef>
#include <cstdint>

namespace blink {

// The CRC of the bytes that gave `crc` followed by these. Start with 0.
uint32_t crc32c(uint32_t crc, const void* data, size_t bytes);

// The portable implementation alone, so that a test can compare it with the instruction that crc32c picks.
uint32_t crc32c_table(uint32_t crc, const void* data, size_t bytes);

}  // namespace blink

#endif  // BLINK_FRONTEND_CRC32C_H
