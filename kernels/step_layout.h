/* Generated from step.h by scripts/generate_abi.py. Do not edit. */
// clang-format off
#define BLINK_STEP_LAYOUT_HASH 0xec7d874fc58615e3ull

#ifdef __cplusplus
#define BLINK_ASSERT static_assert
#else
#define BLINK_ASSERT _Static_assert
#endif
BLINK_ASSERT(sizeof(struct blink_shape) == 16, "blink_shape");
BLINK_ASSERT(__builtin_offsetof(struct blink_shape, kind) == 0, "blink_shape.kind");
BLINK_ASSERT(__builtin_offsetof(struct blink_shape, tokens) == 4, "blink_shape.tokens");
BLINK_ASSERT(__builtin_offsetof(struct blink_shape, batch_slots) == 8, "blink_shape.batch_slots");
BLINK_ASSERT(__builtin_offsetof(struct blink_shape, verifies) == 12, "blink_shape.verifies");
BLINK_ASSERT(sizeof(struct blink_step_head) == 256, "blink_step_head");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_head, id) == 0, "blink_step_head.id");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_head, kind) == 8, "blink_step_head.kind");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_head, shape) == 12, "blink_step_head.shape");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_head, n_tokens) == 16, "blink_step_head.n_tokens");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_head, batch_size) == 20, "blink_step_head.batch_size");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_head, n_decode) == 24, "blink_step_head.n_decode");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_head, has_drafts) == 28, "blink_step_head.has_drafts");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_head, work) == 32, "blink_step_head.work");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_head, pad0) == 36, "blink_step_head.pad0");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_head, start_ns) == 128, "blink_step_head.start_ns");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_head, sample_ns) == 136, "blink_step_head.sample_ns");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_head, done_ns) == 144, "blink_step_head.done_ns");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_head, fault) == 152, "blink_step_head.fault");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_head, slots_done) == 160, "blink_step_head.slots_done");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_head, processing) == 164, "blink_step_head.processing");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_head, pad1) == 196, "blink_step_head.pad1");
BLINK_ASSERT(sizeof(struct blink_step_set) == 72, "blink_step_set");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_set, head) == 0, "blink_step_set.head");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_set, token_sequence) == 8, "blink_step_set.token_sequence");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_set, token_position) == 16, "blink_step_set.token_position");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_set, batch_sequence) == 24, "blink_step_set.batch_sequence");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_set, batch_first) == 32, "blink_step_set.batch_first");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_set, batch_last) == 40, "blink_step_set.batch_last");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_set, batch_emit) == 48, "blink_step_set.batch_emit");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_set, out_token) == 56, "blink_step_set.out_token");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_set, out_logprobs) == 64, "blink_step_set.out_logprobs");
BLINK_ASSERT(sizeof(struct blink_token_group) == 16, "blink_token_group");
BLINK_ASSERT(__builtin_offsetof(struct blink_token_group, prefix) == 0, "blink_token_group.prefix");
BLINK_ASSERT(__builtin_offsetof(struct blink_token_group, most_plain) == 1, "blink_token_group.most_plain");
BLINK_ASSERT(__builtin_offsetof(struct blink_token_group, first_class) == 2, "blink_token_group.first_class");
BLINK_ASSERT(__builtin_offsetof(struct blink_token_group, reserved) == 3, "blink_token_group.reserved");
BLINK_ASSERT(__builtin_offsetof(struct blink_token_group, classes) == 4, "blink_token_group.classes");
BLINK_ASSERT(__builtin_offsetof(struct blink_token_group, at) == 8, "blink_token_group.at");
BLINK_ASSERT(__builtin_offsetof(struct blink_token_group, bytes) == 12, "blink_token_group.bytes");
BLINK_ASSERT(sizeof(struct blink_vocabulary) == 80, "blink_vocabulary");
BLINK_ASSERT(__builtin_offsetof(struct blink_vocabulary, first) == 0, "blink_vocabulary.first");
BLINK_ASSERT(__builtin_offsetof(struct blink_vocabulary, bytes) == 8, "blink_vocabulary.bytes");
BLINK_ASSERT(__builtin_offsetof(struct blink_vocabulary, plain) == 16, "blink_vocabulary.plain");
BLINK_ASSERT(__builtin_offsetof(struct blink_vocabulary, class_of_byte) == 24, "blink_vocabulary.class_of_byte");
BLINK_ASSERT(__builtin_offsetof(struct blink_vocabulary, class_sets) == 32, "blink_vocabulary.class_sets");
BLINK_ASSERT(__builtin_offsetof(struct blink_vocabulary, maps) == 40, "blink_vocabulary.maps");
BLINK_ASSERT(__builtin_offsetof(struct blink_vocabulary, groups) == 48, "blink_vocabulary.groups");
BLINK_ASSERT(__builtin_offsetof(struct blink_vocabulary, part_groups) == 56, "blink_vocabulary.part_groups");
BLINK_ASSERT(__builtin_offsetof(struct blink_vocabulary, group_tokens) == 64, "blink_vocabulary.group_tokens");
BLINK_ASSERT(__builtin_offsetof(struct blink_vocabulary, group_words) == 72, "blink_vocabulary.group_words");
BLINK_ASSERT(sizeof(struct blink_tables) == 224, "blink_tables");
BLINK_ASSERT(__builtin_offsetof(struct blink_tables, history) == 0, "blink_tables.history");
BLINK_ASSERT(__builtin_offsetof(struct blink_tables, block_table) == 8, "blink_tables.block_table");
BLINK_ASSERT(__builtin_offsetof(struct blink_tables, params) == 16, "blink_tables.params");
BLINK_ASSERT(__builtin_offsetof(struct blink_tables, controls) == 24, "blink_tables.controls");
BLINK_ASSERT(__builtin_offsetof(struct blink_tables, completed) == 32, "blink_tables.completed");
BLINK_ASSERT(__builtin_offsetof(struct blink_tables, n_sequences) == 40, "blink_tables.n_sequences");
BLINK_ASSERT(__builtin_offsetof(struct blink_tables, max_context) == 44, "blink_tables.max_context");
BLINK_ASSERT(__builtin_offsetof(struct blink_tables, pages_per_sequence) == 48, "blink_tables.pages_per_sequence");
BLINK_ASSERT(__builtin_offsetof(struct blink_tables, page_size) == 52, "blink_tables.page_size");
BLINK_ASSERT(__builtin_offsetof(struct blink_tables, vocab_size) == 56, "blink_tables.vocab_size");
BLINK_ASSERT(__builtin_offsetof(struct blink_tables, control_words) == 60, "blink_tables.control_words");
BLINK_ASSERT(__builtin_offsetof(struct blink_tables, n_eos) == 64, "blink_tables.n_eos");
BLINK_ASSERT(__builtin_offsetof(struct blink_tables, eos) == 68, "blink_tables.eos");
BLINK_ASSERT(__builtin_offsetof(struct blink_tables, grammars) == 104, "blink_tables.grammars");
BLINK_ASSERT(__builtin_offsetof(struct blink_tables, grammar_at) == 112, "blink_tables.grammar_at");
BLINK_ASSERT(__builtin_offsetof(struct blink_tables, grammar_states) == 120, "blink_tables.grammar_states");
BLINK_ASSERT(__builtin_offsetof(struct blink_tables, vocabulary) == 128, "blink_tables.vocabulary");
BLINK_ASSERT(__builtin_offsetof(struct blink_tables, n_processors) == 208, "blink_tables.n_processors");
BLINK_ASSERT(__builtin_offsetof(struct blink_tables, recent_processors) == 212, "blink_tables.recent_processors");
BLINK_ASSERT(__builtin_offsetof(struct blink_tables, processors) == 216, "blink_tables.processors");
#undef BLINK_ASSERT

/* X(struct, member) for every member, in order. */
#define BLINK_STEP_MEMBERS(X) \
  X(blink_shape, kind) \
  X(blink_shape, tokens) \
  X(blink_shape, batch_slots) \
  X(blink_shape, verifies) \
  X(blink_step_head, id) \
  X(blink_step_head, kind) \
  X(blink_step_head, shape) \
  X(blink_step_head, n_tokens) \
  X(blink_step_head, batch_size) \
  X(blink_step_head, n_decode) \
  X(blink_step_head, has_drafts) \
  X(blink_step_head, work) \
  X(blink_step_head, pad0) \
  X(blink_step_head, start_ns) \
  X(blink_step_head, sample_ns) \
  X(blink_step_head, done_ns) \
  X(blink_step_head, fault) \
  X(blink_step_head, slots_done) \
  X(blink_step_head, processing) \
  X(blink_step_head, pad1) \
  X(blink_step_set, head) \
  X(blink_step_set, token_sequence) \
  X(blink_step_set, token_position) \
  X(blink_step_set, batch_sequence) \
  X(blink_step_set, batch_first) \
  X(blink_step_set, batch_last) \
  X(blink_step_set, batch_emit) \
  X(blink_step_set, out_token) \
  X(blink_step_set, out_logprobs) \
  X(blink_token_group, prefix) \
  X(blink_token_group, most_plain) \
  X(blink_token_group, first_class) \
  X(blink_token_group, reserved) \
  X(blink_token_group, classes) \
  X(blink_token_group, at) \
  X(blink_token_group, bytes) \
  X(blink_vocabulary, first) \
  X(blink_vocabulary, bytes) \
  X(blink_vocabulary, plain) \
  X(blink_vocabulary, class_of_byte) \
  X(blink_vocabulary, class_sets) \
  X(blink_vocabulary, maps) \
  X(blink_vocabulary, groups) \
  X(blink_vocabulary, part_groups) \
  X(blink_vocabulary, group_tokens) \
  X(blink_vocabulary, group_words) \
  X(blink_tables, history) \
  X(blink_tables, block_table) \
  X(blink_tables, params) \
  X(blink_tables, controls) \
  X(blink_tables, completed) \
  X(blink_tables, n_sequences) \
  X(blink_tables, max_context) \
  X(blink_tables, pages_per_sequence) \
  X(blink_tables, page_size) \
  X(blink_tables, vocab_size) \
  X(blink_tables, control_words) \
  X(blink_tables, n_eos) \
  X(blink_tables, eos) \
  X(blink_tables, grammars) \
  X(blink_tables, grammar_at) \
  X(blink_tables, grammar_states) \
  X(blink_tables, vocabulary) \
  X(blink_tables, n_processors) \
  X(blink_tables, recent_processors) \
  X(blink_tables, processors)
// clang-format on
