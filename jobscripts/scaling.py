"""The table of a strong-scaling study: what `jobscripts/scaling.toml` calls when its runs are done."""

import json


def table(inputs, outputs):
    """Ranks, rate, speedup and parallel efficiency of each run, against the one on the fewest ranks."""
    runs = sorted((json.loads(path.read_text()) for path in inputs), key=lambda run: run["ranks"])
    first = runs[0]
    lines = ["ranks  cell-steps/s  speedup  efficiency"]
    for run in runs:
        speedup = run["cell_steps_per_second"] / first["cell_steps_per_second"]
        efficiency = speedup * first["ranks"] / run["ranks"]
        lines.append(f"{run['ranks']:5d}  {run['cell_steps_per_second']:12.4g}  {speedup:7.2f}  {efficiency:10.2f}")
    outputs[0].write_text("\n".join(lines) + "\n")
    print(outputs[0].read_text())
