"""HTML: one file that needs nothing else. No script, no request; the Markdown of the sections, the figures inside."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, cast

from harness import __version__
from harness.report.clean import clean
from harness.report.hide import HIDDEN
from harness.report.text import command, shell_lines
from harness.report.watched import whereabouts
from harness.report.words import ANSWERED
from harness.store.files import read_text
from harness.store.redact import hidden_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from harness.report.write import Report

_OURS = re.compile(r"\s*(</?details( open)?>|<summary>[^<]*</summary>|<summary><b>[^<]*</b></summary>|\n)+\s*")
"""The only HTML that our Markdown holds; anything else in it came from outside and is shown as text."""


def render(report: Report, *, hide: Callable[[str], str], template: Path | None = None) -> str:
    """The report as a page, or as ``template`` (a Jinja2 file with the same variables) lays it out.

    Every text goes through ``hide`` before it is escaped, so that an escape cannot keep a name from being found.

    Raises:
        SpecError: the template cannot be read, or is wrong; the message has its line.
    """
    from jinja2 import Environment, TemplateError
    from jinja2.sandbox import SandboxedEnvironment

    source = own("report.html.j2") if template is None else _template_text(template)
    kind = Environment if template is None else SandboxedEnvironment
    page = template is None or template.suffix in {".html", ".htm", ".xml"} or ".html." in template.name
    environment = kind(autoescape=page, trim_blocks=True, keep_trailing_newline=True)
    environment.filters |= {"shell": _shell, "breakable": _breakable}
    try:
        return environment.from_string(source).render(_context(report, hide))
    except TemplateError as error:
        from harness.core.errors import SpecError

        line = getattr(error, "lineno", None)
        at = f"{template}:{line}" if line else str(template)
        raise SpecError(f"{at}: {error.message or error}. Its variables are listed in docs/reports.md.") from error


def own(name: str) -> str:
    """A template, style or script of ours."""
    return (files("harness.report") / "templates" / name).read_text(encoding="utf-8")


def _context(report: Report, hide: Callable[[str], str]) -> dict[str, Any]:
    from markupsafe import Markup

    run = report.run
    pages = {name: page_of(hide(block.markdown)) for name, block in report.blocks}  # while the figures are drawn
    return {
        "version": __version__,
        "style": Markup(own("report.css")),
        "title": hide(report.title),
        "summary": _hidden(report.summary, hide),
        "run": run,
        "run_id": run.id,
        "ended": hide(run.ended),
        "answered": ANSWERED,
        "whereabouts": hide(whereabouts(report.summary.job)) if report.summary.job else "",
        "own_commands": [hide("\n".join(shell_lines(one.line, width=72))) for one in report.findings.answer.commands],
        "code": run.code,
        "sections": [
            {
                "name": name,
                "title": hide(block.title),
                "markdown": hide(block.markdown),
                "html": pages[name],
                "figures": report.figures_of(name),
            }
            for name, block in report.blocks
        ],
    }


def page_of(markdown: str) -> str:
    """Markdown of ours as HTML; tables scroll inside themselves, and no other HTML gets through."""
    html = _parser().render(markdown)
    return re.sub(r"<table>.*?</table>", r'<div class="table" tabindex="0">\g<0></div>', html, flags=re.DOTALL)


@cache
def _parser() -> Any:
    from html import escape

    from markdown_it import MarkdownIt

    def ours(self: Any, tokens: Sequence[Any], index: int, options: Any, env: Any) -> str:
        text = tokens[index].content
        return text if _OURS.fullmatch(text) else escape(text)

    def image(self: Any, tokens: Sequence[Any], index: int, options: Any, env: Any) -> str:
        return escape(tokens[index].content)  # a page of ours loads nothing

    parser = MarkdownIt("commonmark", {"html": True}).enable("table").disable("autolink")
    parser.add_render_rule("html_block", ours)
    parser.add_render_rule("html_inline", ours)
    parser.add_render_rule("image", image)
    parser.core.ruler.at("inline", _inline)
    return parser


def _inline(state: Any) -> None:
    """As markdown-it's rule of this name, but a text is parsed once: the cells of a table say the same few things."""
    by_text: dict[str, list[Any]] = {}
    for token in state.tokens:
        if token.type == "inline":
            if token.content not in by_text:
                by_text[token.content] = []
                state.md.inline.parse(token.content, state.md, state.env, by_text[token.content])
            token.children = by_text[token.content]


def _hidden(summary: Any, hide: Callable[[str], str]) -> Any:
    """The summary with every text in it hidden and cleaned of control characters."""
    from dataclasses import fields, is_dataclass, replace

    if isinstance(summary, str):
        return hide(clean(summary))
    if isinstance(summary, tuple):
        return tuple(hidden_arguments([_hidden(item, hide) for item in cast("tuple[Any, ...]", summary)], word=HIDDEN))
    if is_dataclass(summary) and not isinstance(summary, type):
        return replace(summary, **{f.name: _hidden(getattr(summary, f.name), hide) for f in fields(summary)})
    return summary


def _shell(argv: Sequence[str]) -> str:
    """A command line, over several lines where it is long."""
    return "\n".join(command(argv, width=72))


def _breakable(text: str) -> Any:
    """``text`` that may break between the settings of a cell, ``depth=12,length=2048``, not only where a phone ends."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r",(?=\w+=)", ",<wbr>", escape(text)))


def _template_text(path: Path) -> str:
    from harness.core.errors import SpecError

    try:
        return read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: cannot be read as a template: {error}") from error
