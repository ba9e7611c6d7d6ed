"""Flags that users of vLLM type and that have no equal here, with what to use instead.

Those that mean the same as a flag of ours are accepted: `Flag.also` of the tables in backend.py and
frontend.py.
"""

from __future__ import annotations

ONE_GPU = "one model runs on one GPU: leave it out"
EACH_GPU = "start one `blink serve --gpu N --port P` for each GPU, behind a load balancer or `blink dynamo`"
OWN_TYPE = "a model is served in its checkpoint's own type: leave it out"
ALWAYS = "this is always on: leave it out"
QUIET = "requests are not logged without --log-requests: leave it out"
PER_REQUEST = "it is a field of requests: leave it out"
GRAPHS = "steps are captured graphs, which the scheduler on the GPU launches: leave it out"
GRAMMARS = "blink has one engine for structured output: leave it out"
NO_LORA = "LoRA is not supported"
NO_IMAGES = "models are served for text alone: leave it out"
GENERATES = "models are served to generate text alone"
MODEL_FILES = "what the model directory's files say holds"

INSTEAD = {
    "--gpu-memory-utilization": "use --kv-memory SIZE, the memory of the KV cache; by default it takes what "
    "--max-batch can use, within 90 % of the free memory",
    "--kv-cache-memory-bytes": "use --kv-memory SIZE",
    "--logits-processors": "vLLM's are classes that run on the host; --logits-processor MODULE:FUNCTION "
    "names a function, which Numba compiles (docs/logits-processors.md)",
    "--num-gpu-blocks-override": "use --kv-memory SIZE",
    "--swap-space": "use --host-kv-memory SIZE, which keeps pages of the prefix cache in host memory",
    "--cpu-offload-gb": "weights stay on the GPU; --host-kv-memory SIZE holds pages of the prefix cache",
    "--tensor-parallel-size": ONE_GPU,
    "-tp": ONE_GPU,
    "--pipeline-parallel-size": ONE_GPU,
    "-pp": ONE_GPU,
    "--data-parallel-size": EACH_GPU,
    "-dp": EACH_GPU,
    "--enable-expert-parallel": ONE_GPU,
    "--distributed-executor-backend": ONE_GPU,
    "--dtype": OWN_TYPE,
    "--load-format": "checkpoints are safetensors; --random-weights serves random ones",
    "--enforce-eager": GRAPHS,
    "--compilation-config": GRAPHS,
    "-O": GRAPHS,
    "--optimization-level": GRAPHS,
    "--cuda-graph-sizes": GRAPHS,
    "--max-seq-len-to-capture": GRAPHS,
    "--enable-prefix-caching": f"{ALWAYS}; --no-prefix-cache turns it off",
    "--enable-chunked-prefill": ALWAYS,
    "--async-scheduling": "the scheduler is on the GPU and always a step ahead: leave it out",
    "--attention-backend": "`blink explain MODEL` says which kernels serve a model: leave it out",
    "--enable-auto-tool-choice": ALWAYS,
    "--enable-prompt-tokens-details": ALWAYS,
    "--enable-request-id-headers": ALWAYS,
    "--disable-log-requests": QUIET,
    "--no-enable-log-requests": QUIET,
    "--disable-uvicorn-access-log": QUIET,
    "--disable-log-stats": "use --log-level warning",
    "--trust-remote-code": "no code that comes with a model is ever run: leave it out",
    "--chat-template-content-format": "the template is tried, and gets content as it shows it: leave it out",
    "--trust-request-chat-template": "requests cannot bring a template; --chat-template FILE is for all",
    "--tokenizer": "the tokenizer is the model directory's tokenizer.json",
    "--hf-token": "set the variable HF_TOKEN",
    "--download-dir": "set the variable HF_HOME",
    "--skip-tokenizer-init": "a tokenizer is always there; prompts may be token ids: leave it out",
    "--runner": f"{GENERATES}: leave it out",
    "--task": f"{GENERATES}: leave it out",
    "--convert": f"{GENERATES}: leave it out",
    "--logprobs-mode": "log-probabilities are those of the model's own logits: leave it out",
    "--tokenizer-mode": "the tokenizer is the model directory's tokenizer.json: leave it out",
    "--hf-overrides": MODEL_FILES,
    "--rope-scaling": MODEL_FILES,
    "--override-generation-config": f"{MODEL_FILES}; requests may say otherwise",
    "--seed": PER_REQUEST,
    "--default-chat-template-kwargs": "requests may have `chat_template_kwargs`",
    "--max-logprobs": "requests may ask for 20: leave it out",
    "--guided-decoding-backend": GRAMMARS,
    "--structured-outputs-config": GRAMMARS,
    "--limit-mm-per-prompt": NO_IMAGES,
    "--mm-processor-kwargs": NO_IMAGES,
    "--language-model-only": NO_IMAGES,
    "--enable-lora": NO_LORA,
    "--lora-modules": NO_LORA,
    "--kv-transfer-config": "keys and values stay on the GPU that computed them; --host-kv-memory SIZE holds "
    "pages of the prefix cache in its host's memory",
    "--kv-events-config": "use --kv-events N, and `blink events --publish` beside the server",
    "--max-num-partial-prefills": "prompts share steps by themselves; --mixed-share says how much they get",
    "--generation-config": "defaults of sampling are those of the model's generation_config.json",
    "--model": "name the model without a flag: blink serve MODEL",
}  # fmt: skip


def instead(name: str) -> str | None:
    """What to use instead of the flag, which may have a part (--compilation-config.level) or value (-O3)."""
    return INSTEAD.get(name.partition(".")[0]) or INSTEAD.get(name[:2])
