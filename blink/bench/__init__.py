"""`blink bench`: measurements that anyone can repeat. Each benchmark is a module of this package with
`configure` and `main`, as the commands of blink/cli.py are.
"""

from __future__ import annotations

DESCRIPTION = "Measurements of serving. Figures mean nothing without the machine: results name it."
COMMANDS = {
    "serve": "load for any server of OpenAI's API: latency, throughput, energy, interference",
    "plot": "draw the results of `serve`",
    "schedulers": "the scheduler on the GPU against three on the host: makespan, steps, cost to the CPU",
    "timeline": "draw the results of `schedulers`",
    "transport": "the ways to the ring side by side: latency, tokens a second, CPU",
}
