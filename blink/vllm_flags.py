"""Flags that users of vLLM type and that have no equal here, with what to use instead.

Those that mean the same as a flag of ours are accepted: `Flag.also` of the tables in backend.py and
frontend.py.
"""

from __future__ import annotations

ONE_GPU = "one model runs on one GPU: leave it out"
OWN_TYPE = "a model is served in its checkpoint's own type: leave it out"
ALWAYS = "this is always on: leave it out"

INSTEAD = {
    "--gpu-memory-utilization": "use --kv-memory SIZE, the memory of the KV cache; by default it takes what "
    "--max-batch can use, within 90 % of the free memory",
    "--kv-cache-memory-bytes": "use --kv-memory SIZE",
    "--num-gpu-blocks-override": "use --kv-memory SIZE",
    "--swap-space": "use --host-kv-memory SIZE, which keeps pages of the prefix cache in host memory",
    "--cpu-offload-gb": "weights stay on the GPU; --host-kv-memory SIZE holds pages of the prefix cache",
    "--tensor-parallel-size": ONE_GPU,
    "--pipeline-parallel-size": ONE_GPU,
    "--data-parallel-size": "start one `blink serve --gpu N --port P` for each GPU, behind a load balancer",
    "--enable-expert-parallel": ONE_GPU,
    "--distributed-executor-backend": ONE_GPU,
    "--dtype": OWN_TYPE,
    "--load-format": "checkpoints are safetensors; --random-weights serves random ones",
    "--enforce-eager": "steps are captured graphs, which the scheduler on the GPU launches: leave it out",
    "--enable-prefix-caching": f"{ALWAYS}; --no-prefix-cache turns it off",
    "--enable-chunked-prefill": ALWAYS,
    "--enable-auto-tool-choice": ALWAYS,
    "--enable-request-id-headers": ALWAYS,
    "--disable-log-requests": "requests are not logged without --log-requests: leave it out",
    "--disable-log-stats": "use --log-level warning",
    "--trust-remote-code": "no code that comes with a model is ever run: leave it out",
    "--chat-template": "the template is the model directory's chat_template.jinja or tokenizer_config.json",
    "--tokenizer": "the tokenizer is the model directory's tokenizer.json",
    "--hf-token": "set the variable HF_TOKEN",
    "--download-dir": "set the variable HF_HOME",
    "--enable-lora": "LoRA is not supported",
    "--lora-modules": "LoRA is not supported",
    "--speculative-config": "speculative decoding is not supported",
    "--scheduling-policy": "requests are served first come, first served: leave it out",
    "--max-num-partial-prefills": "prompts share steps by themselves; --mixed-share says how much they get",
    "--generation-config": "defaults of sampling are those of the model's generation_config.json",
    "--model": "name the model without a flag: blink serve MODEL",
}  # fmt: skip
