"""Which commands of a shell's script are asked for their status."""

from __future__ import annotations

import pytest

from harness.observe.asked import THROWN_AWAY, asks_for, how_asked, ignored_by_make


@pytest.mark.parametrize(
    ("script", "word"),
    [
        ("if python p.py 2>/dev/null; then X=1; else Y=; fi\npython q.py", "if"),
        ("if [ -d x ] && timeout 3 python p.py >log 2>&1; then :; fi", "if"),
        ("# it's a comment\nif ! python p.py; then\n echo no\nfi", "!"),
        ("while ! python p.py; do sleep 1; done", "!"),
        ("python p.py 2>/dev/null || echo no", "||"),
        ("python p.py --k \\\n  3 || true", "||"),
        ("echo 'a\nb'\npython p.py || true", "||"),
        ("python p.py | tee log", ""),
        ("python p.py | tee log || true", ""),
        ("if python p.py | grep ok; then :; fi", ""),
        ("python p.py; echo done", ""),
        ("python p.py && python q.py; echo done", ""),
        ("if true; then\npython p.py\nfi", ""),
        ("python p.py || true; python p.py; echo", ""),
        ("python other.py || true", ""),
        ("echo 'never closed\npython p.py || true", ""),
    ],
)
def test_a_shell_asks_for_the_status_of_a_command(script, word):
    assert asks_for(script, ["p.py"]) == word


@pytest.mark.parametrize("name", ["run.sh", "nowhere.sh"])
def test_a_failure_was_asked_for_only_where_another_program_followed(name, tmp_path):
    (tmp_path / "run.sh").write_text("python p.py || true\npython q.py\n")
    begun = {"shell": ["bash", "-e", name], "folder": str(tmp_path), "words": ["p.py"]}
    assert how_asked(begun) == ""
    assert bool(how_asked({**begun, "followed": True})) is (name == "run.sh")
    assert how_asked({"words": ["p.py"], "unheard": True, "followed": True}) == THROWN_AWAY


def test_the_text_of_a_shell_is_its_script():
    begun = {"shell": ["bash", "-c", "python -c 1/0 || true; python q.py"], "words": ["-c", "1/0"], "followed": True}
    assert how_asked(begun) == "its shell asks for its status (`||`)"


def test_make_says_what_it_ignores():
    assert ignored_by_make("make: [Makefile:2: train] Error 1 (ignored)\n")
    assert not ignored_by_make("make: *** [Makefile:2: train] Error 1\n")
