/* What a text of JSON holds, counted before anything is made of it. */
#include <algorithm>

#include "nic_frontend/native/frontend.h"

extern "C" void blink_json_shape(const char* text, uint64_t bytes, struct blink_json_shape* shape) {
  uint64_t parts = 0, texts = 0, commas = 0, depth = 0, deepest = 0, scalar = 0, longest = 0;
  bool in_string = false;
  for (uint64_t at = 0; at < bytes; ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') {
        ++at;  // what is escaped ends no string
      } else {
        in_string = c != '"';
      }
      continue;
    }
    const bool ends_scalar =
        c == '"' || c == '[' || c == '{' || c == ']' || c == '}' || c == ':' || c == ',' || c <= ' ';
    scalar = ends_scalar ? 0 : scalar + 1;
    longest = std::max(longest, scalar);
    switch (c) {
      case '"':
        ++texts;
        in_string = true;
        break;
      case '[':
      case '{':
        ++parts;
        deepest = std::max(deepest, ++depth);
        break;
      case ']':
      case '}':
        depth -= depth > 0;  // a text that is no JSON closes what it has not opened
        break;
      case ':':
        ++parts;
        break;
      case ',':
        ++commas;
        break;
      default:
        break;
    }
  }
  *shape = {parts, texts, commas, deepest, longest};
}
