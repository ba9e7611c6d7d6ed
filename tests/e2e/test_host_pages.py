"""Pages of the prefix cache go to host memory and come back, in a server on the CPU (S18)."""

from __future__ import annotations

from demo_client import ask, chat, items, right
from serve_process import Serve

PAGE_BYTES = 2 * 4 * 6 * 2 * 64 * 16  # keys and values of 16 tokens in fp32: 6 layers, 2 KV heads of 64


def test_prompts_are_found_again_in_host_memory(serve: Serve) -> None:
    """Prompts of three times what the device holds, twice in the same order: without host memory, the second
    round finds as good as nothing."""
    chosen = items("lookup_long", 12)
    bodies = [chat(item) for item in chosen]
    flags = (f"--kv-memory={96 * PAGE_BYTES}", "--max-prefill-tokens=128", "--mixed-share=16")
    found, texts = {}, {}
    for name, more in {"tiered": (f"--host-kv-memory={800 * PAGE_BYTES}",), "plain": ()}.items():
        server = serve(*flags, *more)
        first = ask(server.url, bodies, clients=1)
        before = server.stats()
        second = ask(server.url, bodies, clients=1)
        after = server.stats()
        asked, hits = (after[key] - before[key] for key in ("prefix_queries", "prefix_hits"))
        found[name], texts[name] = hits / asked, [reply.text for reply in (*first, *second)]
        assert sum(right(chosen, second)) >= 11
    assert found["plain"] < 0.5 < 0.7 < found["tiered"], found
    assert texts["tiered"] == texts["plain"]
