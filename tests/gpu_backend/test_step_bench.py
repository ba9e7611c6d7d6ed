"""What scripts/bench/engine.py times, against a driver that logs and runs nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import small_models
from bench import sustained
from fake_cuda import op, run
from steady_meter import SteadyMeter

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings: scripts/setup gpu")

BENCH = """
sys.path.insert(0, str(Path(toolkit.__file__).resolve().parents[2] / "scripts"))
from bench import engine, sustained
from bench.ceilings import Ceiling
from gpu_backend.models.registry import read_model
from gpu_backend.engines.base import Limits
from gpu_backend.models.description import Model
from steady_meter import SteadyMeter

engine.reads = lambda device, stream, measure: [Ceiling("reads", 8e9, 2e3)]
engine.products = lambda device, stream, measure: Ceiling("multiplies", 1e12, 1e3)
engine.time_us = lambda enqueue, wait: (enqueue(), 1e3)[1]
engine.EnergyCounter = lambda uuid, flag: SteadyMeter(600, 0.001)
sustained.WARM_UP_S = 0.0
config, limits = read_model(Path(sys.argv[1])), Limits(4, 256, 64, 4, 16, 64)
"""
FILL = """
bench = engine.Bench(config, limits)
cache = bench.engine.model.cache
print(cache.address, cache.n_bytes // 2)  # keys and values, 2 bytes each
bench.close()
"""
SUSTAIN = """
step_us, operation_us = {times}
times = iter([step_us])
engine.time_us = lambda enqueue, wait: (enqueue(), next(times, operation_us))[1]
bench = engine.Bench(config, limits, sustained_s=0.01)
print(engine.table(bench.measure(engine.Load(2, 0, 20))))
bench.close()
"""
CEILINGS = """
import steady_meter

class Clock:  # the meter's, too: no other process can run between a look at the one and at the other
    now = 100.0

    def monotonic(self):
        self.now += 0.0002
        return self.now

sustained.time = steady_meter.time = Clock()
engine.products = lambda device, stream, measure: Ceiling("multiplies", 1e12, *measure(int, int))
bench = engine.Bench(config, limits, sustained_s=0.1)
print("\\n".join(map(engine.line, bench.ceilings)))
bench.close()
"""


def test_the_cache_holds_random_numbers_before_anything_is_timed(fake: Path, tmp_path: Path) -> None:
    printed, log = run(fake, tmp_path, BENCH + FILL, small_models.DENSE)
    last = [call for call in log if call[0] == "launch"][-1]
    assert op(last) == "random"
    address, n = (int.from_bytes(bytes.fromhex(argument), "little") for argument in last[7:9])
    assert [address, n] == [int(word) for word in printed.split()]


def test_a_step_and_its_operations_are_sustained(fake: Path, tmp_path: Path) -> None:
    printed, _ = run(fake, tmp_path, BENCH + SUSTAIN.format(times=(1e3, 1e3)), small_models.DENSE)
    step, *operations = printed.splitlines()
    assert step.startswith("decode of 2 rows")
    assert {line.split()[0] for line in operations} >= {"qkv", "o", "gate_up", "down", "head", "sample"}
    assert all("; over and over " in line and line.endswith(" mJ, 1500 MHz") for line in printed.splitlines())


def test_what_the_gpu_does_at_most_is_sustained(fake: Path, tmp_path: Path) -> None:
    """The meter says 600 W: of 10^12 operations in as much time as the fake takes, its energy."""
    printed, _ = run(fake, tmp_path, BENCH + CEILINGS, small_models.DENSE)
    reads, products = printed.splitlines()
    assert reads == "reads 4 T/s"
    alone, sustained = products.split("; over and over ")
    assert alone == "multiplies 1e+03 T/s"
    rate, watts, energy, clock = sustained.split(", ")
    assert float(watts.removesuffix(" W")) == pytest.approx(600, rel=0.05)
    each = float(watts.removesuffix(" W")) / float(rate.removesuffix(" T/s"))
    assert float(energy.removesuffix(" pJ")) == pytest.approx(each, rel=0.02)
    assert clock == "1500 MHz"


def test_small_operations_are_not_sustained(fake: Path, tmp_path: Path) -> None:
    printed, _ = run(fake, tmp_path, BENCH + SUSTAIN.format(times=(1e5, 1e3)), small_models.DENSE)
    step, *operations = printed.splitlines()
    assert "; over and over " in step
    assert operations
    assert not any("; over and over " in line for line in operations)


@pytest.mark.parametrize("every_s", [0.001, 0.02, 0.25])
def test_power_is_measured_between_two_moves_of_the_counter(
    every_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """600 W for 2 ms each, however seldom the counter moves, in a time of its own."""
    now, queued = [100.1], [0]
    monkeypatch.setattr(sustained.time, "monotonic", lambda: now[0])

    def enqueue() -> None:
        queued[0] += 1

    def wait() -> None:
        now[0] += 0.002 * queued[0]
        queued[0] = 0

    found = sustained.sustain(enqueue, wait, 3e4, SteadyMeter(600, every_s), seconds=0.1)
    assert found.us == pytest.approx(2e3)
    assert found.watts == pytest.approx(600, rel=0.05)
    assert found.joules == pytest.approx(found.us * found.watts / 1e6)
    assert found.sm_mhz == 1500
