/* Generated from ring.h by scripts/generate_abi.py. Do not edit. */
// clang-format off
#define BLINK_RING_LAYOUT_HASH 0xb38d715c18c947d5ull

#ifdef __cplusplus
#define BLINK_ASSERT static_assert
#else
#define BLINK_ASSERT _Static_assert
#endif
BLINK_ASSERT(sizeof(struct blink_stats) == 264, "blink_stats");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, steps) == 0, "blink_stats.steps");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, decode_steps) == 8, "blink_stats.decode_steps");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, prefill_steps) == 16, "blink_stats.prefill_steps");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, launches) == 24, "blink_stats.launches");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, refused_launches) == 32, "blink_stats.refused_launches");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, relaunches) == 40, "blink_stats.relaunches");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, idle_polls) == 48, "blink_stats.idle_polls");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, tokens) == 56, "blink_stats.tokens");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, prompt_tokens) == 64, "blink_stats.prompt_tokens");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, admitted) == 72, "blink_stats.admitted");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, completed) == 80, "blink_stats.completed");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, cancelled) == 88, "blink_stats.cancelled");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, failed) == 96, "blink_stats.failed");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, preempted) == 104, "blink_stats.preempted");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, zombie_rows) == 112, "blink_stats.zombie_rows");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, torn_payloads) == 120, "blink_stats.torn_payloads");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, leases_reclaimed) == 128, "blink_stats.leases_reclaimed");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, prefix_queries) == 136, "blink_stats.prefix_queries");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, prefix_hits) == 144, "blink_stats.prefix_hits");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, prefix_lookups) == 152, "blink_stats.prefix_lookups");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, prefix_lookup_ns) == 160, "blink_stats.prefix_lookup_ns");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, prefix_insertions) == 168, "blink_stats.prefix_insertions");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, prefix_insertion_ns) == 176, "blink_stats.prefix_insertion_ns");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, prefix_evictions) == 184, "blink_stats.prefix_evictions");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, prefix_eviction_ns) == 192, "blink_stats.prefix_eviction_ns");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, drafts) == 200, "blink_stats.drafts");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, draft_tokens) == 208, "blink_stats.draft_tokens");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, accepted_tokens) == 216, "blink_stats.accepted_tokens");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, running) == 224, "blink_stats.running");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, waiting) == 232, "blink_stats.waiting");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, free_pages) == 240, "blink_stats.free_pages");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, cached_pages) == 248, "blink_stats.cached_pages");
BLINK_ASSERT(__builtin_offsetof(struct blink_stats, longest_turn_ns) == 256, "blink_stats.longest_turn_ns");
BLINK_ASSERT(sizeof(struct blink_shown_step) == 32, "blink_shown_step");
BLINK_ASSERT(__builtin_offsetof(struct blink_shown_step, id) == 0, "blink_shown_step.id");
BLINK_ASSERT(__builtin_offsetof(struct blink_shown_step, start_ns) == 8, "blink_shown_step.start_ns");
BLINK_ASSERT(__builtin_offsetof(struct blink_shown_step, done_ns) == 16, "blink_shown_step.done_ns");
BLINK_ASSERT(__builtin_offsetof(struct blink_shown_step, tokens) == 24, "blink_shown_step.tokens");
BLINK_ASSERT(sizeof(struct blink_header) == 3456, "blink_header");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, magic) == 0, "blink_header.magic");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, layout_hash) == 8, "blink_header.layout_hash");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, abi_version) == 16, "blink_header.abi_version");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, backend_pid) == 20, "blink_header.backend_pid");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, region_bytes) == 24, "blink_header.region_bytes");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, n_slots) == 32, "blink_header.n_slots");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, n_leases) == 36, "blink_header.n_leases");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, prompt_heap) == 40, "blink_header.prompt_heap");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, output_heap) == 44, "blink_header.output_heap");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, leases_offset) == 48, "blink_header.leases_offset");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, lease_acks_offset) == 56, "blink_header.lease_acks_offset");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, requests_offset) == 64, "blink_header.requests_offset");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, descriptors_offset) == 72, "blink_header.descriptors_offset");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, progress_offset) == 80, "blink_header.progress_offset");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, prompts_offset) == 88, "blink_header.prompts_offset");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, outputs_offset) == 96, "blink_header.outputs_offset");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, vocab_size) == 104, "blink_header.vocab_size");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, max_context) == 108, "blink_header.max_context");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, max_batch) == 112, "blink_header.max_batch");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, total_pages) == 116, "blink_header.total_pages");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, page_size) == 120, "blink_header.page_size");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, max_grammar_words) == 124, "blink_header.max_grammar_words");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, fingerprint) == 128, "blink_header.fingerprint");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, model_name) == 160, "blink_header.model_name");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, device_name) == 224, "blink_header.device_name");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, kv_events_offset) == 288, "blink_header.kv_events_offset");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, kv_event_capacity) == 296, "blink_header.kv_event_capacity");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, kv_event_bytes) == 300, "blink_header.kv_event_bytes");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, max_prefill_tokens) == 304, "blink_header.max_prefill_tokens");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, priorities) == 308, "blink_header.priorities");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, n_eos) == 312, "blink_header.n_eos");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, eos) == 316, "blink_header.eos");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, processor_names) == 348, "blink_header.processor_names");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, pad0) == 604, "blink_header.pad0");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, control) == 768, "blink_header.control");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, pad1) == 776, "blink_header.pad1");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, phase) == 896, "blink_header.phase");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, heartbeat) == 904, "blink_header.heartbeat");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, fault) == 912, "blink_header.fault");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, fault_detail) == 920, "blink_header.fault_detail");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, pad2) == 928, "blink_header.pad2");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, stats) == 1024, "blink_header.stats");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, pad3) == 1288, "blink_header.pad3");
BLINK_ASSERT(__builtin_offsetof(struct blink_header, steps) == 1408, "blink_header.steps");
BLINK_ASSERT(sizeof(struct blink_lease) == 128, "blink_lease");
BLINK_ASSERT(__builtin_offsetof(struct blink_lease, word) == 0, "blink_lease.word");
BLINK_ASSERT(__builtin_offsetof(struct blink_lease, timeout_ns) == 8, "blink_lease.timeout_ns");
BLINK_ASSERT(__builtin_offsetof(struct blink_lease, pad) == 16, "blink_lease.pad");
BLINK_ASSERT(sizeof(struct blink_lease_ack) == 128, "blink_lease_ack");
BLINK_ASSERT(__builtin_offsetof(struct blink_lease_ack, word) == 0, "blink_lease_ack.word");
BLINK_ASSERT(__builtin_offsetof(struct blink_lease_ack, pad) == 8, "blink_lease_ack.pad");
BLINK_ASSERT(sizeof(struct blink_descriptor) == 200, "blink_descriptor");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, sequence) == 0, "blink_descriptor.sequence");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, epoch) == 4, "blink_descriptor.epoch");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, prompt_tokens) == 8, "blink_descriptor.prompt_tokens");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, max_tokens) == 12, "blink_descriptor.max_tokens");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, seed) == 16, "blink_descriptor.seed");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, salt) == 24, "blink_descriptor.salt");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, temperature) == 40, "blink_descriptor.temperature");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, top_p) == 44, "blink_descriptor.top_p");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, min_p) == 48, "blink_descriptor.min_p");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, top_k) == 52, "blink_descriptor.top_k");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, repetition_penalty) == 56, "blink_descriptor.repetition_penalty");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, presence_penalty) == 60, "blink_descriptor.presence_penalty");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, frequency_penalty) == 64, "blink_descriptor.frequency_penalty");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, priority) == 68, "blink_descriptor.priority");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, n_processors) == 69, "blink_descriptor.n_processors");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, flags) == 70, "blink_descriptor.flags");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, ticket) == 72, "blink_descriptor.ticket");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, client) == 76, "blink_descriptor.client");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, min_tokens) == 80, "blink_descriptor.min_tokens");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, n_stop_ids) == 84, "blink_descriptor.n_stop_ids");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, stop_ids) == 88, "blink_descriptor.stop_ids");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, prompt_offset) == 148, "blink_descriptor.prompt_offset");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, prompt_room) == 152, "blink_descriptor.prompt_room");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, output_offset) == 156, "blink_descriptor.output_offset");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, output_room) == 160, "blink_descriptor.output_room");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, logprob_words) == 164, "blink_descriptor.logprob_words");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, prompt_logprob_words) == 168, "blink_descriptor.prompt_logprob_words");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, n_biases) == 172, "blink_descriptor.n_biases");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, ban_words) == 176, "blink_descriptor.ban_words");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, grammar_offset) == 180, "blink_descriptor.grammar_offset");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, grammar_words) == 184, "blink_descriptor.grammar_words");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, grammar_name) == 188, "blink_descriptor.grammar_name");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, grammar_crc32c) == 192, "blink_descriptor.grammar_crc32c");
BLINK_ASSERT(__builtin_offsetof(struct blink_descriptor, crc32c) == 196, "blink_descriptor.crc32c");
BLINK_ASSERT(sizeof(struct blink_progress) == 64, "blink_progress");
BLINK_ASSERT(__builtin_offsetof(struct blink_progress, status) == 0, "blink_progress.status");
BLINK_ASSERT(__builtin_offsetof(struct blink_progress, prefix) == 8, "blink_progress.prefix");
BLINK_ASSERT(__builtin_offsetof(struct blink_progress, records) == 16, "blink_progress.records");
BLINK_ASSERT(sizeof(struct blink_kv_events) == 256, "blink_kv_events");
BLINK_ASSERT(__builtin_offsetof(struct blink_kv_events, reader) == 0, "blink_kv_events.reader");
BLINK_ASSERT(__builtin_offsetof(struct blink_kv_events, pad0) == 8, "blink_kv_events.pad0");
BLINK_ASSERT(__builtin_offsetof(struct blink_kv_events, written) == 128, "blink_kv_events.written");
BLINK_ASSERT(__builtin_offsetof(struct blink_kv_events, pad1) == 136, "blink_kv_events.pad1");
BLINK_ASSERT(sizeof(struct blink_kv_event) == 48, "blink_kv_event");
BLINK_ASSERT(__builtin_offsetof(struct blink_kv_event, word) == 0, "blink_kv_event.word");
BLINK_ASSERT(__builtin_offsetof(struct blink_kv_event, kind) == 8, "blink_kv_event.kind");
BLINK_ASSERT(__builtin_offsetof(struct blink_kv_event, block) == 16, "blink_kv_event.block");
BLINK_ASSERT(__builtin_offsetof(struct blink_kv_event, parent) == 24, "blink_kv_event.parent");
BLINK_ASSERT(__builtin_offsetof(struct blink_kv_event, salt) == 32, "blink_kv_event.salt");
#undef BLINK_ASSERT

/* X(struct, member) for every member, in order. */
#define BLINK_RING_MEMBERS(X) \
  X(blink_stats, steps) \
  X(blink_stats, decode_steps) \
  X(blink_stats, prefill_steps) \
  X(blink_stats, launches) \
  X(blink_stats, refused_launches) \
  X(blink_stats, relaunches) \
  X(blink_stats, idle_polls) \
  X(blink_stats, tokens) \
  X(blink_stats, prompt_tokens) \
  X(blink_stats, admitted) \
  X(blink_stats, completed) \
  X(blink_stats, cancelled) \
  X(blink_stats, failed) \
  X(blink_stats, preempted) \
  X(blink_stats, zombie_rows) \
  X(blink_stats, torn_payloads) \
  X(blink_stats, leases_reclaimed) \
  X(blink_stats, prefix_queries) \
  X(blink_stats, prefix_hits) \
  X(blink_stats, prefix_lookups) \
  X(blink_stats, prefix_lookup_ns) \
  X(blink_stats, prefix_insertions) \
  X(blink_stats, prefix_insertion_ns) \
  X(blink_stats, prefix_evictions) \
  X(blink_stats, prefix_eviction_ns) \
  X(blink_stats, drafts) \
  X(blink_stats, draft_tokens) \
  X(blink_stats, accepted_tokens) \
  X(blink_stats, running) \
  X(blink_stats, waiting) \
  X(blink_stats, free_pages) \
  X(blink_stats, cached_pages) \
  X(blink_stats, longest_turn_ns) \
  X(blink_shown_step, id) \
  X(blink_shown_step, start_ns) \
  X(blink_shown_step, done_ns) \
  X(blink_shown_step, tokens) \
  X(blink_header, magic) \
  X(blink_header, layout_hash) \
  X(blink_header, abi_version) \
  X(blink_header, backend_pid) \
  X(blink_header, region_bytes) \
  X(blink_header, n_slots) \
  X(blink_header, n_leases) \
  X(blink_header, prompt_heap) \
  X(blink_header, output_heap) \
  X(blink_header, leases_offset) \
  X(blink_header, lease_acks_offset) \
  X(blink_header, requests_offset) \
  X(blink_header, descriptors_offset) \
  X(blink_header, progress_offset) \
  X(blink_header, prompts_offset) \
  X(blink_header, outputs_offset) \
  X(blink_header, vocab_size) \
  X(blink_header, max_context) \
  X(blink_header, max_batch) \
  X(blink_header, total_pages) \
  X(blink_header, page_size) \
  X(blink_header, max_grammar_words) \
  X(blink_header, fingerprint) \
  X(blink_header, model_name) \
  X(blink_header, device_name) \
  X(blink_header, kv_events_offset) \
  X(blink_header, kv_event_capacity) \
  X(blink_header, kv_event_bytes) \
  X(blink_header, max_prefill_tokens) \
  X(blink_header, priorities) \
  X(blink_header, n_eos) \
  X(blink_header, eos) \
  X(blink_header, processor_names) \
  X(blink_header, pad0) \
  X(blink_header, control) \
  X(blink_header, pad1) \
  X(blink_header, phase) \
  X(blink_header, heartbeat) \
  X(blink_header, fault) \
  X(blink_header, fault_detail) \
  X(blink_header, pad2) \
  X(blink_header, stats) \
  X(blink_header, pad3) \
  X(blink_header, steps) \
  X(blink_lease, word) \
  X(blink_lease, timeout_ns) \
  X(blink_lease, pad) \
  X(blink_lease_ack, word) \
  X(blink_lease_ack, pad) \
  X(blink_descriptor, sequence) \
  X(blink_descriptor, epoch) \
  X(blink_descriptor, prompt_tokens) \
  X(blink_descriptor, max_tokens) \
  X(blink_descriptor, seed) \
  X(blink_descriptor, salt) \
  X(blink_descriptor, temperature) \
  X(blink_descriptor, top_p) \
  X(blink_descriptor, min_p) \
  X(blink_descriptor, top_k) \
  X(blink_descriptor, repetition_penalty) \
  X(blink_descriptor, presence_penalty) \
  X(blink_descriptor, frequency_penalty) \
  X(blink_descriptor, priority) \
  X(blink_descriptor, n_processors) \
  X(blink_descriptor, flags) \
  X(blink_descriptor, ticket) \
  X(blink_descriptor, client) \
  X(blink_descriptor, min_tokens) \
  X(blink_descriptor, n_stop_ids) \
  X(blink_descriptor, stop_ids) \
  X(blink_descriptor, prompt_offset) \
  X(blink_descriptor, prompt_room) \
  X(blink_descriptor, output_offset) \
  X(blink_descriptor, output_room) \
  X(blink_descriptor, logprob_words) \
  X(blink_descriptor, prompt_logprob_words) \
  X(blink_descriptor, n_biases) \
  X(blink_descriptor, ban_words) \
  X(blink_descriptor, grammar_offset) \
  X(blink_descriptor, grammar_words) \
  X(blink_descriptor, grammar_name) \
  X(blink_descriptor, grammar_crc32c) \
  X(blink_descriptor, crc32c) \
  X(blink_progress, status) \
  X(blink_progress, prefix) \
  X(blink_progress, records) \
  X(blink_kv_events, reader) \
  X(blink_kv_events, pad0) \
  X(blink_kv_events, written) \
  X(blink_kv_events, pad1) \
  X(blink_kv_event, word) \
  X(blink_kv_event, kind) \
  X(blink_kv_event, block) \
  X(blink_kv_event, parent) \
  X(blink_kv_event, salt)
// clang-format on
