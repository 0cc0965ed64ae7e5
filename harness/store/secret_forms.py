"""What a secret looks like in a text: by its name, by the option before it, or by its own form.

Compiling these takes as long as importing a command, and nearly no text needs them: :mod:`harness.store.redact` loads
them when a hint was found.
"""

from __future__ import annotations

import re

from harness.store.redact import HIDDEN

ASSIGNMENT = re.compile(r"(?:^|(?<==))([A-Z][A-Z0-9_]*)=(.+)", re.DOTALL)
_IN_VALUE = r"""[^\s'"`,;&\\]"""
_VALUE = rf"(?!{HIDDEN}(?!{_IN_VALUE})){_IN_VALUE}{{6,}}"
"""Ends where a quotation or an escape does, so that JSON stays JSON; what is hidden already is left as it is."""

_QUOTE = r"""\\?["']?"""
"""Also one that is escaped, as in JSON within JSON."""

ASSIGNED = re.compile(
    r"\b([A-Z][A-Z0-9_]*(?:TOKEN|KEY|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|_(?:PASS|PWD)(?![A-Z]))[A-Z0-9_]*)"
    rf"""(\s*[=:]\s*['"]?){_VALUE}"""
)
"""``HF_TOKEN=...`` in a log, a command or a message."""

_WORD = (
    r"(?:api[_-]?key|access[_-]?key|account[_-]?key|private[_-]?key|(?:client[_-]?)?secret(?:[_-]?(?:access[_-]?)?key)?"
    r"|passw(?:or)?d|passphrase|(?:[a-z]+[_-])?token)"
)
_DIRECTORY = r"(?:[/~.$]|[a-z]:\\|[^\s'\"]*\()"
"""What stands behind a ``pwd`` that is where a program works, or the call that asks for it."""

LABELLED = re.compile(
    rf"""(?i)(?<![\w])((?:[a-z0-9]+[_-]){{0,4}}(?:{_WORD}|pwd(?!{_QUOTE}\s*[=:]\s*{_QUOTE}{_DIRECTORY})){_QUOTE}"""
    rf"""\s*[=:]\s*{_QUOTE})(?!\d+(?:\.\d+)?\b){_VALUE}"""
)
"""``api_key=...``, ``"db_password": "..."``; a bare number behind such a word is a count."""

OPTION = re.compile(rf"""(?i)(--(?:[a-z]+-)*(?:{_WORD}|tok)["']?(?:=|,?\s+)["']?)(?!-)(?!\d+(?:\.\d+)?\b){_VALUE}""")
"""``--token ...`` in a command line, also as Python shows a list of arguments."""

IS_OPTION = re.compile(rf"(?i)--(?:[a-z]+-)*(?:{_WORD}|tok)")
LOGIN = re.compile(
    rf"""((?:(?<!\w)-u|--user(?:name)?)["']?(?:=|,?\s+)["']?[^\s'",]+["']?,?\s+["']?-p["']?,?\s+["']?){_VALUE}"""
)
"""``-u NAME -p VALUE``; without a name before it ``-p`` is as often a port or a path."""

MYSQL = re.compile(
    r"""(\b(?:mysql(?:dump|admin|import|show)?|mariadb(?:-dump|-admin)?)"""
    rf"""(?:\s+(?:-[a-zA-Z]\s?[^\s-]\S*|--[\w-]+(?:=\S+)?))*?\s+-p){_VALUE}"""
)
"""``mysql -u NAME -pVALUE``: behind these programs' names, with nothing but options between."""

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
