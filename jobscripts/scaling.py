"""Strong and weak scaling in one table: what `jobscripts/scaling.toml` calls when both studies are done."""

import json


def table(inputs, outputs):
    """Efficiencies with their intervals, and the serial fractions of both laws."""
    lines = ["study   ranks  efficiency  interval"]
    for path in inputs:
        study = json.loads(path.read_text())
        for point in study["points"]:
            found = point["efficiency"]
            interval = f"{found['low']:.3f} to {found['high']:.3f}"
            note = "  more ranks than cores" if point["oversubscribed"] else ""
            lines.append(f"{study['kind']:6}  {point['ranks']:5d}  {found['value']:10.3f}  {interval}{note}")
        if study["fit"]:
            lines.append(f"        {study['fit']['law']}: serial fraction {study['fit']['serial']['value']:.4f}")
    outputs[0].write_text("\n".join(lines) + "\n")
    print(outputs[0].read_text())
