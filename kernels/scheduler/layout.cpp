/* What the compiler made of the shared structs, for the test that compares it with the generated Python view. */
#include <cstddef>

#include "ringbuffer/grammar.h"
#include "state.h"

namespace {

struct Member {
  const char *structure, *member;
  uint32_t offset, size;
};

#define X(s, m) {#s, #m, offsetof(s, m), sizeof(s::m)},
const Member kMembers[] = {BLINK_RING_MEMBERS(X) BLINK_GRAMMAR_MEMBERS(X) BLINK_STEP_MEMBERS(X)
                               BLINK_SCHEDULER_MEMBERS(X)};
#undef X

}  // namespace

/* Fills `member` and returns 1, or returns 0 past the end. */
extern "C" int blink_layout_member(uint32_t index, Member* member) {
  if (index >= sizeof(kMembers) / sizeof(kMembers[0])) return 0;
  *member = kMembers[index];
  return 1;
}
