"""The style of the pictures, and their conversion to inline SVG."""

from __future__ import annotations

import io
import itertools
import re
import textwrap
from typing import Any

from hpckit.errors import SetupError

INK = "#1f2933"
MUTED = "#64727f"
GRID = "#e3e7eb"
ACCENT = "#0f6674"
WARM = "#b4552d"
FONT = "-apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
# Phases in order of appearance; lost time has colors of its own.
PHASES = ("#0f6674", "#4f9aa5", "#d9a441", "#7a8f3c", "#8a6fa8", "#5b7bb5", "#a3c4c9", "#c9b27c")
PHASE_COLORS = {"wait": "#c8644a", "halo": "#e3a18f", "output": "#9aa5b1", "diagnostics": "#c3cbd3", "other": "#e9edf0"}
SERIES = (ACCENT, WARM, "#d9a441", "#5b7bb5", "#7a8f3c")

WIDEST = 4.5  # inches: wider figures have a row of their own
_SETTINGS: Any = {
    "svg.fonttype": "none",  # the reader's own font: sharp, small, can be searched
    "svg.hashsalt": "hpckit",
    "font.family": "DejaVu Sans",
    "font.size": 9.5,  # a chart of 266 points is shown 320 px wide or wider: labels have 11 px and more
    "axes.edgecolor": "#aab4bd",
    "axes.linewidth": 0.6,
    "axes.labelcolor": MUTED,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.grid": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.use_mathtext": False,
    "axes.formatter.limits": (-3, 4),
    "axes.unicode_minus": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": "#aab4bd",
    "ytick.color": "#aab4bd",
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.labelsize": 9.2,
    "ytick.labelsize": 9.2,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "legend.frameon": False,
    "legend.fontsize": 9.2,
    "lines.linewidth": 1.4,
    "text.color": INK,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


def pyplot() -> Any:
    """Matplotlib's pyplot on the Agg canvas, in our style. Raises `SetupError` when it is not installed."""
    try:
        import matplotlib
    except ImportError as problem:
        raise SetupError(
            "a report needs matplotlib",
            likely="hpckit was installed without the extra `analysis`",
            do="pip install 'hpckit[analysis]'",
        ) from problem
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(_SETTINGS)
    return plt


_counter = itertools.count(1)


def to_svg(figure: Any, label: str, css: str = "") -> str:
    """The figure as an `<svg>` element that scales with its container; closes the figure.

    `label` is its text for screen readers. Names inside are made unique, so that many figures share one page.
    """
    _wrap_titles(figure)
    width, buffer = figure.get_figwidth(), io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    pyplot().close(figure)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    prefix = f"s{next(_counter)}-"
    text = re.sub(r'\bid="', f'id="{prefix}', text)
    text = re.sub(r'href="#', f'href="#{prefix}', text)
    text = text.replace("url(#", f"url(#{prefix}")
    text = re.sub(r"'DejaVu Sans'(?:, [^;\"]*)?", FONT, text)
    if width <= WIDEST:
        text = re.sub(r"font-size: ([\d.]+px)", r"font-size: calc(\1 * var(--text, 1))", text)  # see page.CSS
    box = re.search(r'viewBox="[^"]*"', text)
    head = f'<svg class="{css}" {box.group(0) if box else ""} role="img" aria-label="{_attribute(label)}">'
    return re.sub(r"^<svg[^>]*>", lambda _: head, text, count=1)


def _wrap_titles(figure: Any) -> None:
    """Break the titles that would leave the figure into two lines."""
    renderer = figure.canvas.get_renderer()
    for axes in figure.axes:
        for where in ("left", "center"):
            text = axes.get_title(where)
            if not text or "\n" in text:
                continue
            place = axes.set_title(text, loc=where).get_window_extent(renderer)
            if place.x1 > figure.bbox.width or place.x0 < 0:
                axes.set_title("\n".join(textwrap.wrap(text, max(12, (len(text) + 10) // 2))), loc=where)


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
