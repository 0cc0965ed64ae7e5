"""The line that moves while one program runs."""

from __future__ import annotations

from harness.cli.console import progress_of


def test_a_silence_names_the_limit_that_counts_where_a_stall_limit_does_not_count_yet():
    facts = {"elapsed_s": 34.0, "silence_s": 33.7, "steps_done": 0, "steps_wanted": 0}
    facts |= {"phase": "output", "step": None, "place": "in output"}

    assert progress_of(facts) == "34 s  in output, silent for 34 s"
    assert progress_of(facts | {"startup_s": None}) == progress_of(facts)
    waits = progress_of(facts | {"startup_s": 120.0})
    assert waits == "34 s  in output, silent for 34 s, no step seen: --startup (120 s) counts"
    assert progress_of(facts | {"startup_s": 120.0, "silence_s": 0.5}) == "34 s  in output"


def test_it_says_where_the_verdict_would_say_it_was():
    facts = {"elapsed_s": 34.0, "silence_s": 0.5, "steps_done": 1, "steps_wanted": 0, "phase": "backward", "step": 0}
    assert progress_of(facts | {"place": "after step 0"}) == "34 s  1 step, after step 0"
    assert progress_of(facts | {"phase": None, "place": "before its first mark"}) == "34 s  1 step, starting"
