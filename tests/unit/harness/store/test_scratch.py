"""What a killed selftest leaves is removed by the next one, and nothing that is in use or somebody else's."""

from __future__ import annotations

import tempfile

from harness.store.folder import scratch


def test_the_folder_of_a_killed_selftest_is_removed_and_that_of_a_running_one_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed, strangers = tmp_path / "nsa-harness-selftest-killed", tmp_path / "nsa-harness-selftest-notes"
    for folder in (killed, strangers):
        folder.mkdir()
        (folder / "kept").write_text("")
    (killed / "lock").write_text("")
    with scratch("nsa-harness-selftest-") as running:
        assert not killed.exists()
        with scratch("nsa-harness-selftest-"):
            assert running.is_dir()

    assert list(tmp_path.iterdir()) == [strangers]
