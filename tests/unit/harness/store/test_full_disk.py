"""A full disk is named: what could not be written, on which file system, and what goes on where."""

from __future__ import annotations

import errno
import os

import pytest

from harness.cli.exit_codes import tell
from harness.core.errors import FullDiskError
from harness.core.invocation import Invocation
from harness.store.files import naming_full_disk


def test_a_write_without_a_name_is_told_with_its_folder_and_file_system(tmp_path):
    with pytest.raises(FullDiskError) as caught, naming_full_disk(tmp_path / "trial", safe="all before"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    place = tmp_path
    while not place.is_mount():
        place = place.parent
    assert str(caught.value).startswith(f"cannot write {tmp_path / 'trial'}: No space left on device")
    assert f"free in the file system at {place}). Safe: all before." in str(caught.value)


def test_another_error_stays_what_it_is(tmp_path):
    with pytest.raises(OSError, match="Input/output"), naming_full_disk(tmp_path, safe="all before"):
        raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("error", [FullDiskError("full"), OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_what_goes_on_looks_where_the_run_lies(error, capsys):
    tell(error, invocation=Invocation(verb=("bisect",), options=(("--runs", "/mnt/my runs"),)))
    assert "a search goes on with --resume --runs '/mnt/my runs'" in capsys.readouterr().err
    tell(error, invocation=Invocation(verb=("bisect",)))
    assert "a search goes on with --resume." in capsys.readouterr().err


@pytest.mark.parametrize("invocation", [None, Invocation(verb=("run",), command=("python", "train.py"))])
def test_what_is_no_search_is_not_said_to_go_on(invocation, capsys):
    tell(KeyboardInterrupt(), invocation=invocation)
    said = capsys.readouterr().err
    assert "What was written before is safe." in said
    assert "--resume" not in said
