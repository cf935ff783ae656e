"""Pipeline schedules as pictures: a line a rank, time to the right, as text and as SVG."""

from __future__ import annotations

from html import escape
from math import ceil

from hpckit.errors import InputError
from hpckit.plan.pipeline.price import Interval, SchedulePrice, price_schedule
from hpckit.plan.pipeline.schedule import Schedule

# Above these a picture says nothing any more.
MOST_RANKS = 64
MOST_ACTIONS = 50_000
WIDE = 200  # characters of a line of text
IDLE = "."
ROW, LEFT, TOP, WIDTH = 30, 70, 58, 1000
COLORS = {"F": "#4f86b8", "B": "#3f9c72", "I": "#3f9c72", "W": "#d9a441"}
NAMES = {"F": "F forward", "B": "B backward", "I": "I gradient of the input", "W": "W gradient of the weights"}
MOST_LABELS = 4_000  # numbers in the bars
LETTERS = 12.0  # px
LEAST_LETTERS = 6.5  # px; below, no number is drawn
DIGIT = 0.58  # width of a digit over its height


def draw_schedule(schedule: Schedule, price: SchedulePrice | None = None, wide: int = WIDE) -> str:
    """A line a rank: `F3` is where it begins F of microbatch 3, `-` where it goes on, `.` where the rank waits.

    Several stages a rank: `4F3` with the stage. Long steps are drawn by kind only, a rank's second stage in small
    letters. price: of `price_schedule`, or of a step that was run (`MeasuredStep.price`); by default each of F, I and W
    takes one unit. wide: characters that a line may have behind the rank. Raises `InputError` for what is too large to
    draw.
    """
    price = _checked(schedule, price)
    shortest = min((it.end - it.begin for it in price.intervals if it.end > it.begin), default=1.0)
    units = max(price.seconds / shortest, 1e-9)
    label = max(len(_label(schedule, it)) for it in price.intervals)
    label += units * (label + 1) <= wide  # a blank between them where there is room
    numbered = units * label <= wide
    scale = (label if numbered else max(wide // units, 1.0 if units <= wide else wide / units)) / shortest
    lines = [[IDLE] * ceil(price.seconds * scale) for _ in range(schedule.ranks)]
    level = _levels(schedule)
    for interval in price.intervals:
        first, end = round(interval.begin * scale), round(interval.end * scale)
        kind = interval.action.kind
        text = _label(schedule, interval).ljust(max(end - first - 1, 0), "-").ljust(end - first)
        if not numbered:
            text = (kind.lower() if level[interval.action.stage] % 2 else kind) * (end - first)
        lines[interval.rank][first:end] = text[: end - first]
    head = len(str(schedule.ranks - 1))
    rows = [f"rank {rank:{head}}  {''.join(line).rstrip()}" for rank, line in enumerate(lines)]
    return "\n".join([title(schedule, price), *rows])


def draw_schedule_svg(schedule: Schedule, price: SchedulePrice | None = None, time: str = "", axis: float = 0.0) -> str:
    """An SVG Gantt chart: a row a rank, a bar an action with its microbatch, gray where a rank waits.

    Later stages of a rank are darker. A tooltip on each bar shows its action and times. price: as in `draw_schedule`.
    time: the duration as text. axis: the least width of the chart in seconds, so that two charts can be compared one
    below the other. Raises `InputError` if the schedule is too large to draw.
    """
    unit = "{:g} times F of a stage".format if price is None else lambda seconds: f"{1e3 * seconds:.4g} ms"
    price = _checked(schedule, price)
    time = time or unit(price.seconds)
    end = max(price.seconds, axis) or 1.0
    width = WIDTH * (price.seconds or end) / end
    height = TOP + ROW * schedule.ranks + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {height}" font-family="sans-serif" '
        'font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="22" font-size="15">{escape(title(schedule, price))}</text>',
        *_legend(schedule),
    ]
    for rank in range(schedule.ranks):
        y = TOP + ROW * rank
        parts.append(f'<text x="10" y="{y + 19}">rank {rank}</text>')
        parts.append(f'<rect x="{LEFT}" y="{y + 2}" width="{width:.2f}" height="{ROW - 4}" fill="#f1f3f5"/>')
    level = _levels(schedule)
    for interval in price.intervals:
        parts.append(_bar(interval, end, level[interval.action.stage], len(price.intervals) <= MOST_LABELS))
    parts.append(f'<text x="{LEFT}" y="{height - 14}">time: {escape(time)}</text></svg>')
    return "\n".join(parts)


def title(schedule: Schedule, price: SchedulePrice) -> str:
    """What the schedule is and what it wastes, in a line."""
    bubble = f"bubble {100 * price.bubble:.2f} %"
    if abs(price.open_bubble - price.bubble) > 1e-9:
        bubble += f", {100 * price.open_bubble:.2f} % where steps follow without a barrier"
    return f"{schedule.title()}; {bubble}"


def _checked(schedule: Schedule, price: SchedulePrice | None) -> SchedulePrice:
    """The price to draw, by default that of equal times."""
    actions = sum(map(len, schedule.actions))
    if schedule.ranks > MOST_RANKS or actions > MOST_ACTIONS:
        raise InputError(
            f"a schedule of {schedule.ranks} ranks and {actions} actions is too large to draw",
            do=f"draw it for at most {MOST_RANKS} ranks and {MOST_ACTIONS} actions",
        )
    return price_schedule(schedule) if price is None else price


def _label(schedule: Schedule, interval: Interval) -> str:
    text = str(interval.action)
    return text if schedule.chunks > 1 else text[len(str(interval.action.stage)) :]


def _levels(schedule: Schedule) -> list[int]:
    """Which of its rank's stages each stage is, counted from 0."""
    held: dict[int, int] = {}
    levels = []
    for rank in schedule.rank_of:
        held[rank] = held.get(rank, -1) + 1
        levels.append(held[rank])
    return levels


def _legend(schedule: Schedule) -> list[str]:
    kinds = sorted({action.kind for actions in schedule.actions for action in actions}, key="FBIW".index)
    parts, x = [], LEFT
    for kind in kinds:
        parts.append(f'<rect x="{x}" y="34" width="12" height="12" fill="{COLORS[kind]}"/>')
        parts.append(f'<text x="{x + 17}" y="44">{NAMES[kind]}</text>')
        x += 40 + 7 * len(NAMES[kind])
    if schedule.chunks > 1:
        parts.append(f'<text x="{x}" y="44">darker: the later stages of a rank</text>')
    return parts


def _bar(interval: Interval, end: float, level: int, labels: bool) -> str:
    x, width = LEFT + WIDTH * interval.begin / end, WIDTH * (interval.end - interval.begin) / end
    y = TOP + ROW * interval.rank + 2
    action = interval.action
    number = str(action.microbatch)
    bar = (
        f'<rect x="{x:.2f}" y="{y}" width="{max(width, 0.5):.2f}" height="{ROW - 4}" '
        f'fill="{_darker(COLORS[action.kind], level)}" stroke="white" stroke-width="{min(1.0, width / 8):.2f}">'
        f"<title>{action}: rank {interval.rank}, {interval.begin:.6g} to {interval.end:.6g}</title></rect>"
    )
    letters = min(LETTERS, (width - 2) / (DIGIT * len(number)))
    if labels and letters >= LEAST_LETTERS:
        smaller = f'font-size="{letters:.1f}" ' if letters < LETTERS else ""
        bar += (
            f'<text x="{x + width / 2:.2f}" y="{y + 17}" text-anchor="middle" fill="white" {smaller}'
            f'pointer-events="none">{number}</text>'
        )
    return bar


def _darker(color: str, level: int) -> str:
    factor = 0.72 ** min(level, 4)
    return "#" + "".join(f"{round(factor * int(color[i : i + 2], 16)):02x}" for i in (1, 3, 5))
