"""What a secret looks like in a text: by its name, by the option or header before it, or by its own form.

Compiling these takes as long as importing a command, and nearly no text needs them: :mod:`harness.store.redact` loads
them when a hint was found.
"""

from __future__ import annotations

import re

from harness.store.redact import HIDDEN, SHORTEST

ASSIGNMENT = re.compile(r"(?:^|(?<==))([A-Z][A-Z0-9_]*)=(.+)", re.DOTALL)
_IN_VALUE = re.compile(r"""[^\s'"`,;&\\]""")
_VALUE = re.compile(r"""[^\s'"`,;&\\]{6,}""")
"""Of a name that is not certain to be a secret's: ends where a quotation or an escape does, so that JSON stays JSON."""

_QUOTE = r"""\\*["']?"""
"""Also one that is escaped, as in JSON within JSON."""

_MARK = re.compile(r"""\\*["']""")
_QUOTED = re.compile(
    r"""(?:(?P<mark>["'])(?:\\.|(?!(?P=mark))[^\\\n])+(?P=mark)(?:"[^"\n]*"|'[^'\n]*')*"""
    r"""|(?P<shell>')[^'\n]+'(?:"[^"\n]*"|'[^'\n]*')*"""
    r"""|(?P<escaped>\\+["'])(?:(?!(?<!\\)(?:(?P=escaped)|")).)+(?<!\\)(?P=escaped))"""
)
"""A value to its closing mark; for a shell a backslash is none, and the next one goes on, as in ``'it'"'"'s'``."""

_SEPARATOR = rf"{_QUOTE}(?:\s*:\s*(?:str|bytes|SecretStr))?\s*[=:]\s*"
"""Between a name and its value: ``=``, ``: ``, ``": "``, ``: str = ``."""

_NUMBER = rf"{_QUOTE}\d+(?:\.\d+)?\b"
_NUMBER_OR_LIST = re.compile(r"[-\d\[{(]")
_CERTAIN = r"(?:passw(?:or)?d|passphrase|(?:client[_-]?)?secret(?:[_-]?(?:access[_-]?)?key)?)"
"""Words that name nothing but a secret: what stands behind them may have blanks."""

_WORD = rf"(?:api[_-]?key|access[_-]?key|account[_-]?key|private[_-]?key|{_CERTAIN}|(?:[a-z]+[_-])?token)"
_DIRECTORY = r"(?:[/~.$]|[a-z]:\\|[^\s'\"]*\()"
"""What stands behind a ``pwd`` that is where a program works, or the call that asks for it."""

_BEGIN = r"(?:(?<!\w)|(?<=\\[nrt]))"
"""Of a word, also behind the end of a line as JSON writes it."""

VARIABLE = re.compile(
    rf"{_BEGIN}[A-Z][A-Z0-9_]*(?:TOKEN|KEY|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|_(?:PASS|PWD)(?![A-Z]))[A-Z0-9_]*"
    rf"{_SEPARATOR}"
)
"""``HF_TOKEN=...`` in a log, a command or a message."""

LABEL = re.compile(
    rf"""(?i){_BEGIN}(?:[a-z0-9]+[_-]){{0,4}}(?:{_CERTAIN}{_SEPARATOR}"""
    rf"""|(?:{_WORD}|pwd(?!{_QUOTE}\s*[=:]\s*{_QUOTE}{_DIRECTORY})){_SEPARATOR}(?!{_NUMBER}))"""
)
"""``api_key=...``, ``"db_password": "..."``; a bare number behind a word that is not certain is a count."""

_OPTION_NAME = r"--(?:[a-z]+-)*"
OPTION = re.compile(
    rf"(?i){_OPTION_NAME}(?:(?:{_CERTAIN}|cookie){_QUOTE}(?:=|,?\s+)(?!{_QUOTE}-)"
    rf"|(?:{_WORD}|tok){_QUOTE}(?:=|,?\s+)(?!{_QUOTE}-|{_NUMBER}))"
)
"""``--token ...`` in a command line, also as Python shows a list of arguments."""

IS_OPTION = re.compile(rf"(?i){_OPTION_NAME}(?:{_WORD}|tok|cookie)")
LOGIN = re.compile(r"""(?:(?<!\w)-u|--user(?:name)?)["']?(?:=|,?\s+)["']?[^\s'",]+["']?,?\s+["']?-p["']?,?\s+""")
"""``-u NAME -p VALUE``; without a name before it ``-p`` is as often a port or a path."""

MYSQL = re.compile(
    r"""\b(?:mysql(?:dump|admin|import|show)?|mariadb(?:-dump|-admin)?)"""
    r"""(?:\s+(?:-[a-zA-Z]\s?[^\s-]\S*|--[\w-]+(?:=\S+)?))*?\s+-p"""
)
"""``mysql -u NAME -pVALUE``: behind these programs' names, with nothing but options between."""

COOKIE = re.compile(
    rf"""(?i){_BEGIN}(?:set-)?cookie2?{_QUOTE}\s*[=:,]\s*(?:b(?=["']))?(?={_QUOTE}[\w!#$%&*+.^|~-]+=)"""
)
"""``Cookie: NAME=VALUE; ...``, also as a dictionary or a list of pairs has it."""

_NAMES_A_SECRET = re.compile(rf"(?i){_CERTAIN}|cookie")
_NO_SECRET = re.compile(r"(?i)(?:yes|no|none|null|true|false|str|bytes|int|bool)\b(?=[),;\]]|$)")
"""What stands in the place of a secret where there is none, or where its type is named."""

_TO_THE_END = {
    "": re.compile(r"[^\n]*"),
    '"': re.compile(r"""(?:\\[^nr\n]|[^"\\\n])*"""),
    "'": re.compile(r"""(?:\\[^nr\n]|'(?=\w)|[^'\\\n])*"""),
    "|": re.compile(r"(?:(?!\s\|)[^\n])*"),
}
"""The rest of a line, by the mark of the quotation or the table that it is in: it ends with that, or its line does."""

_MORE_WORDS = re.compile(r"[ \t]*\w")

_NEXT_WORD = re.compile(r"[\s,;&`]")
_NEXT_SETTING = re.compile(r"[,;&`]|\s+(?:-|[\w.-]+=)")
"""What a command, an address or a list of settings goes on with behind ``password=...``."""

_MARKS = re.compile(r"""\\.|\n|"|(?<!\w)'|'(?!\w)""", re.DOTALL)


class _Quotation:
    """The quotation that a place of a text is in; places are asked for from the front to the back."""

    def __init__(self, text: str) -> None:
        self.text, self.place, self.mark = text, 0, ""

    def at(self, place: int) -> str:
        """Its mark; empty for none."""
        for match in _MARKS.finditer(self.text, self.place, place):
            if match[0] == "\n":
                self.mark = ""
            elif match[0] in ('"', "'") and self.mark in ("", match[0]):
                self.mark = "" if self.mark else match[0]
        self.place = place
        return self.mark


def hide_values(text: str, *, word: str) -> str:
    """``text`` with ``word`` for every value that a name, an option or a header before it says is a secret."""
    for pattern in (VARIABLE, OPTION, COOKIE, LABEL, LOGIN, MYSQL):
        text = _hide_behind(pattern, text, word)
    return text


def _hide_behind(pattern: re.Pattern[str], text: str, word: str) -> str:
    parts: list[str] = []
    quotation, done = _Quotation(text), 0
    for match in pattern.finditer(text):
        if match.start() < done or _begins_hidden(match, word):
            continue
        begin, end = _place_behind(match, quotation)
        if text[begin:end] not in ("", HIDDEN, word):
            parts += [text[done:begin], word]
            done = end
    return "".join((*parts, text[done:]))


def _begins_hidden(match: re.Match[str], word: str) -> bool:
    """Whether what stands behind ``match`` is hidden already, and not only the first of its words."""
    for hidden in {HIDDEN, word}:
        if match.string.startswith(hidden, match.end()):
            behind = match.end() + len(hidden)
            goes_on = _MORE_WORDS if _runs_on(match) and not _is_setting(match) else _IN_VALUE
            return goes_on.match(match.string, behind) is None
    return False


def _runs_on(match: re.Match[str]) -> bool:
    """Whether the value behind ``match`` may have blanks without being quoted: in data it has not."""
    is_header = match.re is COOKIE
    is_certain = match.re in (VARIABLE, LABEL) and _NAMES_A_SECRET.search(match[0]) is not None
    return (is_header or is_certain) and not _is_of_data(match) and "\n" not in match[0]


def _is_setting(match: re.Match[str]) -> bool:
    """Whether it is ``NAME=``, behind which a value that is not quoted hardly has blanks."""
    return match.re is not COOKIE and match[0].endswith("=") and not match[0][-2].isspace()


def _is_of_data(match: re.Match[str]) -> bool:
    """Whether the name is quoted, as in JSON."""
    return match[0].rstrip("=: \t\n")[-1:] in ('"', "'")


def _place_behind(match: re.Match[str], quotation: _Quotation) -> tuple[int, int]:
    """Where the value behind ``match`` begins and ends: all that is quoted, else the rest of the line, or a word."""
    text, begin = match.string, match.end()
    if quoted := _QUOTED.match(text, begin):
        mark = len(quoted["mark"] or quoted["shell"] or quoted["escaped"])
        is_long = quoted.end() - begin - 2 * mark >= SHORTEST
        is_secret = is_long or _NAMES_A_SECRET.search(match[0]) is not None
        return (begin + mark, quoted.end() - mark) if is_secret else (begin, begin)
    if _runs_on(match):
        return begin, _end_of_line(match, quotation)
    if _is_of_data(match) and _NUMBER_OR_LIST.match(text, begin):
        return begin, begin
    if mark := _MARK.match(text, begin):
        begin = mark.end()
    value = _VALUE.match(text, begin)
    return begin, value.end() if value else begin


def _end_of_line(match: re.Match[str], quotation: _Quotation) -> int:
    """Where the line ends that is the value behind ``match``, or the command or list that it is part of goes on."""
    text, begin, end = match.string, match.end(), len(match.string)
    if match.re is not COOKIE and _NO_SECRET.match(text, begin):
        return begin
    if _is_setting(match):
        stop = (_NEXT_WORD if match.re is VARIABLE else _NEXT_SETTING).search(text, begin)
        end = stop.start() if stop else end
    mark = quotation.at(begin)
    is_cell = not mark and text.startswith("|", text.rfind("\n", 0, begin) + 1)
    rest = _TO_THE_END["|" if is_cell else mark].match(text, begin, end)
    value = rest[0].rstrip() if rest else ""
    is_long = len(value) >= SHORTEST or match.re is COOKIE
    return begin + len(value) if is_long else begin


_BASIC = rf"\bauthorization{_QUOTE}\s*[=:]\s*{_QUOTE}basic\s+(?=\S*(?-i:[A-Z0-9=]))"
BEARER = re.compile(rf"(?i)(\bbearer\s+(?=[\w.~+/=-]{{12}})|{_BASIC})[\w.~+/=-]{{4,}}")
"""Of a basic authorization also a short one: in base64 hardly any is of small letters alone, as words are."""

BLOCK = re.compile(
    r"(-----BEGIN [A-Z ]*PRIVATE KEY-----)(?:.*?(?=-----END [A-Z ]*PRIVATE KEY-----)|[\w+/=\s\\]*)", re.DOTALL
)
SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|sk-[A-Za-z0-9_-]{16,}|AKIA[0-9A-Z]{16}"
    r"|xox[abps]-[A-Za-z0-9-]{10,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,}|glpat-[\w-]{16,}|npm_[A-Za-z0-9]{20,}"
    r"|pypi-[\w-]{16,}|[sr]k_live_[A-Za-z0-9]{16,}|AIza[\w-]{30,}|dop_v1_[a-f0-9]{32,}|SG\.[\w-]{16,}\.[\w-]{16,})"
    r"|(?<=hooks\.slack\.com/services/)[\w/-]{16,}|(?<=discord\.com/api/webhooks/)[\w/-]{16,}"
)
"""Tokens that are known by their beginning, and addresses that are one."""

IN_URL = re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)")
