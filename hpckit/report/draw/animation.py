"""The main field as an animated picture within the page (APNG), and key frames of it in place of the motion.

The key frames appear in print, for readers whose system asks for less motion, and at a click. There is no script, and
the size is bounded.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpckit.report.draw.maps import draw, extend_of, shape_of, shown_range
from hpckit.report.field_file import FieldFile, FileField
from hpckit.report.page import caption, escape, section
from hpckit.report.sections.slices import Slices, cropped, drawn_as_lines, read_slice, section_of
from hpckit.report.style import pyplot
from hpckit.report.units import length_scale, number, with_units

MOST_BYTES = 1_200_000
SIZES = (
    (640, 30),
    (520, 24),
    (420, 16),
    (320, 10),
    (240, 6),
)  # pixels of width and frames, tried until it is small enough
READ_BYTES = 400_000_000
SECONDS = 6.0  # of one round
KEY_FRAMES = 4
COLORS = 160
POINTS = 320


@dataclass(frozen=True)
class Animation:
    """An APNG, a few of its frames as PNGs, and what they show."""

    moving: bytes
    stills: list[bytes]
    field: Slices
    width: int
    height: int


def animate(
    file: FieldFile, variable: FileField, place: Sequence[int], frames: int, most_bytes: int = MOST_BYTES
) -> Animation | None:
    """The field over up to `frames` times; a 3-D one cut across its second dim at `place`; at most `most_bytes`.

    None for fewer than 3 times or frames, and for a field of one dim, of one value or with values that are not
    finite.
    """
    cut = section_of(variable, place)
    budget = READ_BYTES // max(1, file.frame_bytes(variable))
    count = min(frames, len(file.times), max(3, budget))
    if count < 3 or len(variable.dims) < 2:
        return None
    chosen = np.unique(np.linspace(0, len(file.times) - 1, count).round().astype(int))
    field = read_slice(file, variable, [int(frame) for frame in chosen], POINTS, cut, keep_blank=True)
    if not field.finite or not field.high > field.low:
        return None
    field = cropped([drawn_as_lines(field)], variable.name)[0]
    for width, most in SIZES:
        made = _encode(field, width, min(most, frames))
        if len(made.moving) + sum(map(len, made.stills)) <= most_bytes:
            return made
    return None


def animation_section(made: Animation | None) -> str:
    """The picture with a switch between motion and key frames."""
    if made is None:
        return ""
    field = made.field
    title = with_units(field.long_name, field.units)
    stills = "".join(f'<img alt="" src="{_data(still)}">' for still in made.stills)
    said = f"{number(field.low)} to {number(field.high)}" + (f"; {field.note}" if field.note else "")
    size = f'width="{made.width}" height="{made.height}"'
    return section(
        "Animation",
        f"<h3>{escape(title)} <span>{escape(said)}</span></h3>",
        '<div class="film"><label><input type="checkbox"> key frames in place of motion</label>'
        f'<img class="motion" {size} alt="{escape(field.long_name)} over time, animated" src="{_data(made.moving)}">'
        f'<div class="strip">{stills}</div></div>',
        caption(f"{len(field.times)} times from 0 to {field.moment(-1)}, in a loop."),
    )


def animation_numbers(made: Animation | None) -> dict[str, Any] | None:
    """The times shown, and the size of the animation."""
    if made is None:
        return None
    field = made.field
    return {
        "variable": field.name,
        "units": field.units,
        "times": field.times,
        "scale": list(field.scale or ())[:2],
        "bytes": len(made.moving),
        "cut": field.note or None,
    }


def _encode(field: Slices, width: int, most: int) -> Animation:
    from PIL import Image

    picks = np.unique(np.linspace(0, len(field.times) - 1, min(most, len(field.times))).round().astype(int))
    pictures = _pictures(field, width, [int(pick) for pick in picks])
    few = [pictures[i] for i in np.linspace(0, len(pictures) - 1, KEY_FRAMES).round().astype(int)]
    sheet = Image.fromarray(np.concatenate(few))
    palette = sheet.quantize(COLORS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    indexed = [Image.fromarray(one).quantize(palette=palette, dither=Image.Dither.NONE) for one in pictures]
    colors, paper = indexed[0].getpalette() or [], 3 * int(np.asarray(indexed[0])[0, 0])
    colors[paper : paper + 3] = [255, 255, 255]
    for one in indexed:
        one.putpalette(colors)
    pause = int(1000 * SECONDS / (len(indexed) + 3))
    durations = [pause] * (len(indexed) - 1) + [4 * pause]
    moving = io.BytesIO()
    indexed[0].save(moving, "PNG", save_all=True, append_images=indexed[1:], duration=durations, loop=0)
    stills = []
    for i in sorted({int(i) for i in np.linspace(0, len(indexed) - 1, KEY_FRAMES).round()}):
        buffer = io.BytesIO()
        indexed[i].save(buffer, "PNG", optimize=True)
        stills.append(buffer.getvalue())
    height, wide = pictures[0].shape[:2]
    return Animation(moving.getvalue(), stills, field, wide, height)


def _pictures(field: Slices, width: int, picks: Sequence[int]) -> list[np.ndarray]:
    """The frames as RGB images on one color scale; the axes are drawn once."""
    plt = pyplot()
    wide = 5.2  # inches
    tall = 0.74 * wide * shape_of(field) + 0.76
    figure = plt.figure(figsize=(wide, tall), dpi=width / wide)
    figure.patch.set_facecolor("white")
    low, high = 0.46 / tall, 1.0 - 0.76 / tall
    if field.values.ndim == 2:
        return _curves(field, figure.add_axes((0.12, low, 0.84, high)), picks)
    axes = figure.add_axes((0.10, low, 0.74, high))
    bar_axes = figure.add_axes((0.86, low, 0.022, high))
    image = draw(axes, field, picks[0], contours=False, arrows=False)
    axes.set_aspect("auto")
    bar = figure.colorbar(image, cax=bar_axes, extend=extend_of(field))
    bar.outline.set_visible(False)
    bar.ax.set_ylim(*shown_range(field))
    return _photographed(field, axes, picks, image.set_data)


def _curves(field: Slices, axes: Any, picks: Sequence[int]) -> list[np.ndarray]:
    """The frames of a field of one dim: its curve between fixed ends."""
    scale, unit = length_scale(float(np.ptp(field.coords[0])), field.coord_units[0])
    (line,) = axes.plot(field.coords[0] / scale, field.values[picks[0]])
    margin = 0.05 * (field.high - field.low)
    axes.set(ylim=(field.low - margin, field.high + margin), xlabel=with_units(field.dims[0], unit))
    axes.ticklabel_format(axis="x", style="plain", useOffset=False)
    axes.grid(axis="y")
    return _photographed(field, axes, picks, line.set_ydata)


def _photographed(field: Slices, axes: Any, picks: Sequence[int], show: Callable[[Any], object]) -> list[np.ndarray]:
    """The picture at each time, once `show` has taken its values; closes the figure."""
    made = []
    for pick in picks:
        show(field.values[pick])
        axes.set_title(f"t = {field.moment(pick)}", pad=5)
        axes.figure.canvas.draw()
        made.append(np.asarray(axes.figure.canvas.buffer_rgba())[..., :3].copy())
    pyplot().close(axes.figure)
    return made


def _data(picture: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(picture).decode()
