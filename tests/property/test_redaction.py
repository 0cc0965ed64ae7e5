"""Of drawn secrets: what a name, an option or a header says is a secret is hidden whole, and nothing else is."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from harness.store.redact import HIDDEN, redact_text

CERTAIN = st.sampled_from(["password", "db_password", "Passwd", "passphrase", "secret", "client_secret", "Password"])
LABELS = CERTAIN | st.sampled_from(["token", "hf_token", "api_key", "access-key", "private_key"])
LETTERS = st.characters(codec="ascii", categories=["L", "N"]) | st.sampled_from("!@#$%^&*()+./:<>?~-_=äß")
WORDS = st.text(LETTERS, min_size=1, max_size=9)
PASSPHRASES = st.lists(WORDS, min_size=1, max_size=4).map(" ".join).filter(lambda text: len(text) >= 6)
"""Several words, as people are told to choose one."""

QUOTED = st.text(LETTERS | st.sampled_from(" ,;'\"\\`"), min_size=6, max_size=30)
COOKIES = st.lists(
    st.tuples(st.text("abcdefghijkl_-", min_size=1, max_size=9), st.text(LETTERS, min_size=1, max_size=20)),
    min_size=1,
    max_size=4,
).map(lambda pairs: "; ".join(f"{name}={value}" for name, value in pairs))
NUMBER = re.compile(r"\d+(\.\d+)?\b")
"""Behind a word that may name no secret it is a count."""

NO_SECRET = re.compile(r"(?i)(yes|no|none|null|true|false|str|bytes|int|bool)\b([),;\]]|$)")
LINES = st.sampled_from(["", "step 1: loss 2.5", "it's the second of 12 layers", 'File "train.py", line 3, in main'])


def hidden(text: str) -> str:
    """``text`` without secrets, in which a second time hides nothing more."""
    once = redact_text(text)
    assert redact_text(once) == once
    assert redact_text(once, word="(hidden)") == once
    return once


@given(label=CERTAIN, between=st.sampled_from([": ", ":", " = ", " : "]), secret=PASSPHRASES, line=LINES)
def test_what_is_certainly_a_secret_is_hidden_to_the_end_of_its_line(label, between, secret, line):
    assume(not NO_SECRET.match(secret))
    text = f"{line}\n{label}{between}{{}}\n{line}"
    assert hidden(text.format(secret)) == text.format(HIDDEN)


@given(label=LABELS, between=st.sampled_from([": ", "=", " = "]), secret=QUOTED, line=LINES)
@pytest.mark.parametrize(
    "quoted", [json.dumps, repr, lambda secret: f"'{secret}'" if "'" not in secret else repr(secret)]
)
def test_what_is_quoted_is_hidden_whole(quoted, label, between, secret, line):
    assume(not NUMBER.match(secret))
    assume("\\" not in secret or quoted in (json.dumps, repr))
    value = quoted(secret)
    text = f"{line}\n{label}{between}{value[0]}{{}}{value[-1]} {line}"
    assert hidden(text.format(value[1:-1])) == text.format(HIDDEN)


@given(label=LABELS, secret=QUOTED)
def test_what_a_shell_quotes_is_hidden_whole(label, secret):
    assume(not NUMBER.match(secret) and not secret.startswith(("-", "'")))
    assume(shlex.quote(secret) != secret)
    for begin in (f"train.py --{label.replace('_', '-')} ", f"env {label.upper()}="):
        rest = hidden(f"{begin}{shlex.quote(secret)} --layers 5")
        assert rest.startswith(begin)
        assert rest.endswith(" --layers 5")
        assert rest[len(begin) : -len(" --layers 5")].strip("'\"") == HIDDEN


@given(label=CERTAIN, secret=PASSPHRASES | QUOTED, number=st.integers())
def test_json_stays_json_and_has_no_secret(label, secret, number):
    assume(not NO_SECRET.match(secret))
    message = f"it's wrong\n{label}: {secret}"
    assume(redact_text(message) == f"it's wrong\n{label}: {HIDDEN}")
    data = {label: secret, "message": message, "n": [number], f"old_{label}": number, "last": "a word"}
    text = hidden(json.dumps(data))
    assert json.loads(text) == {**data, label: HIDDEN, "message": f"it's wrong\n{label}: {HIDDEN}"}


@given(cookies=COOKIES, line=LINES)
def test_cookies_are_hidden_whole(cookies, line):
    for head in ("Cookie: ", "Set-Cookie: ", "cookie:", "set-cookie: "):
        assert hidden(f"{line}\n{head}{cookies}\n{line}") == f"{line}\n{head}{HIDDEN}\n{line}"
    headers = {"Cookie": cookies, "Accept": "*/*"}
    assert json.loads(hidden(json.dumps(headers))) == {**headers, "Cookie": HIDDEN}
    assert hidden(f"curl -H 'Cookie: {cookies}' https://host") == f"curl -H 'Cookie: {HIDDEN}' https://host"


@given(
    label=LABELS,
    text=st.sampled_from(
        ["the {} loop of 12 layers", "one {} after another", "{}s: 512, 1024", "no {} was given", "{}ised = words here"]
    ),
)
def test_prose_that_speaks_of_one_stays_as_it_is(label, text):
    assert hidden(text.format(label)) == text.format(label)
