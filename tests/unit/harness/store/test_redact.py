"""Tests of what is hidden in a text: a value in every spelling, and what a label says is a secret."""

from __future__ import annotations

import base64
import json
import shlex
from urllib.parse import quote, quote_plus

import pytest

from harness.store.redact import redact_text, secrets

VALUES = ("plain-secret-1", "abc/def+ghi=jkl==", 'q"uo\\te', 'it\'s "b\\ad" é', "a-first-line-é\na-second-line")
SPELLINGS = {
    "as it is": str,
    "by repr": repr,
    "by ascii": ascii,
    "by repr in other quotation marks": lambda value: repr(f"\"'{value}"),
    "by repr of its repr": lambda value: repr(repr(value)),
    "in JSON": json.dumps,
    "in JSON of letters": lambda value: json.dumps(value, ensure_ascii=False),
    "in JSON within JSON": lambda value: json.dumps(json.dumps(value)),
    "by repr in JSON": lambda value: json.dumps(repr(value)),
    "in a path": quote,
    "in a part of a path": lambda value: quote(value, safe=""),
    "in a query": quote_plus,
    "in base64": lambda value: base64.b64encode(value.encode()).decode(),
    "in base64 of URLs": lambda value: base64.urlsafe_b64encode(value.encode()).decode(),
    "in a shell": shlex.quote,
}
LABELLED = (
    *('{"client_secret": "VALUE"}', "client_secret=VALUE", "clientSecret: 'VALUE'", r"{\"client_secret\": \"VALUE\"}"),
    *("aws_secret_access_key = VALUE", '"aws_secret_access_key": "VALUE"', "--aws-secret-access-key VALUE"),
    *('{"pwd": "VALUE"}', "pwd=VALUE", "db_pwd: VALUE", "MYSQL_PWD=VALUE", "db_password=VALUE"),
    *("Authorization: Basic VALUE", '{"Authorization": "Basic VALUE"}', "{'authorization': 'Basic VALUE'}"),
    *("mysql -u root -pVALUE shop", "mysqldump --host=db -pVALUE", "mariadb -h db -u root -pVALUE"),
)
WHOLE = (
    ("password: VALUE horse battery\nstep 1", "password: VALUE\nstep 1"),
    ("passphrase: VALUE horse", "passphrase: VALUE"),
    ("it's the password: VALUE, it's \"so\"", "it's the password: VALUE"),
    ('token = "VALUE words"', 'token = "VALUE"'),
    ("MY_KEY='VALUE words' python train.py", "MY_KEY='VALUE' python train.py"),
    ("MY_PASSWORD=VALUE python train.py", "MY_PASSWORD=VALUE python train.py"),
    ("password: str = 'VALUE words'", "password: str = 'VALUE'"),
    ("train.py --password 'VALUE words' --layers 5", "train.py --password 'VALUE' --layers 5"),
    ("train.py --password=VALUE --layers 5", "train.py --password=VALUE --layers 5"),
    ("user=bob password=VALUE horse level=3", "user=bob password=VALUE level=3"),
    ("https://h/?password=VALUE&x=1", "https://h/?password=VALUE&x=1"),
    ("docker login -u me -p 'VALUE words' host", "docker login -u me -p 'VALUE' host"),
    ('password: "VALUE horse, cut off', "password: VALUE"),
    (r'{"log": "a\npassword: VALUE horse\nb", "x": 1}', r'{"log": "a\npassword: VALUE\nb", "x": 1}'),
    ("{'message': 'password: VALUE horse', 'x': 1}", "{'message': 'password: VALUE', 'x': 1}"),
    ("| why | password: VALUE horse | x |", "| why | password: VALUE | x |"),
    ("Cookie: sessionid=VALUE; csrftoken=VALUE\nAccept: */*", "Cookie: VALUE\nAccept: */*"),
    ("Set-Cookie: sessionid=VALUE; Path=/; HttpOnly", "Set-Cookie: VALUE"),
    ("[(b'cookie', b'sessionid=VALUE; x=y')]", "[(b'cookie', b'VALUE')]"),
    ("curl --cookie 'sessionid=VALUE; x=y' https://host", "curl --cookie 'VALUE' https://host"),
    ("token: Bearer VALUE-and-more", "token: VALUE VALUE"),
)
"""What is said, and what remains of it: quoted values, lines and cookies are hidden whole, and what follows is not."""

INNOCENT = (
    *("(using password: YES) at line 5", "def f(password: str, n: int) -> None:", "the token loop of 12 layers"),
    *('{"password": null, "x": 1}', '{"secret": 12345678, "x": {"a": 1}}', '{"secret": [12345678, 1]}'),
    *("Cookie: chocolate chips", "Enter password:\nstep 1: loss 2.5", "tokens: 5120000", "password_file: words here"),
    *("pwd: /workspace/project", "PWD=/workspace/project", "OLDPWD=/workspace", "pwd = os.getcwd()", "pwd=~/project"),
    *("Authorization: basic auth failed", "a basic attention", "mysql went away -plainly", "mysql -p -h db-server"),
    *("cp -parents x", "ssh -p 2222222 host", "secretary: somebody", "cwd: workspace"),
)


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_value_is_hidden_however_a_text_spells_it(spelling, value):
    spelled = SPELLINGS[spelling](value)

    rest = redact_text(f"before {spelled} after", values=(value,)).replace("<hidden>", "")

    assert rest.startswith("before ")
    assert rest.endswith(" after")
    assert not any(character.isalnum() for character in rest[len("before ") : -len(" after")])


def test_each_line_of_a_value_is_hidden():
    assert redact_text("| a-second-line |", values=VALUES) == "| <hidden> |"


@pytest.mark.parametrize("text", LABELLED)
def test_what_a_label_says_is_a_secret_is_hidden(text):
    hidden = redact_text(text.replace("VALUE", "dTpwdw"))

    assert hidden == text.replace("VALUE", "<hidden>")


@pytest.mark.parametrize(("text", "rest"), WHOLE)
def test_a_secret_of_several_words_is_hidden_whole(text, rest):
    hidden = redact_text(text.replace("VALUE", "dTpwdw"))

    assert hidden == rest.replace("VALUE", "<hidden>")
    assert redact_text(hidden, word="(hidden)") == hidden


def test_a_line_of_which_the_first_word_alone_is_hidden_is_hidden_whole():
    assert redact_text("password: <hidden> horse battery") == "password: <hidden>"


@pytest.mark.parametrize("text", INNOCENT)
def test_innocent_text_is_left_alone(text):
    assert redact_text(text) == text


def test_what_is_hidden_already_is_not_hidden_again_in_another_word():
    assert redact_text("db_password = <hidden>", word="(hidden)") == "db_password = <hidden>"
    assert redact_text("password=<hidden>-and-more", word="(hidden)") == "password=(hidden)"


def test_a_variable_named_like_a_short_password_holds_a_secret():
    assert secrets([("MYSQL_PWD", "letmein-pwd"), ("PWD", "a-folder")]) == ("letmein-pwd",)
