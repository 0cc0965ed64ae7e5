"""What the worker and its supervisor wrote becomes evidence, also when it makes no sense."""

import json

import pytest

from harness.observe.answers import differences, read_answers
from harness.observe.logs import TAIL_BYTES, log_tail, log_tails
from harness.store import layout


def test_nothing_written_is_nothing_seen(tmp_path):
    answers = read_answers(tmp_path, requested={"steps": 3})
    assert (answers.config_seen, answers.kernels, answers.result, answers.failures) == (False, (), None, ())
    assert log_tails(tmp_path) == ()


def test_contradicted_settings_are_named_by_path():
    requested = {"model": {"n_layers": 5, "dim": 128}, "train": {"steps": 3, "device": "cuda"}}
    ran = {"model": {"n_layers": 4, "dim": 128, "extra": 1}, "train": {"steps": 3}}
    assert differences(requested, ran) == (
        "model.n_layers: requested 5, ran 4",
        "train.device: requested 'cuda', not run",
    )


def test_a_tuple_and_its_json_are_the_same():
    assert differences({"shape": (1, 2), "lr": 1}, {"shape": [1, 2], "lr": 1.0}) == ()


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (layout.effective, "{torn"),
        (layout.kernels, '[{"op": "x"}]'),
        (layout.kernels, '{"op": "x"}'),
        (layout.result, '{"status": "finished", "steps_done": 1, "what": 2}'),
        (layout.result, "[1]"),
    ],
)
def test_file_that_makes_no_sense_is_a_failure_with_its_name(tmp_path, path, text):
    path(tmp_path).write_text(text)
    answers = read_answers(tmp_path, requested={})
    assert [failure.source for failure in answers.failures] == [path(tmp_path).name]
    assert "cannot be read" in answers.failures[0].reason
    assert (answers.kernels, answers.result) == ((), None)


def test_result_of_a_worker_that_raised_is_kept_whole(tmp_path):
    said = {
        "status": "raised",
        "steps_done": 2,
        "phase": "backward",
        "exception": "RuntimeError",
        "message": "no",
        "traceback": "Traceback",
    }
    layout.result(tmp_path).write_text(json.dumps(said))
    result = read_answers(tmp_path, requested={}).result
    assert (result.exception, result.phase, result.steps_done) == ("RuntimeError", "backward", 2)


def test_short_output_is_kept_whole(tmp_path):
    layout.output(tmp_path, "stderr").write_text("warning\n")
    (log,) = log_tails(tmp_path)
    assert (log.id, log.stream, log.text, log.size_bytes, log.dropped_bytes) == (
        "log-stderr",
        "stderr",
        "warning\n",
        8,
        0,
    )


def test_output_that_went_on_in_the_tail_is_joined(tmp_path):
    layout.output(tmp_path, "stdout").write_text("one\n")
    layout.output_tail(tmp_path, "stdout").write_text("two\n")
    log = log_tail(tmp_path, "stdout")
    assert (log.text, log.size_bytes) == ("one\ntwo\n", 8)


def test_lost_middle_is_counted_and_never_papered_over(tmp_path):
    layout.output(tmp_path, "stdout").write_text("beginning\n")
    layout.output_tail(tmp_path, "stdout").write_text("[... 90 bytes dropped ...]\nend\n")
    log = log_tail(tmp_path, "stdout")
    assert (log.text, log.size_bytes, log.dropped_bytes) == ("end\n", 104, 90)


def test_what_came_once_we_had_begun_to_end_the_trial_is_told_apart(tmp_path):
    layout.output(tmp_path, "stdout").write_text("one\n")
    sizes = {log.stream: log.size_bytes for log in log_tails(tmp_path)}
    layout.output(tmp_path, "stdout").write_text("one\ntwo\n")
    (log,) = log_tails(tmp_path, sizes)
    assert (log.before_end, log.text) == ("one\n", "one\ntwo\n")
    (not_ended_by_us,) = log_tails(tmp_path)
    assert not_ended_by_us.before_end == "one\ntwo\n"


def test_output_is_read_without_its_colours(tmp_path):
    coloured = 'File \x1b[35m"p.py"\x1b[0m, line \x1b[35m3\x1b[0m\n'
    layout.output(tmp_path, "stderr").write_text(coloured)
    sizes = {log.stream: log.size_bytes for log in log_tails(tmp_path)}
    layout.output(tmp_path, "stderr").write_text(f"{coloured}\x1b[1;31mlate\x1b[0m\n")
    (log,) = log_tails(tmp_path, sizes)
    assert (log.text, log.before_end) == ('File "p.py", line 3\nlate\n', 'File "p.py", line 3\n')


def test_only_the_end_of_long_output_is_evidence_and_broken_text_is_no_error(tmp_path):
    layout.output(tmp_path, "stdout").write_bytes(b"\xff" * 100_000)
    log = log_tail(tmp_path, "stdout")
    assert len(log.text) == TAIL_BYTES
    assert log.size_bytes == 100_000
