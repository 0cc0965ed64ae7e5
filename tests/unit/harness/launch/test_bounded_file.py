from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.launch.supervisor import DROPPED, BoundedFile

MARK = re.compile(rb"\A" + re.escape(DROPPED).replace(re.escape("{}"), r"(\d+)").encode())


def kept(folder: Path) -> tuple[bytes, int, bytes]:
    """Head, dropped bytes, tail."""
    head = (folder / "head").read_bytes()
    tail = (folder / "tail").read_bytes() if (folder / "tail").exists() else b""
    mark = MARK.match(tail)
    return (head, int(mark[1]), tail[mark.end() :]) if mark else (head, 0, tail)


@settings(deadline=None)  # a disk may be slow
@given(chunks=st.lists(st.binary(min_size=1, max_size=400), max_size=20), bound=st.integers(130, 900))
def test_head_dropped_and_tail_account_for_every_byte(chunks: list[bytes], bound: int):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = BoundedFile(head=str(folder / "head"), tail=str(folder / "tail"), bound=bound)
        for chunk in chunks:
            file.feed(chunk)
            file.flush()
        file.close()
        head, dropped, tail = kept(folder)
        whole = b"".join(chunks)

        assert whole.startswith(head)
        assert whole.endswith(tail)
        assert len(head) + dropped + len(tail) == len(whole)
        assert len(head) == min(len(whole), bound // 2)
        assert sum(path.stat().st_size for path in folder.iterdir()) <= bound
        if len(whole) <= bound - 65:
            assert head + tail == whole


def test_a_small_output_has_no_tail_file_and_an_old_one_is_removed(tmp_path: Path):
    (tmp_path / "tail").write_text("of an earlier trial")
    file = BoundedFile(head=str(tmp_path / "head"), tail=str(tmp_path / "tail"), bound=1000)
    file.feed(b"hello")
    file.flush()
    file.close()

    assert [path.name for path in tmp_path.iterdir()] == ["head"]
    assert (tmp_path / "head").read_bytes() == b"hello"


def test_a_full_disk_is_said_and_what_fits_the_tail_is_kept(tmp_path: Path):
    file = BoundedFile(head="/dev/full", tail=str(tmp_path / "tail"), bound=1000)
    file.feed(b"first ")
    file.feed(b"second")
    file.flush()
    file.close()

    assert file.error is not None
    assert "No space left" in file.error
    assert (tmp_path / "tail").read_bytes() == b"first second"


def test_a_tail_that_cannot_be_written_whole_leaves_the_last_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = BoundedFile(head=str(tmp_path / "head"), tail=str(tmp_path / "tail"), bound=400)
    file.feed(b"x" * 200 + b"old")
    file.flush()
    monkeypatch.setattr(file, "_write", lambda fd, data: 0)
    file.feed(b"new")
    file.flush()
    file.close()

    assert (tmp_path / "tail").read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["head", "tail"]
