"""The doctor says what it saw and what to do, and changes nothing."""

from __future__ import annotations

import json
import os

import pytest
from click.testing import CliRunner

import harness.checkup as checkup
from harness.cli.main import main


def findings(*argv: str) -> tuple[int, dict[str, dict[str, str]]]:
    done = CliRunner().invoke(main, ["doctor", "--json", *argv], prog_name="nsa-harness")
    return done.exit_code, {row["name"]: row for row in json.loads(done.stdout)}


def test_a_fit_machine_is_called_fit(tmp_path):
    code, rows = findings("--runs", str(tmp_path))

    assert code == 0
    assert rows["packages"]["level"] == "ok", rows["packages"]
    assert rows["torch"]["level"] == "ok"
    assert rows["py-spy"]["level"] == "ok", rows["py-spy"]
    assert list(tmp_path.iterdir()) == []


def test_a_missing_stack_dumper_is_a_warning_with_a_way_out(tmp_path, monkeypatch):
    monkeypatch.setattr(checkup, "find_tool", lambda name: None)

    code, rows = findings("--runs", str(tmp_path))

    assert code == 0
    assert rows["py-spy"]["level"] == "warn"
    assert "faulthandler" in rows["py-spy"]["seen"]
    assert "pip install py-spy" in rows["py-spy"]["next"]
    assert "not installed" in rows["pystack"]["seen"]  # its module without its script gives no stacks


def test_refused_ptrace_is_a_warning_that_names_the_scope(tmp_path, monkeypatch):
    refusing = tmp_path / "py-spy"
    refusing.write_text("#!/bin/sh\necho 'Permission Denied: ptrace' >&2\nexit 1\n")
    refusing.chmod(0o755)
    scope = tmp_path / "scope"
    scope.write_text("2\n")
    monkeypatch.setattr(checkup, "find_tool", lambda name: str(refusing))
    monkeypatch.setattr(checkup, "YAMA", scope)

    _, rows = findings("--runs", str(tmp_path))

    assert rows["py-spy"]["level"] == "warn"
    assert "ptrace_scope: 2" in rows["py-spy"]["seen"]
    assert "Permission Denied" in rows["py-spy"]["seen"]
    assert "SYS_PTRACE" in rows["py-spy"]["next"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_run_directory_fails(tmp_path):
    tmp_path.chmod(0o500)

    code, rows = findings("--runs", str(tmp_path / "runs"))

    assert code == 6
    assert rows["runs"]["level"] == "fail"
