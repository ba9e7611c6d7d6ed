/* Generated from state.h by scripts/generate_abi.py. Do not edit. */
// clang-format off
#define BLINK_SCHEDULER_LAYOUT_HASH 0xaf8c6d06bbd4f3f6ull

#ifdef __cplusplus
#define BLINK_ASSERT static_assert
#else
#define BLINK_ASSERT _Static_assert
#endif
BLINK_ASSERT(sizeof(struct blink_request) == 104, "blink_request");
BLINK_ASSERT(__builtin_offsetof(struct blink_request, arrival) == 0, "blink_request.arrival");
BLINK_ASSERT(__builtin_offsetof(struct blink_request, torn_since_ns) == 8, "blink_request.torn_since_ns");
BLINK_ASSERT(__builtin_offsetof(struct blink_request, torn_last_ns) == 16, "blink_request.torn_last_ns");
BLINK_ASSERT(__builtin_offsetof(struct blink_request, output_at) == 24, "blink_request.output_at");
BLINK_ASSERT(__builtin_offsetof(struct blink_request, submission) == 32, "blink_request.submission");
BLINK_ASSERT(__builtin_offsetof(struct blink_request, epoch) == 36, "blink_request.epoch");
BLINK_ASSERT(__builtin_offsetof(struct blink_request, state) == 40, "blink_request.state");
BLINK_ASSERT(__builtin_offsetof(struct blink_request, sequence_index) == 44, "blink_request.sequence_index");
BLINK_ASSERT(__builtin_offsetof(struct blink_request, prompt_tokens) == 48, "blink_request.prompt_tokens");
BLINK_ASSERT(__builtin_offsetof(struct blink_request, max_outputs) == 52, "blink_request.max_outputs");
BLINK_ASSERT(__builtin_offsetof(struct blink_request, generated) == 56, "blink_request.generated");
BLINK_ASSERT(__builtin_offsetof(struct blink_request, crc32c) == 60, "blink_request.crc32c");
BLINK_ASSERT(__builtin_offsetof(struct blink_request, output_room) == 64, "blink_request.output_room");
BLINK_ASSERT(__builtin_offsetof(struct blink_request, logprob_words) == 68, "blink_request.logprob_words");
BLINK_ASSERT(__builtin_offsetof(struct blink_request, prompt_logprob_words) == 72, "blink_request.prompt_logprob_words");
BLINK_ASSERT(__builtin_offsetof(struct blink_request, cached) == 76, "blink_request.cached");
BLINK_ASSERT(__builtin_offsetof(struct blink_request, restarted) == 80, "blink_request.restarted");
BLINK_ASSERT(__builtin_offsetof(struct blink_request, client) == 84, "blink_request.client");
BLINK_ASSERT(__builtin_offsetof(struct blink_request, placed) == 88, "blink_request.placed");
BLINK_ASSERT(__builtin_offsetof(struct blink_request, priority) == 92, "blink_request.priority");
BLINK_ASSERT(__builtin_offsetof(struct blink_request, reason) == 96, "blink_request.reason");
BLINK_ASSERT(__builtin_offsetof(struct blink_request, reserved) == 100, "blink_request.reserved");
BLINK_ASSERT(sizeof(struct blink_sequence) == 112, "blink_sequence");
BLINK_ASSERT(__builtin_offsetof(struct blink_sequence, last_step) == 0, "blink_sequence.last_step");
BLINK_ASSERT(__builtin_offsetof(struct blink_sequence, use) == 8, "blink_sequence.use");
BLINK_ASSERT(__builtin_offsetof(struct blink_sequence, slot) == 12, "blink_sequence.slot");
BLINK_ASSERT(__builtin_offsetof(struct blink_sequence, fed) == 16, "blink_sequence.fed");
BLINK_ASSERT(__builtin_offsetof(struct blink_sequence, prefill_end) == 20, "blink_sequence.prefill_end");
BLINK_ASSERT(__builtin_offsetof(struct blink_sequence, n_pages) == 24, "blink_sequence.n_pages");
BLINK_ASSERT(__builtin_offsetof(struct blink_sequence, faulty) == 28, "blink_sequence.faulty");
BLINK_ASSERT(__builtin_offsetof(struct blink_sequence, filled) == 32, "blink_sequence.filled");
BLINK_ASSERT(__builtin_offsetof(struct blink_sequence, unshown) == 36, "blink_sequence.unshown");
BLINK_ASSERT(__builtin_offsetof(struct blink_sequence, prefix_sum) == 40, "blink_sequence.prefix_sum");
BLINK_ASSERT(__builtin_offsetof(struct blink_sequence, link) == 48, "blink_sequence.link");
BLINK_ASSERT(__builtin_offsetof(struct blink_sequence, n_linked) == 56, "blink_sequence.n_linked");
BLINK_ASSERT(__builtin_offsetof(struct blink_sequence, awaits) == 60, "blink_sequence.awaits");
BLINK_ASSERT(__builtin_offsetof(struct blink_sequence, cached) == 64, "blink_sequence.cached");
BLINK_ASSERT(__builtin_offsetof(struct blink_sequence, considered) == 68, "blink_sequence.considered");
BLINK_ASSERT(__builtin_offsetof(struct blink_sequence, scored) == 72, "blink_sequence.scored");
BLINK_ASSERT(__builtin_offsetof(struct blink_sequence, grammar) == 76, "blink_sequence.grammar");
BLINK_ASSERT(__builtin_offsetof(struct blink_sequence, client) == 80, "blink_sequence.client");
BLINK_ASSERT(__builtin_offsetof(struct blink_sequence, behind) == 84, "blink_sequence.behind");
BLINK_ASSERT(__builtin_offsetof(struct blink_sequence, indexed) == 88, "blink_sequence.indexed");
BLINK_ASSERT(__builtin_offsetof(struct blink_sequence, n_drafts) == 92, "blink_sequence.n_drafts");
BLINK_ASSERT(__builtin_offsetof(struct blink_sequence, acceptance) == 96, "blink_sequence.acceptance");
BLINK_ASSERT(__builtin_offsetof(struct blink_sequence, unchecked) == 100, "blink_sequence.unchecked");
BLINK_ASSERT(__builtin_offsetof(struct blink_sequence, source) == 104, "blink_sequence.source");
BLINK_ASSERT(__builtin_offsetof(struct blink_sequence, misses) == 108, "blink_sequence.misses");
BLINK_ASSERT(sizeof(struct blink_client_count) == 16, "blink_client_count");
BLINK_ASSERT(__builtin_offsetof(struct blink_client_count, turn) == 0, "blink_client_count.turn");
BLINK_ASSERT(__builtin_offsetof(struct blink_client_count, places) == 8, "blink_client_count.places");
BLINK_ASSERT(__builtin_offsetof(struct blink_client_count, reserved) == 12, "blink_client_count.reserved");
BLINK_ASSERT(sizeof(struct blink_page) == 72, "blink_page");
BLINK_ASSERT(__builtin_offsetof(struct blink_page, sum) == 0, "blink_page.sum");
BLINK_ASSERT(__builtin_offsetof(struct blink_page, salt) == 8, "blink_page.salt");
BLINK_ASSERT(__builtin_offsetof(struct blink_page, ready) == 24, "blink_page.ready");
BLINK_ASSERT(__builtin_offsetof(struct blink_page, queued) == 32, "blink_page.queued");
BLINK_ASSERT(__builtin_offsetof(struct blink_page, content) == 40, "blink_page.content");
BLINK_ASSERT(__builtin_offsetof(struct blink_page, parent) == 48, "blink_page.parent");
BLINK_ASSERT(__builtin_offsetof(struct blink_page, users) == 56, "blink_page.users");
BLINK_ASSERT(__builtin_offsetof(struct blink_page, entry) == 60, "blink_page.entry");
BLINK_ASSERT(__builtin_offsetof(struct blink_page, depth) == 64, "blink_page.depth");
BLINK_ASSERT(__builtin_offsetof(struct blink_page, copy) == 68, "blink_page.copy");
BLINK_ASSERT(sizeof(struct blink_staging) == 24, "blink_staging");
BLINK_ASSERT(__builtin_offsetof(struct blink_staging, arrival) == 0, "blink_staging.arrival");
BLINK_ASSERT(__builtin_offsetof(struct blink_staging, sequence) == 8, "blink_staging.sequence");
BLINK_ASSERT(__builtin_offsetof(struct blink_staging, done) == 12, "blink_staging.done");
BLINK_ASSERT(__builtin_offsetof(struct blink_staging, crc) == 16, "blink_staging.crc");
BLINK_ASSERT(__builtin_offsetof(struct blink_staging, wrong) == 20, "blink_staging.wrong");
BLINK_ASSERT(sizeof(struct blink_grammar_place) == 48, "blink_grammar_place");
BLINK_ASSERT(__builtin_offsetof(struct blink_grammar_place, used) == 0, "blink_grammar_place.used");
BLINK_ASSERT(__builtin_offsetof(struct blink_grammar_place, lease) == 8, "blink_grammar_place.lease");
BLINK_ASSERT(__builtin_offsetof(struct blink_grammar_place, epoch) == 12, "blink_grammar_place.epoch");
BLINK_ASSERT(__builtin_offsetof(struct blink_grammar_place, name) == 16, "blink_grammar_place.name");
BLINK_ASSERT(__builtin_offsetof(struct blink_grammar_place, crc32c) == 20, "blink_grammar_place.crc32c");
BLINK_ASSERT(__builtin_offsetof(struct blink_grammar_place, at) == 24, "blink_grammar_place.at");
BLINK_ASSERT(__builtin_offsetof(struct blink_grammar_place, words) == 28, "blink_grammar_place.words");
BLINK_ASSERT(__builtin_offsetof(struct blink_grammar_place, whole) == 32, "blink_grammar_place.whole");
BLINK_ASSERT(__builtin_offsetof(struct blink_grammar_place, users) == 36, "blink_grammar_place.users");
BLINK_ASSERT(__builtin_offsetof(struct blink_grammar_place, staged) == 40, "blink_grammar_place.staged");
BLINK_ASSERT(__builtin_offsetof(struct blink_grammar_place, reserved) == 44, "blink_grammar_place.reserved");
BLINK_ASSERT(sizeof(struct blink_grammar_reading) == 32, "blink_grammar_reading");
BLINK_ASSERT(__builtin_offsetof(struct blink_grammar_reading, arrival) == 0, "blink_grammar_reading.arrival");
BLINK_ASSERT(__builtin_offsetof(struct blink_grammar_reading, sequence) == 8, "blink_grammar_reading.sequence");
BLINK_ASSERT(__builtin_offsetof(struct blink_grammar_reading, place) == 12, "blink_grammar_reading.place");
BLINK_ASSERT(__builtin_offsetof(struct blink_grammar_reading, done) == 16, "blink_grammar_reading.done");
BLINK_ASSERT(__builtin_offsetof(struct blink_grammar_reading, crc) == 20, "blink_grammar_reading.crc");
BLINK_ASSERT(__builtin_offsetof(struct blink_grammar_reading, wrong) == 24, "blink_grammar_reading.wrong");
BLINK_ASSERT(__builtin_offsetof(struct blink_grammar_reading, reserved) == 28, "blink_grammar_reading.reserved");
BLINK_ASSERT(sizeof(struct blink_lease_record) == 32, "blink_lease_record");
BLINK_ASSERT(__builtin_offsetof(struct blink_lease_record, word) == 0, "blink_lease_record.word");
BLINK_ASSERT(__builtin_offsetof(struct blink_lease_record, changed_ns) == 8, "blink_lease_record.changed_ns");
BLINK_ASSERT(__builtin_offsetof(struct blink_lease_record, epoch) == 16, "blink_lease_record.epoch");
BLINK_ASSERT(__builtin_offsetof(struct blink_lease_record, state) == 20, "blink_lease_record.state");
BLINK_ASSERT(__builtin_offsetof(struct blink_lease_record, ticket) == 24, "blink_lease_record.ticket");
BLINK_ASSERT(__builtin_offsetof(struct blink_lease_record, newest) == 28, "blink_lease_record.newest");
BLINK_ASSERT(sizeof(struct blink_shape_time) == 40, "blink_shape_time");
BLINK_ASSERT(__builtin_offsetof(struct blink_shape_time, expected_ns) == 0, "blink_shape_time.expected_ns");
BLINK_ASSERT(__builtin_offsetof(struct blink_shape_time, total_ns) == 8, "blink_shape_time.total_ns");
BLINK_ASSERT(__builtin_offsetof(struct blink_shape_time, steps) == 16, "blink_shape_time.steps");
BLINK_ASSERT(__builtin_offsetof(struct blink_shape_time, usual_ns) == 24, "blink_shape_time.usual_ns");
BLINK_ASSERT(__builtin_offsetof(struct blink_shape_time, last_step) == 32, "blink_shape_time.last_step");
BLINK_ASSERT(sizeof(struct blink_mixed_times) == 20, "blink_mixed_times");
BLINK_ASSERT(__builtin_offsetof(struct blink_mixed_times, n) == 0, "blink_mixed_times.n");
BLINK_ASSERT(__builtin_offsetof(struct blink_mixed_times, w) == 4, "blink_mixed_times.w");
BLINK_ASSERT(__builtin_offsetof(struct blink_mixed_times, ww) == 8, "blink_mixed_times.ww");
BLINK_ASSERT(__builtin_offsetof(struct blink_mixed_times, t) == 12, "blink_mixed_times.t");
BLINK_ASSERT(__builtin_offsetof(struct blink_mixed_times, wt) == 16, "blink_mixed_times.wt");
BLINK_ASSERT(sizeof(struct blink_step_trace) == 72, "blink_step_trace");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_trace, id) == 0, "blink_step_trace.id");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_trace, start_ns) == 8, "blink_step_trace.start_ns");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_trace, sample_ns) == 16, "blink_step_trace.sample_ns");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_trace, done_ns) == 24, "blink_step_trace.done_ns");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_trace, turn_ns) == 32, "blink_step_trace.turn_ns");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_trace, chosen_ns) == 40, "blink_step_trace.chosen_ns");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_trace, launched_ns) == 48, "blink_step_trace.launched_ns");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_trace, seen_ns) == 56, "blink_step_trace.seen_ns");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_trace, kind) == 64, "blink_step_trace.kind");
BLINK_ASSERT(__builtin_offsetof(struct blink_step_trace, batch_size) == 68, "blink_step_trace.batch_size");
BLINK_ASSERT(sizeof(struct blink_kv_event_state) == 48, "blink_kv_event_state");
BLINK_ASSERT(__builtin_offsetof(struct blink_kv_event_state, head) == 0, "blink_kv_event_state.head");
BLINK_ASSERT(__builtin_offsetof(struct blink_kv_event_state, tail) == 8, "blink_kv_event_state.tail");
BLINK_ASSERT(__builtin_offsetof(struct blink_kv_event_state, written) == 16, "blink_kv_event_state.written");
BLINK_ASSERT(__builtin_offsetof(struct blink_kv_event_state, read) == 24, "blink_kv_event_state.read");
BLINK_ASSERT(__builtin_offsetof(struct blink_kv_event_state, attachment) == 32, "blink_kv_event_state.attachment");
BLINK_ASSERT(__builtin_offsetof(struct blink_kv_event_state, following) == 36, "blink_kv_event_state.following");
BLINK_ASSERT(__builtin_offsetof(struct blink_kv_event_state, round) == 40, "blink_kv_event_state.round");
BLINK_ASSERT(__builtin_offsetof(struct blink_kv_event_state, swept) == 44, "blink_kv_event_state.swept");
BLINK_ASSERT(sizeof(struct blink_scheduler_state) == 71248, "blink_scheduler_state");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, launched) == 0, "blink_scheduler_state.launched");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, committed) == 8, "blink_scheduler_state.committed");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, claims) == 16, "blink_scheduler_state.claims");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, last_done_ns) == 24, "blink_scheduler_state.last_done_ns");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, turn_ns) == 32, "blink_scheduler_state.turn_ns");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, running_since_ns) == 40, "blink_scheduler_state.running_since_ns");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, fault) == 48, "blink_scheduler_state.fault");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, fault_detail) == 56, "blink_scheduler_state.fault_detail");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, phase) == 64, "blink_scheduler_state.phase");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, last_kind) == 68, "blink_scheduler_state.last_kind");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, n_free_pages) == 72, "blink_scheduler_state.n_free_pages");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, n_idle_pages) == 76, "blink_scheduler_state.n_idle_pages");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, n_waiting) == 80, "blink_scheduler_state.n_waiting");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, n_active) == 84, "blink_scheduler_state.n_active");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, n_zombies) == 88, "blink_scheduler_state.n_zombies");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, n_staged) == 92, "blink_scheduler_state.n_staged");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, planned) == 96, "blink_scheduler_state.planned");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, reserved) == 100, "blink_scheduler_state.reserved");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, idle_head) == 104, "blink_scheduler_state.idle_head");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, idle_tail) == 112, "blink_scheduler_state.idle_tail");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, contents) == 120, "blink_scheduler_state.contents");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, written) == 128, "blink_scheduler_state.written");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, host_copies) == 136, "blink_scheduler_state.host_copies");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, brought_back) == 144, "blink_scheduler_state.brought_back");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, ended_prompts) == 152, "blink_scheduler_state.ended_prompts");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, ended_outputs) == 160, "blink_scheduler_state.ended_outputs");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, decode_ns) == 168, "blink_scheduler_state.decode_ns");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, mixed_times) == 176, "blink_scheduler_state.mixed_times");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, rests) == 196, "blink_scheduler_state.rests");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, kv_events) == 200, "blink_scheduler_state.kv_events");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, plan_ns) == 248, "blink_scheduler_state.plan_ns");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, staging) == 264, "blink_scheduler_state.staging");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, grammar_reading) == 288, "blink_scheduler_state.grammar_reading");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, grammar_uses) == 320, "blink_scheduler_state.grammar_uses");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, stats) == 328, "blink_scheduler_state.stats");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, leases) == 592, "blink_scheduler_state.leases");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, clients) == 1616, "blink_scheduler_state.clients");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_state, gap_histogram) == 67152, "blink_scheduler_state.gap_histogram");
BLINK_ASSERT(sizeof(struct blink_scheduler_config) == 920, "blink_scheduler_config");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, header) == 0, "blink_scheduler_config.header");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, leases) == 8, "blink_scheduler_config.leases");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, lease_acks) == 16, "blink_scheduler_config.lease_acks");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, request_words) == 24, "blink_scheduler_config.request_words");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, descriptors) == 32, "blink_scheduler_config.descriptors");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, progress) == 40, "blink_scheduler_config.progress");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, prompts) == 48, "blink_scheduler_config.prompts");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, outputs) == 56, "blink_scheduler_config.outputs");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, n_slots) == 64, "blink_scheduler_config.n_slots");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, n_leases) == 68, "blink_scheduler_config.n_leases");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, prompt_heap) == 72, "blink_scheduler_config.prompt_heap");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, output_heap) == 76, "blink_scheduler_config.output_heap");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, tables) == 80, "blink_scheduler_config.tables");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, sets) == 304, "blink_scheduler_config.sets");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, shapes) == 520, "blink_scheduler_config.shapes");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, executables) == 528, "blink_scheduler_config.executables");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, decode_lookup) == 536, "blink_scheduler_config.decode_lookup");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, prefill_lookup) == 544, "blink_scheduler_config.prefill_lookup");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, mixed_lookup) == 552, "blink_scheduler_config.mixed_lookup");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, verify_lookup) == 560, "blink_scheduler_config.verify_lookup");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, seen) == 568, "blink_scheduler_config.seen");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, requests) == 576, "blink_scheduler_config.requests");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, sequences) == 584, "blink_scheduler_config.sequences");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, free_pages) == 592, "blink_scheduler_config.free_pages");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, pages) == 600, "blink_scheduler_config.pages");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, page_tokens) == 608, "blink_scheduler_config.page_tokens");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, page_index) == 616, "blink_scheduler_config.page_index");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, idle_pages) == 624, "blink_scheduler_config.idle_pages");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, kv_events) == 632, "blink_scheduler_config.kv_events");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, kv_event_queue) == 640, "blink_scheduler_config.kv_event_queue");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, kv_event_told) == 648, "blink_scheduler_config.kv_event_told");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, grammar_places) == 656, "blink_scheduler_config.grammar_places");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, shape_times) == 664, "blink_scheduler_config.shape_times");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, trace) == 672, "blink_scheduler_config.trace");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, state) == 680, "blink_scheduler_config.state");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, n_shapes) == 688, "blink_scheduler_config.n_shapes");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, total_pages) == 692, "blink_scheduler_config.total_pages");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, max_prefill_tokens) == 696, "blink_scheduler_config.max_prefill_tokens");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, max_prefill_slots) == 700, "blink_scheduler_config.max_prefill_slots");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, max_mixed_tokens) == 704, "blink_scheduler_config.max_mixed_tokens");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, mixed_share) == 708, "blink_scheduler_config.mixed_share");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, max_batch) == 712, "blink_scheduler_config.max_batch");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, n_index) == 716, "blink_scheduler_config.n_index");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, n_idle) == 720, "blink_scheduler_config.n_idle");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, prefix_cache) == 724, "blink_scheduler_config.prefix_cache");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, attention_keys) == 728, "blink_scheduler_config.attention_keys");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, stage_words) == 732, "blink_scheduler_config.stage_words");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, kv_event_capacity) == 736, "blink_scheduler_config.kv_event_capacity");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, kv_event_bytes) == 740, "blink_scheduler_config.kv_event_bytes");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, n_kv_event_queue) == 744, "blink_scheduler_config.n_kv_event_queue");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, host_pages) == 748, "blink_scheduler_config.host_pages");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, copy_shape) == 752, "blink_scheduler_config.copy_shape");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, n_grammar_places) == 756, "blink_scheduler_config.n_grammar_places");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, max_grammar_words) == 760, "blink_scheduler_config.max_grammar_words");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, priorities) == 764, "blink_scheduler_config.priorities");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, max_drafts) == 768, "blink_scheduler_config.max_drafts");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, max_verify_rows) == 772, "blink_scheduler_config.max_verify_rows");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, longest_match) == 776, "blink_scheduler_config.longest_match");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, shortest_match) == 780, "blink_scheduler_config.shortest_match");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, drafts_per_matched_token) == 784, "blink_scheduler_config.drafts_per_matched_token");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, least_share) == 788, "blink_scheduler_config.least_share");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, n_draft_places) == 792, "blink_scheduler_config.n_draft_places");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, simulates_acceptance) == 796, "blink_scheduler_config.simulates_acceptance");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, copied_share) == 800, "blink_scheduler_config.copied_share");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, acceptance_chances) == 804, "blink_scheduler_config.acceptance_chances");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, draft_places) == 864, "blink_scheduler_config.draft_places");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, hash_key) == 872, "blink_scheduler_config.hash_key");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, arm_margin_ns) == 880, "blink_scheduler_config.arm_margin_ns");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, target_itl_ns) == 888, "blink_scheduler_config.target_itl_ns");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, min_itl_ns) == 896, "blink_scheduler_config.min_itl_ns");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, scan_interval_ns) == 904, "blink_scheduler_config.scan_interval_ns");
BLINK_ASSERT(__builtin_offsetof(struct blink_scheduler_config, step_timeout_ns) == 912, "blink_scheduler_config.step_timeout_ns");
#undef BLINK_ASSERT

/* X(struct, member) for every member, in order. */
#define BLINK_SCHEDULER_MEMBERS(X) \
  X(blink_request, arrival) \
  X(blink_request, torn_since_ns) \
  X(blink_request, torn_last_ns) \
  X(blink_request, output_at) \
  X(blink_request, submission) \
  X(blink_request, epoch) \
  X(blink_request, state) \
  X(blink_request, sequence_index) \
  X(blink_request, prompt_tokens) \
  X(blink_request, max_outputs) \
  X(blink_request, generated) \
  X(blink_request, crc32c) \
  X(blink_request, output_room) \
  X(blink_request, logprob_words) \
  X(blink_request, prompt_logprob_words) \
  X(blink_request, cached) \
  X(blink_request, restarted) \
  X(blink_request, client) \
  X(blink_request, placed) \
  X(blink_request, priority) \
  X(blink_request, reason) \
  X(blink_request, reserved) \
  X(blink_sequence, last_step) \
  X(blink_sequence, use) \
  X(blink_sequence, slot) \
  X(blink_sequence, fed) \
  X(blink_sequence, prefill_end) \
  X(blink_sequence, n_pages) \
  X(blink_sequence, faulty) \
  X(blink_sequence, filled) \
  X(blink_sequence, unshown) \
  X(blink_sequence, prefix_sum) \
  X(blink_sequence, link) \
  X(blink_sequence, n_linked) \
  X(blink_sequence, awaits) \
  X(blink_sequence, cached) \
  X(blink_sequence, considered) \
  X(blink_sequence, scored) \
  X(blink_sequence, grammar) \
  X(blink_sequence, client) \
  X(blink_sequence, behind) \
  X(blink_sequence, indexed) \
  X(blink_sequence, n_drafts) \
  X(blink_sequence, acceptance) \
  X(blink_sequence, unchecked) \
  X(blink_sequence, source) \
  X(blink_sequence, misses) \
  X(blink_client_count, turn) \
  X(blink_client_count, places) \
  X(blink_client_count, reserved) \
  X(blink_page, sum) \
  X(blink_page, salt) \
  X(blink_page, ready) \
  X(blink_page, queued) \
  X(blink_page, content) \
  X(blink_page, parent) \
  X(blink_page, users) \
  X(blink_page, entry) \
  X(blink_page, depth) \
  X(blink_page, copy) \
  X(blink_staging, arrival) \
  X(blink_staging, sequence) \
  X(blink_staging, done) \
  X(blink_staging, crc) \
  X(blink_staging, wrong) \
  X(blink_grammar_place, used) \
  X(blink_grammar_place, lease) \
  X(blink_grammar_place, epoch) \
  X(blink_grammar_place, name) \
  X(blink_grammar_place, crc32c) \
  X(blink_grammar_place, at) \
  X(blink_grammar_place, words) \
  X(blink_grammar_place, whole) \
  X(blink_grammar_place, users) \
  X(blink_grammar_place, staged) \
  X(blink_grammar_place, reserved) \
  X(blink_grammar_reading, arrival) \
  X(blink_grammar_reading, sequence) \
  X(blink_grammar_reading, place) \
  X(blink_grammar_reading, done) \
  X(blink_grammar_reading, crc) \
  X(blink_grammar_reading, wrong) \
  X(blink_grammar_reading, reserved) \
  X(blink_lease_record, word) \
  X(blink_lease_record, changed_ns) \
  X(blink_lease_record, epoch) \
  X(blink_lease_record, state) \
  X(blink_lease_record, ticket) \
  X(blink_lease_record, newest) \
  X(blink_shape_time, expected_ns) \
  X(blink_shape_time, total_ns) \
  X(blink_shape_time, steps) \
  X(blink_shape_time, usual_ns) \
  X(blink_shape_time, last_step) \
  X(blink_mixed_times, n) \
  X(blink_mixed_times, w) \
  X(blink_mixed_times, ww) \
  X(blink_mixed_times, t) \
  X(blink_mixed_times, wt) \
  X(blink_step_trace, id) \
  X(blink_step_trace, start_ns) \
  X(blink_step_trace, sample_ns) \
  X(blink_step_trace, done_ns) \
  X(blink_step_trace, turn_ns) \
  X(blink_step_trace, chosen_ns) \
  X(blink_step_trace, launched_ns) \
  X(blink_step_trace, seen_ns) \
  X(blink_step_trace, kind) \
  X(blink_step_trace, batch_size) \
  X(blink_kv_event_state, head) \
  X(blink_kv_event_state, tail) \
  X(blink_kv_event_state, written) \
  X(blink_kv_event_state, read) \
  X(blink_kv_event_state, attachment) \
  X(blink_kv_event_state, following) \
  X(blink_kv_event_state, round) \
  X(blink_kv_event_state, swept) \
  X(blink_scheduler_state, launched) \
  X(blink_scheduler_state, committed) \
  X(blink_scheduler_state, claims) \
  X(blink_scheduler_state, last_done_ns) \
  X(blink_scheduler_state, turn_ns) \
  X(blink_scheduler_state, running_since_ns) \
  X(blink_scheduler_state, fault) \
  X(blink_scheduler_state, fault_detail) \
  X(blink_scheduler_state, phase) \
  X(blink_scheduler_state, last_kind) \
  X(blink_scheduler_state, n_free_pages) \
  X(blink_scheduler_state, n_idle_pages) \
  X(blink_scheduler_state, n_waiting) \
  X(blink_scheduler_state, n_active) \
  X(blink_scheduler_state, n_zombies) \
  X(blink_scheduler_state, n_staged) \
  X(blink_scheduler_state, planned) \
  X(blink_scheduler_state, reserved) \
  X(blink_scheduler_state, idle_head) \
  X(blink_scheduler_state, idle_tail) \
  X(blink_scheduler_state, contents) \
  X(blink_scheduler_state, written) \
  X(blink_scheduler_state, host_copies) \
  X(blink_scheduler_state, brought_back) \
  X(blink_scheduler_state, ended_prompts) \
  X(blink_scheduler_state, ended_outputs) \
  X(blink_scheduler_state, decode_ns) \
  X(blink_scheduler_state, mixed_times) \
  X(blink_scheduler_state, rests) \
  X(blink_scheduler_state, kv_events) \
  X(blink_scheduler_state, plan_ns) \
  X(blink_scheduler_state, staging) \
  X(blink_scheduler_state, grammar_reading) \
  X(blink_scheduler_state, grammar_uses) \
  X(blink_scheduler_state, stats) \
  X(blink_scheduler_state, leases) \
  X(blink_scheduler_state, clients) \
  X(blink_scheduler_state, gap_histogram) \
  X(blink_scheduler_config, header) \
  X(blink_scheduler_config, leases) \
  X(blink_scheduler_config, lease_acks) \
  X(blink_scheduler_config, request_words) \
  X(blink_scheduler_config, descriptors) \
  X(blink_scheduler_config, progress) \
  X(blink_scheduler_config, prompts) \
  X(blink_scheduler_config, outputs) \
  X(blink_scheduler_config, n_slots) \
  X(blink_scheduler_config, n_leases) \
  X(blink_scheduler_config, prompt_heap) \
  X(blink_scheduler_config, output_heap) \
  X(blink_scheduler_config, tables) \
  X(blink_scheduler_config, sets) \
  X(blink_scheduler_config, shapes) \
  X(blink_scheduler_config, executables) \
  X(blink_scheduler_config, decode_lookup) \
  X(blink_scheduler_config, prefill_lookup) \
  X(blink_scheduler_config, mixed_lookup) \
  X(blink_scheduler_config, verify_lookup) \
  X(blink_scheduler_config, seen) \
  X(blink_scheduler_config, requests) \
  X(blink_scheduler_config, sequences) \
  X(blink_scheduler_config, free_pages) \
  X(blink_scheduler_config, pages) \
  X(blink_scheduler_config, page_tokens) \
  X(blink_scheduler_config, page_index) \
  X(blink_scheduler_config, idle_pages) \
  X(blink_scheduler_config, kv_events) \
  X(blink_scheduler_config, kv_event_queue) \
  X(blink_scheduler_config, kv_event_told) \
  X(blink_scheduler_config, grammar_places) \
  X(blink_scheduler_config, shape_times) \
  X(blink_scheduler_config, trace) \
  X(blink_scheduler_config, state) \
  X(blink_scheduler_config, n_shapes) \
  X(blink_scheduler_config, total_pages) \
  X(blink_scheduler_config, max_prefill_tokens) \
  X(blink_scheduler_config, max_prefill_slots) \
  X(blink_scheduler_config, max_mixed_tokens) \
  X(blink_scheduler_config, mixed_share) \
  X(blink_scheduler_config, max_batch) \
  X(blink_scheduler_config, n_index) \
  X(blink_scheduler_config, n_idle) \
  X(blink_scheduler_config, prefix_cache) \
  X(blink_scheduler_config, attention_keys) \
  X(blink_scheduler_config, stage_words) \
  X(blink_scheduler_config, kv_event_capacity) \
  X(blink_scheduler_config, kv_event_bytes) \
  X(blink_scheduler_config, n_kv_event_queue) \
  X(blink_scheduler_config, host_pages) \
  X(blink_scheduler_config, copy_shape) \
  X(blink_scheduler_config, n_grammar_places) \
  X(blink_scheduler_config, max_grammar_words) \
  X(blink_scheduler_config, priorities) \
  X(blink_scheduler_config, max_drafts) \
  X(blink_scheduler_config, max_verify_rows) \
  X(blink_scheduler_config, longest_match) \
  X(blink_scheduler_config, shortest_match) \
  X(blink_scheduler_config, drafts_per_matched_token) \
  X(blink_scheduler_config, least_share) \
  X(blink_scheduler_config, n_draft_places) \
  X(blink_scheduler_config, simulates_acceptance) \
  X(blink_scheduler_config, copied_share) \
  X(blink_scheduler_config, acceptance_chances) \
  X(blink_scheduler_config, draft_places) \
  X(blink_scheduler_config, hash_key) \
  X(blink_scheduler_config, arm_margin_ns) \
  X(blink_scheduler_config, target_itl_ns) \
  X(blink_scheduler_config, min_itl_ns) \
  X(blink_scheduler_config, scan_interval_ns) \
  X(blink_scheduler_config, step_timeout_ns)
// clang-format on
