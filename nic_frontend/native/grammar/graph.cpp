#include "nic_frontend/native/grammar/graph.h"

#include <array>

#include "nic_frontend/native/grammar/dfa.h"
#include "nic_frontend/native/grammar/utf8.h"

namespace blink::grammar {

namespace {

constexpr size_t kLinksPerVertex = 4;  // that there may be, of the vertices that there may be
constexpr uint32_t kSpecial = 0xff;    // before the text of a special token: a byte that UTF-8 does not have

}  // namespace

uint32_t Graph::add() {
  budget_.check_nodes(vertices.size());
  vertices.emplace_back();
  return uint32_t(vertices.size() - 1);
}

void Graph::edge(uint32_t from, uint8_t first, uint8_t last, uint32_t to) {
  edges.push_back({to, vertices[from].edges, first, last});
  vertices[from].edges = uint32_t(edges.size() - 1);
}

void Graph::hop(uint32_t from, uint32_t to, When when) {
  hops.push_back({to, vertices[from].hops, when});
  vertices[from].hops = uint32_t(hops.size() - 1);
}

void Graph::build(uint32_t index, uint32_t from, uint32_t to) {
  const Node& node = program_.nodes[index];
  const uint32_t* a = node.arguments;
  const Level level(budget_);
  budget_.check_nodes((edges.size() + hops.size() + calls.size()) / kLinksPerVertex);
  switch (node.op) {
    case BLINK_GRAMMAR_OP_EMPTY:
      hop(from, to);
      break;
    case BLINK_GRAMMAR_OP_BYTES:
      chain(a, node.n, from, to);
      break;
    case BLINK_GRAMMAR_OP_CHARS:
      characters(node, from, to);
      break;
    case BLINK_GRAMMAR_OP_CAT:
      for (uint32_t i = 0; i + 1 < node.n; ++i) {
        const uint32_t next = add();
        build(a[i], from, next);
        from = next;
      }
      if (node.n)
        build(a[node.n - 1], from, to);
      else
        hop(from, to);
      break;
    case BLINK_GRAMMAR_OP_ALT:
      for (uint32_t i = 0; i < node.n; ++i) {
        const uint32_t begin = add();
        hop(from, begin);
        build(a[i], begin, to);
      }
      break;
    case BLINK_GRAMMAR_OP_REPEAT:
      repeat(node, from, to);
      break;
    case BLINK_GRAMMAR_OP_CALL:
      calls.push_back({a[0], to, vertices[from].calls, index, kNone});
      vertices[from].calls = uint32_t(calls.size() - 1);
      break;
    case BLINK_GRAMMAR_OP_BEGIN:
      hop(from, to, When::kAtBegin);
      break;
    case BLINK_GRAMMAR_OP_END:
      hop(from, to, When::kAtEnd);
      break;
    case BLINK_GRAMMAR_OP_CLOSED:
    case BLINK_GRAMMAR_OP_BOTH:
    case BLINK_GRAMMAR_OP_EXCEPT:
      Dfa(program_, index, budget_).put(*this, from, to);
      break;
    case BLINK_GRAMMAR_OP_UNTIL:
      until(node, from, to);
      break;
    case BLINK_GRAMMAR_OP_MULTIPLE:
      multiple(a[0], a[1], from, to);
      break;
    case BLINK_GRAMMAR_OP_MEMBERS:
      members(node, from, to);
      break;
    default:
      break;  // nothing leads there
  }
}

void Graph::chain(const uint32_t* bytes, uint32_t n, uint32_t from, uint32_t to) {
  if (n == 0) hop(from, to);
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t next = i + 1 < n ? add() : to;
    edge(from, uint8_t(bytes[i]), uint8_t(bytes[i]), next);
    from = next;
  }
}

void Graph::characters(const Node& node, uint32_t from, uint32_t to) {
  const bool in_json = node.arguments[0];
  for (uint32_t i = 1; i < node.n; i += 2) {
    const uint32_t first = node.arguments[i], last = node.arguments[i + 1];
    for (const ByteSequence& sequence : in_json ? json_sequences(first, last) : utf8_sequences(first, last)) {
      uint32_t at = from;
      for (size_t k = 0; k < sequence.size(); ++k) {
        const uint32_t next = k + 1 < sequence.size() ? add() : to;
        edge(at, sequence[k].first, sequence[k].last, next);
        at = next;
      }
    }
  }
}

void Graph::repeat(const Node& node, uint32_t from, uint32_t to) {
  const uint32_t inner = node.arguments[0], least = node.arguments[1], most = node.arguments[2];
  for (uint32_t i = 0; i < least; ++i) {
    const uint32_t next = add();
    build(inner, from, next);
    from = next;
  }
  if (most == BLINK_GRAMMAR_NO_LIMIT) {
    const uint32_t again = add();
    hop(from, again);
    build(inner, again, again);
    hop(again, to);
    return;
  }
  for (uint32_t i = least; i < most; ++i) {
    const uint32_t next = add();
    hop(from, to);
    build(inner, from, next);
    from = next;
  }
  hop(from, to);
}

// Knuth, Morris and Pratt: vertex i has seen the first i bytes of the mark.
void Graph::until(const Node& node, uint32_t from, uint32_t to) {
  const uint32_t n = node.n;
  const uint32_t* mark = node.arguments;
  std::vector<uint32_t> at(n + 1, to);
  for (uint32_t i = 0; i < n; ++i) at[i] = add();
  hop(from, at[0]);
  std::vector<std::array<uint32_t, 256>> moves(n, std::array<uint32_t, 256>{});
  for (uint32_t i = 0, shorter = 0; i < n; ++i) {  // `shorter`: where the bytes seen but the first would have led
    if (i) moves[i] = moves[shorter];
    moves[i][mark[i]] = i + 1;
    if (i) shorter = moves[shorter][mark[i]];
    const bool in_special = i > 0 && mark[0] == kSpecial;
    for (uint32_t byte = 0, first = 0; byte < 256; ++byte) {
      if (byte < 255 && moves[i][byte + 1] == moves[i][byte] && byte + 1 != kSpecial) continue;
      const bool expected = byte == mark[i] && first == byte;
      if (expected || (byte != kSpecial && !in_special)) edge(at[i], uint8_t(first), uint8_t(byte), at[moves[i][byte]]);
      first = byte + 1;
    }
  }
}

// Vertex r of a row has read digits that leave the remainder r: the first row's before the point, the others' so many
// behind it. Digits that are missing there are zeros.
void Graph::multiple(uint32_t divisor, uint32_t places, uint32_t from, uint32_t to) {
  const auto row = [&] {
    std::vector<uint32_t> at(divisor);
    for (uint32_t& vertex : at) vertex = add();
    return at;
  };
  const auto digits = [&](uint32_t vertex, uint32_t remainder, const std::vector<uint32_t>& next, uint32_t least) {
    for (uint32_t digit = least; digit < 10; ++digit)
      edge(vertex, uint8_t('0' + digit), uint8_t('0' + digit), next[(remainder * 10 + digit) % divisor]);
  };
  const auto end = [&](const std::vector<uint32_t>& at, uint32_t missing) {
    uint64_t power = 1;
    for (uint32_t i = 0; i < missing; ++i) power = power * 10 % divisor;
    for (uint32_t r = 0; r < divisor; ++r)
      if (r * power % divisor == 0) hop(at[r], to);
  };
  std::vector<uint32_t> at = row();
  const uint32_t zero = add();
  edge(from, '0', '0', zero);
  hop(zero, to);
  digits(from, 0, at, 1);
  for (uint32_t r = 0; r < divisor; ++r) digits(at[r], r, at, 0);
  end(at, places);
  if (places == 0) return;
  std::vector<uint32_t> behind = row();
  edge(zero, '.', '.', behind[0]);
  for (uint32_t r = 0; r < divisor; ++r) edge(at[r], '.', '.', behind[r]);
  for (uint32_t missing = places; missing > 0; --missing) {
    const std::vector<uint32_t> next = row();
    for (uint32_t r = 0; r < divisor; ++r) digits(behind[r], r, next, 0);
    end(next, missing - 1);
    behind = next;
  }
}

// `none` is where no member stands yet, `some` where one does.
void Graph::members(const Node& node, uint32_t from, uint32_t to) {
  const uint32_t separator = node.arguments[0], extra = node.arguments[1], n = (node.n - 2) / 2;
  const uint32_t* member = node.arguments + 2;
  uint32_t none = from, some = add();
  for (uint32_t i = 0; i < n; ++i) {
    const bool required = member[n + i];
    const uint32_t begin = add(), none_behind = add(), some_behind = add();
    hop(none, begin);
    build(separator, some, begin);
    build(member[i], begin, some_behind);
    if (!required) hop(none, none_behind);
    if (!required) hop(some, some_behind);
    none = none_behind;
    some = some_behind;
  }
  const uint32_t begin = add();
  hop(none, begin);
  build(separator, some, begin);
  build(extra, begin, some);
  hop(some, to);
}

Intervals::Intervals(const Graph& graph) {
  std::bitset<257> begins;
  begins[0] = true;
  for (const Edge& edge : graph.edges) begins[edge.first] = begins[edge.last + 1] = true;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    if (begins[byte]) first.push_back(uint8_t(byte));
    of_byte[byte] = uint8_t(first.size() - 1);
  }
}

}  // namespace blink::grammar
