"""Draw: one look for every figure, and SVG that is the same bytes each time, small enough for a page, and speaks."""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from harness.store.files import read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

INK = "#1b1e22"
"""Lines and text; on a page it becomes the page's own text colour, so that a dark page shows light lines."""

FAINT = "#8a9099"
COLOURS = {"good": "#2f78c4", "bad": "#d1462f", "slow": "#d99a00", "unsure": "#8a9099", "none": "none"}
"""Blue and vermilion differ for colour-blind eyes; every use also has a letter, a line style or a position."""

WIDTH_IN = 5.0
"""As wide as a phone shows at its natural size: text never shrinks below what one can read there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A drawn figure: ``svg`` is one element without prolog, ``alt`` says in words what one sees in it.

    ``section`` names the section of the report that it belongs to.
    """

    name: str
    title: str
    alt: str
    section: str
    svg: str

    @property
    def file(self) -> str:
        """The figure as a file of its own: on white, for readers without the page's style."""
        return f'<?xml version="1.0" encoding="utf-8"?>\n{self.svg.replace("<svg ", _ALONE, 1)}\n'


_ALONE = f'<svg style="background:#ffffff;color:{INK}" '


@contextmanager
def drawing(height_in: float) -> Generator[tuple[Canvas, Axes]]:
    """A canvas with one pair of axes, in the look of all figures."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # where it may not keep its cache is of no interest here
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    look: Any = {
        "font.family": "sans-serif",
        "font.size": 10,
        "text.color": INK,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "hatch.color": FAINT,
        "hatch.linewidth": 0.6,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 0.8,
        "svg.fonttype": "none",
        "svg.hashsalt": "nsa-harness",
        "legend.frameon": False,
        "legend.fontsize": 9,
    }
    with mpl.rc_context(look):
        canvas = Canvas(figsize=(WIDTH_IN, height_in), layout="constrained")
        yield canvas, canvas.add_subplot()


def box(
    axes: Axes, x: float, y: float, wide: float, high: float, *, fill: str, alpha: float, edge: Mapping[str, Any]
) -> None:
    """A box with its lower left corner at (x, y): filled with ``fill``, and around it a line as ``edge`` says."""
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x, y), wide, high, facecolor=fill, alpha=alpha, linewidth=0))
    axes.add_patch(Rectangle((x, y), wide, high, fill=False, edgecolor=INK, **edge))


def whole_ticks(axes: Axes, values: Iterable[float]) -> None:
    """Ticks of the x axis at whole numbers where ``values`` are whole: there is no half layer."""
    from matplotlib.ticker import MaxNLocator

    if all(float(value).is_integer() for value in values):
        axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))


def finish(
    canvas: Canvas, *, name: str, title: str, alt: str, section: str, hide: Callable[[str], str] = str
) -> Figure:
    """The figure as SVG. Every text in it goes through ``hide`` before it is drawn."""
    from io import StringIO

    from matplotlib.text import Text

    for artist in canvas.findobj(Text):
        if artist.get_text():
            artist.set_text(hide(artist.get_text()))
    layout = canvas.get_layout_engine()
    if layout is not None:  # once, and not again: drawing lays out twice, and that is half of its time
        layout.execute(canvas)
        canvas.set_layout_engine(None)
    out = StringIO()
    canvas.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    alt = hide(alt)
    return Figure(name=name, title=title, alt=alt, section=section, svg=_page_ready(out.getvalue(), name, title, alt))


_TAG = re.compile(r"<[^>]+>")
_FINER = re.compile(r"(\d\.\d\d)\d+")
"""Parts of a point below a hundredth, which nobody sees: a third of a drawing's size."""


def _page_ready(text: str, name: str, title: str, alt: str) -> str:
    """One ``<svg>`` that can stand in a page beside others: own ids, the page's ink, a title and a description."""
    svg = text[text.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", svg)
    svg = re.sub(r'(xlink:href|href)="#([^"]+)"', rf'\1="#{name}-\2"', svg)
    svg = svg.replace(INK, "currentColor")
    svg = _TAG.sub(lambda tag: _FINER.sub(r"\1", tag[0]), svg)
    svg = re.sub(r"(<text\b[^>]*style=\"(?![^\"]*fill))", r"\1fill: currentColor; ", svg)
    body = svg.index(">") + 1
    box = re.search(r'viewBox="[^"]+"', svg[:body])
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" {box[0] if box else ""} '
        f'role="img" {_mark(name)}>\n'
        f'<title id="{name}-title">{escape(title)}</title>\n<desc id="{name}-desc">{escape(alt)}</desc>'
    )
    return "\n".join(map(str.strip, (head + svg[body:]).splitlines()))


def _mark(name: str) -> str:
    """What a figure of that name has in its first tag, and another program's has not."""
    return f'aria-labelledby="{name}-title {name}-desc"'


def is_ours(path: Path) -> bool:
    """Whether a file is a figure that was drawn here, by this version or an earlier one."""
    with suppress(OSError, UnicodeDecodeError):
        return _mark(path.stem) in read_text(path).partition("<title")[0]
    return False
