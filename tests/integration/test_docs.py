"""The commands of the tutorials and the cookbook, typed as they stand, show what the page says that they show."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [*sorted((DOCS / "tutorials").glob("*.md")), DOCS / "cookbook.md"]
PIECE = re.compile(
    r"<!-- not run: (?P<reason>.+?) -->|<!-- shows: (?P<shows>.+?) -->"
    r'|^```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<body>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)
MARK = "@@ block"


def blocks_of(page: Path) -> tuple[dict[str, str], list[tuple[str, list[str]]]]:
    """The files that a page gives, and its commands, each with what it shows; a command without either is an error."""
    files: dict[str, str] = {}
    commands: list[tuple[str, list[str]]] = []
    reason = ""
    for piece in PIECE.finditer(page.read_text()):
        if piece["shows"]:
            commands[-1][1].append(piece["shows"])
        elif piece["title"]:
            files[piece["title"]] = piece["body"]
        elif piece["language"] == "bash" and not reason:
            commands.append((piece["body"], []))
        reason = piece["reason"] or ""
    return files, commands


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_page_has_something_to_show(page):
    files, commands = blocks_of(page)

    assert files
    assert commands
    assert [command for command, shows in commands if not shows] == []


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_page_shows_what_the_page_says(page, tmp_path):
    files, commands = blocks_of(page)
    for name, body in files.items():
        (tmp_path / name).write_text(body)
    script = "".join(f"echo '{MARK}'\n{command}\n" for command, _ in commands)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "NSA_"))}
    environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"
    spoken = tmp_path / "said.txt"
    with spoken.open("w") as out:
        shell = subprocess.Popen(
            ["bash", "-c", script],
            cwd=tmp_path, env=environ, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            shell.wait(timeout=500)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)  # the program that is stuck, beside the shell that started it
    said = spoken.read_text().split(MARK)[1:]

    assert len(said) == len(commands)
    for (command, shows), text in zip(commands, said, strict=True):
        for shown in shows:
            assert shown in " ".join(text.split()) or shown in text, f"{command}\n{text}"
