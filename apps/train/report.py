"""The training sections of a report: learning curves, a real and a simulated step, memory, the sample text."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from hpckit.apps.train.data import ANSWERS
from hpckit.apps.train.output.timeline import TIMELINE, read_timeline
from hpckit.plan.pipeline.draw import draw_schedule_svg
from hpckit.plan.pipeline.price import price_schedule
from hpckit.report.data import with_data
from hpckit.report.extension import ReportSection
from hpckit.report.page import caption, escape, grid, table
from hpckit.report.run_data import RunData
from hpckit.report.style import INK, SERIES, WARM, pyplot, to_svg
from hpckit.report.units import counted, number, percent

SMOOTH = 50  # parts of a run over whose steps the loss is averaged
PARTS = ("parameters", "gradients", "optimizer", "activations")


def sections(run: RunData) -> Iterator[ReportSection | Iterator[ReportSection]]:
    """The sections with something to show."""
    yield _learning(run)
    yield _answers(run)
    yield _text(run)
    yield _pipeline(run)
    yield _memory(run)


def _learning(run: RunData) -> Iterator[ReportSection]:
    steps, loss = run.series("loss")
    if len(steps) < 2:
        return
    kept_at, kept = run.series("validation_loss")
    drawn = [_loss_curve(steps, loss, kept_at, kept)]
    drawn += [
        _curve(title, *run.series(name))
        for name, title in (("grad_norm", "norm of the gradient"), ("lr", "learning rate"))
    ]
    if not _is_language(run):
        drawn.append(_curve("accuracy on validation (%)", *_scaled(run.series("validation_accuracy"), 100)))
    last = run.summary.get("validation") or {}
    said = f"Loss {loss[0]:.4g} at the first step, {np.mean(loss[-max(1, len(loss) // 20) :]):.4g} at the end"
    numbers: dict[str, Any] = {"first": loss[0], "last": loss[-1], "validation": last}
    if last.get("loss") is not None:
        said += f"; {last['loss']:.4g} on the {last['samples']} samples of the validation"
        if _is_language(run):
            said += (
                f", perplexity {math.exp(min(last['loss'], 700)):.4g}, {last['loss'] / math.log(2):.4g} bits a token"
            )
        else:
            said += f", accuracy {percent(last['accuracy'])}"
    rows = [(name, value) for name, value in _speed(run)]
    yield ReportSection(
        "learning",
        "Learning",
        grid(drawn) + caption(said + ".") + table(("median of a step", ""), rows, (1,)),
        numbers,
        "headline",
        ("loss", "grad_norm", "lr", "validation_loss", "validation_accuracy"),
    )


def _speed(run: RunData) -> Iterator[tuple[str, str]]:
    known = run.summary
    for name, unit in (("tokens_per_second", "tokens/s"), ("samples_per_second", "samples/s")):
        if known.get(name):
            yield unit, number(known[name])
    if known.get("mfu") and known.get("peak_flops"):
        peak, one = known["peak_flops"] / 1e9, known["flops_per_sample"] / 1e9
        said = f"MFU, of {number(peak, 3)} GFLOP/s in matrix products (a sample takes {number(1e3 * one, 3)} MFLOP)"
        yield said, percent(known["mfu"])
    if known.get("communication") is not None and run.summary.get("ranks", 1) > 1:
        yield "communication: sums over ranks, outside of the pipeline", percent(known["communication"])


def _answers(run: RunData) -> Iterator[ReportSection]:
    """The confusion matrix of the validation, and images that were misread."""
    path = run.directory / "output" / ANSWERS
    if not path.is_file():
        return
    found = json.loads(path.read_text(encoding="utf-8"))
    matrix, misread = np.array(found["confusion"]), found["misread"]
    drawn = [_confusion(matrix)] + ([_misread(misread)] if misread else [])
    wrong = int(matrix.sum() - np.trace(matrix))
    said = f"{wrong} of {counted(int(matrix.sum()), 'image')} misread."
    if wrong:
        mixed = matrix - np.diag(np.diag(matrix))
        true, answer = np.unravel_index(mixed.argmax(), mixed.shape)
        said += f" Most often: {true} read as {answer}, {counted(int(mixed.max()), 'time')}."
    yield ReportSection(
        "answers", "Right and wrong", grid(drawn) + caption(said), {"confusion": matrix.tolist()}, "headline"
    )


def _confusion(matrix: np.ndarray) -> str:
    """Counts of each class (rows) and answer (columns)."""
    figure, axes = pyplot().subplots(figsize=(3.7, 3.5), layout="constrained")
    axes.imshow(np.sqrt(matrix), cmap="Blues", vmax=1.3 * math.sqrt(max(1, matrix.max())))
    for (true, answer), count in np.ndenumerate(matrix):
        if count:
            color = WARM if true != answer else INK
            axes.text(answer, true, str(count), ha="center", va="center", fontsize=9.2, color=color)
    ticks = range(len(matrix))
    axes.set_xticks(ticks)
    axes.set_yticks(ticks)
    axes.tick_params(length=0)
    axes.set_xlabel("answer")
    axes.set_ylabel("digit")
    axes.set_title("confusion matrix")
    columns = {"digit": list(ticks)} | {f"answer {answer}": matrix[:, answer].tolist() for answer in ticks}
    return with_data(to_svg(figure, "counts of each digit and answer", "chart"), "confusion", columns)


def _misread(misread: list[dict[str, Any]]) -> str:
    """Up to 12 images, each with its class and the answer."""
    shown = misread[:12]
    rows = -(-len(shown) // 4)
    figure, every = pyplot().subplots(rows, 4, figsize=(3.7, 1.16 * rows), layout="constrained", squeeze=False)
    for axes in every.flat:
        axes.set_axis_off()
    for axes, one in zip(every.flat, shown, strict=False):
        axes.imshow(one["pixels"], cmap="gray_r", interpolation="nearest")
        axes.set_title(f"{one['class']} read as {one['answer']}", fontsize=9.2, loc="center")
    return to_svg(figure, f"{len(shown)} misread images", "chart")


def _text(run: RunData) -> Iterator[ReportSection]:
    text = run.summary.get("text")
    if text:
        settings = run.values.get("sample") or {}
        said = f"After the prompt {settings.get('prompt', '')!r}, temperature {settings.get('temperature')}"
        said += f", among the {settings['top_k']} likeliest." if settings.get("top_k") else "."
        yield ReportSection(
            "text", "What it writes", f"<pre>{escape(text)}</pre>" + caption(said), {"text": text}, after="headline"
        )


def _pipeline(run: RunData) -> Iterator[ReportSection]:
    path = run.directory / "output" / TIMELINE
    if (run.summary.get("mesh") or {}).get("pp", 1) < 2 or not path.is_file():
        return
    step = read_timeline(path)
    priced, seconds = price_schedule(step.schedule, times=step.times), step.price.seconds
    bubble = run.summary.get("bubble") or {}
    axis = max(seconds, priced.seconds)  # both on one
    drawn = draw_schedule_svg(step.schedule, step.price, f"{1e3 * seconds:.4g} ms, measured", axis)
    told = f"{1e3 * priced.seconds:.4g} ms, simulated with the mean times of the stages, drawn to the scale above"
    beside = draw_schedule_svg(step.schedule, priced, told, axis)
    rows = [
        (what, percent(bubble[key]))
        for key, what in (
            ("measured", "bubble, median of the measured steps"),
            ("simulated", "bubble simulated with the measured times of the stages"),
            ("equal_times", "bubble of the schedule if F, I and W take equally long"),
        )
        if key in bubble
    ]
    rows.append(("the last step over the simulated one", f"{seconds / priced.seconds:.3f}"))
    yield ReportSection(
        "pipeline",
        "A step of the pipeline",
        _wide(drawn) + _wide(beside) + table(("", ""), rows, (1,)),
        {"bubble": bubble, "seconds": seconds, "simulated_seconds": priced.seconds},
    )


def _memory(run: RunData) -> Iterator[ReportSection]:
    memory = run.summary.get("memory") or {}
    if not all(name in memory for name in PARTS):
        return
    ranks = range(len(memory[PARTS[0]]))
    scale = 1e9 if max(memory["resident"]) > 2e9 else 1e6
    unit = "GB" if scale == 1e9 else "MB"
    figure, axes = pyplot().subplots(figsize=(3.7, 0.7 + 0.32 * min(len(ranks), 32)), layout="constrained")
    left = np.zeros(len(ranks))
    for part, name in enumerate(PARTS):
        values = np.array(memory[name]) / scale
        axes.barh(ranks, values, left=left, height=0.62, color=SERIES[part % len(SERIES)], label=name)
        left += values
    axes.set_yticks(list(ranks), [f"rank {rank}" for rank in ranks])
    axes.invert_yaxis()
    axes.set_title(f"memory per rank ({unit})")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=1.0)
    picture = to_svg(figure, "memory per rank", "chart")
    columns = {name: name for name in PARTS} | {
        "activations_foreseen": "activations as foreseen",
        "work": "work arrays",
        "resident": "most resident of the process",
    }
    columns = {name: title for name, title in columns.items() if name in memory}
    rows = [
        (f"rank\u00a0{rank}", *(number(memory[name][rank] / scale, 3) for name in columns)) for rank in list(ranks)[:64]
    ]
    head = ("", *(f"{title} ({unit})" for title in columns.values()))
    said = (
        "Activations are what a rank kept for backward passes at once, at most, weighed in a step: of all microbatches"
        " under way, and gradients for a late W. Foreseen: worked out from the shapes, without the latter. Work arrays"
        " are activations, messages and what is made on the way, as far as they have 64 KB and more."
    )
    shown = grid([picture]) + table(head, rows, tuple(range(1, len(head)))) + caption(said)
    yield ReportSection("memory", "Memory per rank", shown, memory, after="phases")


def _loss_curve(steps: list[float], loss: list[float], kept_at: list[float], kept: list[float]) -> str:
    """The loss of each step, its mean over parts of the run, and that of the validation."""
    figure, axes = pyplot().subplots(figsize=(3.7, 2.6), layout="constrained")
    parts = min(SMOOTH, len(steps))
    middle, mean = (np.array([part.mean() for part in np.array_split(np.array(v), parts)]) for v in (steps, loss))
    axes.plot(steps, loss, color=SERIES[0], alpha=0.3, linewidth=0.8)
    axes.plot(middle, mean, color=SERIES[0], label="training")
    if kept:
        axes.plot(kept_at, kept, color=SERIES[1], marker="o", markersize=2.5, label="validation")
    if min(loss) > 0 and max(loss) > 30 * min(loss):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter("")
    axes.grid(axis="y")
    axes.margins(x=0.01)
    axes.set_xlabel("step")
    axes.locator_params(axis="x", integer=True)
    axes.set_title("loss (nats)")
    axes.legend(loc="upper right", handlelength=1.2)
    checked = dict(zip(kept_at, kept, strict=True))
    columns = {"step": steps, "loss": loss, "validation loss": [checked.get(step, math.nan) for step in steps]}
    return with_data(to_svg(figure, "loss over the steps", "chart"), "loss", columns)


def _curve(title: str, steps: list[float], values: list[float]) -> str:
    figure, axes = pyplot().subplots(figsize=(3.7, 2.6), layout="constrained")
    axes.plot(steps, values, color=SERIES[0], linewidth=1.0)
    axes.grid(axis="y")
    axes.margins(x=0.01)
    axes.set_xlabel("step")
    axes.locator_params(axis="x", integer=True)
    axes.set_title(title)
    return with_data(to_svg(figure, title, "chart"), title, {"step": steps, title: values})


def _scaled(series: tuple[list[float], list[float]], factor: float) -> tuple[list[float], list[float]]:
    return series[0], [factor * value for value in series[1]]


def _is_language(run: RunData) -> bool:
    return (run.values.get("model") or {}).get("kind") in ("gpt2", "llama")


def _wide(svg: str) -> str:
    return svg.replace("<svg ", '<svg class="wide" ', 1)
