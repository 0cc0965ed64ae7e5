"""Every code block of the pages: typed as it stands it shows what the page says, or it says why it is not run.

In Markdown, where a reader does not see it:

``<!-- shows: TEXT -->``            below a block of bash or Python: what it must print
``<!-- not run: REASON -->``        above a block that cannot be run where the pages are tested
``<!-- held by: tests/x.py -->``    above a block that another test reads and runs
``<!-- file: NAME``, lines, ``-->`` a file that the commands need, beside those that blocks with a title are
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "nsa" / "README.md"]
PAGES += [*sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("docs/tutorials/*.md"))]
PIECE = re.compile(
    r"<!-- not run: (?P<reason>.+?) -->|<!-- held by: (?P<test>.+?) -->|<!-- shows: (?P<shows>.+?) -->"
    r"|<!-- file: (?P<hidden>\S+)\n(?P<content>.+?)-->"
    r'|^```(?P<language>\w*)(?: title="(?P<title>[^"]+)")?\n(?P<body>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)
RUN = {"bash": ".", "python": "python"}
"""Languages of blocks that are run, and how; those of bash in one shell."""

OUTPUT = {"text"}
"""Of blocks that show what a program says."""

MARK = "@@ block"


@dataclass
class Block:
    """A code block of a page, with what its marks say."""

    name: str
    language: str
    body: str
    reason: str = ""
    test: str = ""
    shows: list[str] = field(default_factory=list)

    @property
    def is_run(self) -> bool:
        return self.language in RUN and not self.reason and not self.test


def read(page: Path) -> tuple[dict[str, str], list[Block]]:
    """The files that a page gives, and its other blocks."""
    text = page.read_text()
    files: dict[str, str] = {}
    blocks: list[Block] = []
    reason = test = ""
    for piece in PIECE.finditer(text):
        line = text.count("\n", 0, piece.start()) + 1
        if piece["shows"]:
            blocks[-1].shows.append(piece["shows"])
        elif piece["hidden"]:
            files[piece["hidden"]] = piece["content"]
        elif piece["title"]:
            files[piece["title"]] = piece["body"]
        elif piece["body"] is not None:
            name = f"{page.relative_to(ROOT)}:{line}"
            blocks.append(Block(name, piece["language"], piece["body"], reason=reason, test=test))
        reason, test = piece["reason"] or "", piece["test"] or ""
    return files, blocks


BLOCKS = [block for page in PAGES for block in read(page)[1]]
RUNNABLE = [page for page in PAGES if any(block.is_run for block in read(page)[1])]
SLOW = {"any-program", "cookbook", "hangs-sometimes", "python", "stuck-now", "which-setting"}
"""Pages whose commands take ten seconds and more."""


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_every_block_is_run_or_says_why_not(block):
    if block.test:
        assert (ROOT / block.test).is_file()
    elif block.reason:
        pytest.skip(f"not run: {block.reason}")
    elif block.language not in OUTPUT:
        assert block.language in RUN, f"nobody runs {block.language!r}: give it a title, or say why not"
        assert block.shows, "it says nothing that it must show"


def test_nothing_is_indented_into_code_which_no_test_would_see():
    for page in PAGES:
        text = re.sub(r"(?ms)^```.*?^```$|<!--.*?-->", "", page.read_text())
        assert re.findall(r"(?m)^\n {4}\S.*", text) == [], page


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=str(page.relative_to(ROOT)), marks=[pytest.mark.long] * (page.stem in SLOW))
        for page in RUNNABLE
    ],
)
def test_every_command_of_a_page_shows_what_the_page_says(page, tmp_path):
    files, blocks = read(page)
    for name, body in files.items():
        (tmp_path / name).write_text(body)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "matrices").symlink_to(ROOT / "matrices")
    asked = [block for block in blocks if block.is_run]
    script = ""
    for number, block in enumerate(asked):
        (tmp_path / f".block{number}").write_text(block.body)
        script += f"echo '{MARK}'\n{RUN[block.language]} ./.block{number}\n"
    text = said_by(script, tmp_path).split(MARK)[1:]

    assert len(text) == len(asked)
    for block, said in zip(asked, text, strict=True):
        for shown in block.shows:
            assert shown in " ".join(said.split()) or shown in said, f"{block.name}\n{block.body}\n{said}"


def said_by(script: str, folder: Path) -> str:
    """What ``script`` prints in ``folder``; nothing that it started is left."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "NSA_"))}
    environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"
    spoken = folder / ".said"
    with spoken.open("w") as out:
        shell = subprocess.Popen(
            ["bash", "-c", script],
            cwd=folder, env=environ, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            shell.wait(timeout=500)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)  # the program that is stuck, beside the shell that started it
    return spoken.read_text()


NOTEBOOK = ROOT / "examples" / "notebook.ipynb"
EXECUTE = """
import sys, nbclient, nbformat
book = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(book, timeout=300, kernel_name="python3").execute()
nbformat.write(book, sys.argv[2])
"""


@pytest.mark.long
def test_the_notebook_runs_and_shows_its_answers_as_pages(tmp_path):
    pytest.importorskip("nbclient")
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = [sys.executable, "-c", EXECUTE, str(NOTEBOOK), str(tmp_path / "ran.ipynb")]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]

    cells = json.loads((tmp_path / "ran.ipynb").read_text())["cells"]
    outputs = [output for cell in cells if cell["cell_type"] == "code" for output in cell["outputs"]]
    pages = ["".join(output["data"].get("text/html", "")) for output in outputs if "data" in output]
    assert sum("<iframe" in page for page in pages) == 2
    assert any("depth=4 crashes" in page for page in pages)
