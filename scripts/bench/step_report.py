"""What was measured as text, and steps as a picture."""

from __future__ import annotations

from pathlib import Path

from bench.ceilings import Ceiling
from bench.step_costs import Step
from bench.sustained import Sustained


def line(ceiling: Ceiling) -> str:
    text = f"{ceiling.what} {ceiling.tera_per_s:.3g} T/s"
    if (found := ceiling.sustained) is None:
        return text
    rate, each = ceiling.amount / found.us / 1e6, found.joules / ceiling.amount * 1e12
    sustained = f"{rate:.3g} T/s, {found.watts:.0f} W, {each:.3g} pJ, {found.sm_mhz} MHz"
    return f"{text}; over and over {sustained}"


def table(step: Step) -> str:
    what = f"{step.rows} rows at context {step.context}" if step.rows else f"{step.tokens} tokens"
    if step.kind == "mixed":
        what += f" and {step.tokens - step.rows} tokens"
    lines = [
        f"{step.kind} of {what}: {step.us:.1f} us, floor {step.floor_us:.1f} us, "
        f"{step.floor_us / step.us:.1%}{_sustained(step.sustained, 1)}"
    ]
    for op in sorted(step.operations, key=lambda op: -op.us):
        each = f"{op.bytes / 1e6 / op.launches:9.2f} MB {op.flops / 1e9 / op.launches:9.2f} GFLOP"
        share = f"{op.floor_us / op.us:6.1%}" if op.floor_us else 6 * " "
        time = f"{op.launches:4} x {op.us / op.launches:9.2f} us"
        line = f"  {op.name:32} {time} {each} {share}  of the step {op.us / step.us:6.1%}"
        lines.append(line + _sustained(op.sustained, op.launches))
    return "\n".join(lines)


def _sustained(found: Sustained | None, launches: int) -> str:
    if found is None:
        return ""
    return (
        f"; over and over {found.us / launches:.2f} us, {found.watts:.0f} W, "
        f"{found.joules * 1e3 / launches:.1f} mJ, {found.sm_mhz} MHz"
    )


def draw(steps: list[Step], title: str, path: Path) -> None:
    """Each step's operations stacked, beside its floor and its measured time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = sorted({op.name.split(" ")[0] for step in steps for op in step.operations})
    colours = dict(zip(names, pyplot.get_cmap("tab20").colors * 2, strict=False))
    figure, axes = pyplot.subplots(1, len(steps), figsize=(2 + 2 * len(steps), 4.5), squeeze=False)
    for axis, step in zip(axes[0], steps, strict=True):
        axis.bar(["floor", "step"], [step.floor_us / 1e3, step.us / 1e3], color="lightgrey")
        height = 0.0
        for op in step.operations:
            name = op.name.split(" ")[0]
            axis.bar(["parts"], [op.us / 1e3], bottom=height, color=colours[name], label=name)
            height += op.us / 1e3
        size = f"{step.rows}x{step.tokens}" if step.kind == "mixed" else step.tokens
        axis.set_title(f"{step.kind} {size}")
        axis.set_ylabel("ms")
    handles = {
        label: handle
        for axis in axes[0]
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=6, fontsize="small")
    figure.suptitle(title)
    figure.tight_layout(rect=(0, 0.12, 1, 1))
    figure.savefig(path, dpi=80)
