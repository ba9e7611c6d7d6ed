#include "reference_engine.h"

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/ops/activation.h"
#include "kernels/ops/add_norm.h"
#include "kernels/ops/attention/attention.h"
#include "kernels/ops/embed.h"
#include "kernels/ops/moe/combine.h"
#include "kernels/ops/moe/expert_gemv.h"
#include "kernels/ops/gather.h"
#include "kernels/ops/page_copy.h"
#include "floats.h"
#include "matmul.h"
#include "kernels/ops/norm.h"
#include "kernels/ops/attention/rope.h"
#include "kernels/ops/moe/routing.h"
#include "kernels/ops/sampling/sample.h"
#include "thread_pool.h"

namespace blink {
namespace {

uint64_t now_ns() {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return uint64_t(t.tv_sec) * 1000000000ull + uint64_t(t.tv_nsec);
}

constexpr uint64_t kWorthSharing = 65536; /* multiplications in a loop below which waking a thread costs more */

class ReferenceEngine {
 public:
  ReferenceEngine(const blink_model& model, const blink_tables& tables, const blink_step_set* sets,
                  const blink_shape* shapes, uint32_t n_shapes, uint32_t total_pages, uint32_t host_pages,
                  uint32_t n_threads)
      : model_(model),
        layers_(model.layers, model.layers + model.n_layers),
        tables_(tables),
        sets_(sets, sets + BLINK_STEP_SETS),
        shapes_(shapes, shapes + n_shapes),
        tokens_(largest(&blink_shape::tokens)),
        batch_slots_(largest(&blink_shape::batch_slots)),
        heads_(model.n_heads + 2 * model.n_kv_heads),
        total_pages_(total_pages),
        page_part_(uint64_t(model.n_kv_heads) * tables.page_size * model.head_dim),
        layer_cache_(total_pages * page_part_),
        pool_(n_threads),
        cache_(2 * layer_cache_ * model.n_layers),
        host_cache_(2 * host_pages * page_part_ * model.n_layers),
        residual_(uint64_t(tokens_) * model.hidden),
        normed_(uint64_t(std::max(tokens_, batch_slots_)) * model.hidden),
        qkv_(uint64_t(tokens_) * heads_ * model.head_dim),
        attended_(uint64_t(tokens_) * model.n_heads * model.head_dim),
        delta_(uint64_t(tokens_) * model.hidden),
        gate_up_(uint64_t(tokens_) * 2 * model.intermediate),
        active_(uint64_t(tokens_) * model.intermediate),
        router_logits_(uint64_t(tokens_) * model.n_experts),
        expert_weight_(uint64_t(tokens_) * model.experts_per_token),
        topk_ids_(uint64_t(tokens_) * model.experts_per_token),
        expert_scratch_(topk_ids_.size() * 3 * model.expert_intermediate),
        expert_rows_(topk_ids_.size() * model.hidden),
        logits_(uint64_t(batch_slots_) * model.vocab_size),
        penalised_(uint64_t(batch_slots_) * model.vocab_size) {}

  void run(uint32_t shape, uint32_t set_index) {
    const blink_step_set& set = sets_.at(set_index);
    blink_step_head* head = set.head;
    head->start_ns = now_ns();
    /* The gate's check: a step that runs before its predecessor completed would read its rows' tokens too
     * early (E2). */
    /* The scheduler looks at it while the step runs. */
    const uint64_t early = __atomic_load_n(tables_.completed, __ATOMIC_ACQUIRE) + 1 < head->id;
    __atomic_store_n(&head->fault, early, __ATOMIC_RELAXED);
    n_tokens_ = std::min(head->n_tokens, shapes_.at(shape).tokens);
    batch_size_ = std::min(head->batch_size, shapes_.at(shape).batch_slots);
    if (shapes_.at(shape).kind == BLINK_STEP_COPY) {
      copy_pages(set);
    } else {
      forward(set);
    }
    head->sample_ns = now_ns();
    for_each(batch_size_, model_.vocab_size, [&](uint32_t batch_slot) { sample_slot(set, batch_slot); });
    head->slots_done = 0;
    head->done_ns = now_ns();
    __atomic_store_n(tables_.completed, head->id, __ATOMIC_RELEASE);
  }

  const float* logits() const { return logits_.get(); }

 private:
  uint32_t largest(uint32_t blink_shape::* capacity) const {
    uint32_t most = 0;
    for (const blink_shape& shape : shapes_)
      if (shape.kind != BLINK_STEP_COPY) most = std::max(most, shape.*capacity);
    return most;
  }

  /* body(begin, end) over [0, n) in shares, each item about `work` multiplications. */
  template <typename Body>
  void share(uint32_t n, uint64_t work, const Body& body) {
    pool_.split(n, uint32_t(kWorthSharing / std::max<uint64_t>(work, 1)), body);
  }

  template <typename Body>
  void for_each(uint32_t n, uint64_t work, const Body& body) {
    share(n, work, [&](uint32_t begin, uint32_t end) {
      for (uint32_t i = begin; i < end; ++i) body(i);
    });
  }

  /* y [rows][out] = x [rows][in] w^T, plus `bias` [out] unless it is null */
  void project(const Floats& x, const float* w, const Floats& y, uint32_t rows, uint32_t in, uint32_t out,
               const float* bias = nullptr) {
    share(out, uint64_t(rows) * in, [&](uint32_t begin, uint32_t end) {
      linear(x.get(), w, y.get(), rows, in, out, begin, end);
      for (uint32_t i = 0; bias && i < rows; ++i)
        for (uint32_t j = begin; j < end; ++j) *(y + (uint64_t(i) * out + j)) += bias[j];
    });
  }

  void copy_pages(const blink_step_set& set) {
    auto *cache = reinterpret_cast<unsigned char*>(cache_.get()),
         *host = reinterpret_cast<unsigned char*>(host_cache_.get());
    for (uint32_t i = 0; i < n_tokens_; ++i)
      copy_page(cache, host, set.token_sequence[i], set.token_position[i], total_pages_, 2 * model_.n_layers,
                page_part_ * sizeof(float));
  }

  void forward(const blink_step_set& set) {
    const blink_model& m = model_;
    for_each(n_tokens_, 2 * m.hidden, [&](uint32_t i) {
      embed(set, tables_, m.embed, residual_.get(), m.hidden, m.embed_scale, i);
      rmsnorm(residual_ + uint64_t(i) * m.hidden, layers_[0].input_norm, m.norm_eps, normed_ + uint64_t(i) * m.hidden,
              m.hidden);
    });
    for (uint32_t l = 0; l < m.n_layers; ++l) {
      const blink_layer& layer = layers_[l];
      attend(set, l);
      add_and_norm(layer.attention_out_norm, layer.mlp_norm);
      if (layer.router)
        run_experts(set, layer);
      else
        feed_forward(layer);
      if (l + 1 < m.n_layers) add_and_norm(layer.mlp_out_norm, layers_[l + 1].input_norm);
    }
    add_and_gather(set);
    project(normed_, m.head, logits_, batch_size_, m.hidden, m.vocab_size);
  }

  void attend(const blink_step_set& set, uint32_t l) {
    const blink_model& m = model_;
    const blink_layer& layer = layers_[l];
    const RopePair* const table = reinterpret_cast<const RopePair*>(layer.rope);
    const QueryGrowth growth = {layer.growth_beta, std::max(layer.growth_context, 1u)};
    float *k_cache = cache_ + 2 * l * layer_cache_, *v_cache = k_cache + layer_cache_;
    project(normed_, layer.qkv, qkv_, n_tokens_, m.hidden, heads_ * m.head_dim);
    for_each(n_tokens_, 10 * heads_ * m.head_dim, [&](uint32_t i) {
      for (uint32_t head = 0; head < heads_; ++head)
        rope(set, tables_, qkv_.get(), layer.qkv_bias, layer.q_norm, layer.k_norm, m.norm_eps, table, k_cache, v_cache,
             layer.k_scale, layer.v_scale, m.n_heads, m.n_kv_heads, m.head_dim, i, head, growth);
    });
    /* Key head by key head, so that equal shares are equal work although late tokens have more keys than
     * early ones; the query heads of one key head in turn, so that its keys are in the cache. */
    const uint32_t ratio = m.n_heads / m.n_kv_heads, per_kv_head = n_tokens_ * ratio;
    for_each(n_tokens_ * m.n_heads, 64 * m.head_dim, [&](uint32_t j) {
      const uint32_t i = j % per_kv_head / ratio, head = j / per_kv_head * ratio + j % ratio;
      attention(set, tables_, qkv_.get(), k_cache, v_cache, attended_.get(), m.n_heads, m.n_kv_heads, m.head_dim,
                layer.window, layer.sinks, i, head);
    });
    project(attended_, layer.o, delta_, n_tokens_, m.n_heads * m.head_dim, m.hidden, layer.o_bias);
  }

  void feed_forward(const blink_layer& layer) {
    const blink_model& m = model_;
    project(normed_, layer.gate_up, gate_up_, n_tokens_, m.hidden, 2 * m.intermediate);
    for_each(n_tokens_, 10 * m.intermediate, [&](uint32_t i) {
      gated_row(Activation(m.activation), gate_up_ + uint64_t(i) * 2 * m.intermediate,
                active_ + uint64_t(i) * m.intermediate, m.intermediate);
    });
    project(active_, layer.down, delta_, n_tokens_, m.intermediate, m.hidden);
  }

  void run_experts(const blink_step_set& set, const blink_layer& layer) {
    const blink_model& m = model_;
    const uint32_t per_token = m.experts_per_token;
    const uint64_t size = uint64_t(m.hidden) * m.expert_intermediate;
    project(normed_, layer.router, router_logits_, n_tokens_, m.hidden, m.n_experts, layer.router_bias);
    for (uint32_t i = 0; i < n_tokens_; ++i)
      route(set, router_logits_.get(), topk_ids_.data(), expert_weight_.get(), m.n_experts, per_token, m.renormalise,
            i);
    for_each(n_tokens_ * per_token, 3 * size, [&](uint32_t p) {
      const uint64_t expert = topk_ids_[p];
      if (expert == kNoExpert) return;
      float* scratch = expert_scratch_ + uint64_t(p) * 3 * m.expert_intermediate;
      const float* const bias = layer.gate_up_bias;
      expert_mlp(normed_ + uint64_t(p / per_token) * m.hidden, layer.gate_up + expert * 2 * size,
                 bias ? bias + expert * 2 * m.expert_intermediate : nullptr, layer.down + expert * size, scratch,
                 scratch + 2 * m.expert_intermediate, expert_rows_ + uint64_t(p) * m.hidden, m.hidden,
                 m.expert_intermediate, Activation(m.activation));
    });
    for_each(n_tokens_, per_token * m.hidden, [&](uint32_t i) {
      moe_combine(expert_rows_.get(), topk_ids_.data(), expert_weight_.get(), layer.down_bias, delta_.get(), m.hidden,
                  per_token, i);
    });
  }

  /* residual += delta, through the norm behind what made it if there is one; normed = rmsnorm(residual). */
  void add_and_norm(const float* behind, const float* weight) {
    const blink_model& m = model_;
    for_each(n_tokens_, 2 * m.hidden, [&](uint32_t i) {
      const uint64_t t = uint64_t(i) * m.hidden;
      if (behind)
        add_rmsnorm(residual_ + t, delta_ + t, behind, weight, m.norm_eps, normed_ + t, m.hidden);
      else
        residual_rmsnorm(residual_ + t, delta_ + t, weight, m.norm_eps, normed_ + t, m.hidden);
    });
  }

  /* The same behind the last layer, of the batch slots' last tokens. */
  void add_and_gather(const blink_step_set& set) {
    const blink_model& m = model_;
    const float* const behind = layers_.back().mlp_out_norm;
    for (uint32_t batch_slot = 0; batch_slot < batch_size_; ++batch_slot) {
      float* const delta = delta_ + uint64_t(set.batch_last[batch_slot]) * m.hidden;
      if (behind) rmsnorm(delta, behind, m.norm_eps, delta, m.hidden);
      gather_rmsnorm(set, residual_.get(), delta_.get(), m.final_norm, m.norm_eps, normed_.get(), m.hidden, batch_slot);
    }
  }

  void sample_slot(const blink_step_set& set, uint32_t batch_slot) {
    if (!set.batch_emit[batch_slot]) return;
    const uint64_t offset = uint64_t(batch_slot) * model_.vocab_size;
    std::copy_n(logits_ + offset, model_.vocab_size, penalised_ + offset);
    blink::sample_slot(set, tables_, penalised_ + offset, batch_slot);
  }

  const blink_model model_;
  const std::vector<blink_layer> layers_;
  const blink_tables tables_;
  const std::vector<blink_step_set> sets_;
  const std::vector<blink_shape> shapes_;
  const uint32_t tokens_, batch_slots_, heads_, total_pages_;
  const uint64_t page_part_;   /* floats of a page's keys in one layer, or values */
  const uint64_t layer_cache_; /* floats of one layer's keys, or values */
  ThreadPool pool_;
  Floats cache_, host_cache_, residual_, normed_, qkv_, attended_, delta_, gate_up_, active_;
  Floats router_logits_, expert_weight_;
  std::vector<uint32_t> topk_ids_; /* [tokens][per_token] */
  Floats expert_scratch_, expert_rows_, logits_, penalised_;
  uint32_t n_tokens_ = 0, batch_size_ = 0; /* of the current step */
};

}  // namespace
}  // namespace blink

extern "C" {

void* blink_reference_engine_create(const struct blink_model* model, const struct blink_tables* tables,
                                    const struct blink_step_set* sets, const struct blink_shape* shapes,
                                    uint32_t n_shapes, uint32_t total_pages, uint32_t host_pages, uint32_t n_threads,
                                    char* error, uint32_t error_bytes) {
  try {
    return new blink::ReferenceEngine(*model, *tables, sets, shapes, n_shapes, total_pages, host_pages, n_threads);
  } catch (const std::exception& e) {
    snprintf(error, error_bytes, "%s", e.what());
    return nullptr;
  }
}

void blink_reference_engine_run(void* engine, uint32_t shape, uint32_t set) {
  static_cast<blink::ReferenceEngine*>(engine)->run(shape, set);
}

const float* blink_reference_engine_logits(const void* engine) {
  return static_cast<const blink::ReferenceEngine*>(engine)->logits();
}

void blink_reference_engine_destroy(void* engine) {
  delete static_cast<blink::ReferenceEngine*>(engine);
}

uint64_t blink_host_step_layout_hash(void) {
  return BLINK_STEP_LAYOUT_HASH;
}

uint64_t blink_host_model_layout_hash(void) {
  return BLINK_MODEL_LAYOUT_HASH;
}
}
