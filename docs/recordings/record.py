"""Records the README's three commands as they run, into animated pictures: a terminal of 92 x 30, in SVG.

    python docs/recordings/record.py            # all three, about three minutes
    python docs/recordings/record.py which      # one of them

Each command runs for real in a pseudoterminal, on a program below that imports nothing of this project. What it writes
goes through a terminal emulator (`pip install pyte`), and the screen is kept whenever it has changed. Waits longer than
0.7 s are shortened to that in the picture; its title bar has the time that really went by. Nothing else is altered.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path

import pyte

COLUMNS, LINES = 92, 30
LONGEST_WAIT_S, STAYS_S, MOST_FRAMES = 0.7, 6.0, 90
CELL_W, CELL_H = 8.0, 17.0
BACKGROUND, PLAIN = "#15181d", "#d5d9e0"
COLOURS = {
    "black": "#5c6370", "red": "#ff6b68", "green": "#7ccf7c", "brown": "#e2b86b", "yellow": "#e2b86b",
    "blue": "#6cb2ff", "magenta": "#d58cf0", "cyan": "#5fd0d0", "white": PLAIN, "brightblack": "#7d8590",
}  # fmt: skip

STUCK = """
import threading, time

cache, index = threading.Lock(), threading.Lock()

def prefetch():
    with index:
        time.sleep(0.5)
        with cache:
            pass

def load_batch():
    with cache:
        time.sleep(0.5)
        with index:
            return 1

threading.Thread(target=prefetch).start()
print("step 0", flush=True)
load_batch()
"""
SOMETIMES = """
import random, threading, time

def reduce_gradients():
    if random.random() < 0.03:
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()

for step in range(25):
    time.sleep(0.01)
    reduce_gradients()
    print("step", step, flush=True)
"""
WHICH = """
import sys, threading, time

flags = set(sys.argv[1:])

def backward():
    if {"--overlap", "--compile"} <= flags:
        threading.Event().wait()

for step in range(20):
    time.sleep(0.01)
    backward()
    print("step", step, flush=True)
"""
FLAGS = "{amp:--amp} {compile:--compile} {fused:--fused} {overlap:--overlap} {zero:--zero}"


@dataclass(frozen=True)
class Scene:
    """A program, the command that is typed, and whether the program runs already when it is."""

    program: str
    typed: str
    is_running: bool = False


SCENES = {
    "stuck": Scene(STUCK, "nsa-harness watch {pid}", is_running=True),
    "sometimes": Scene(SOMETIMES, "nsa-harness run --until-fail -- python train.py"),
    "which": Scene(WHICH, f"nsa-harness minimise -- python train.py {FLAGS}"),
}


Screenful = list[tuple[int, str]]
"""The lines that hold anything: which, and their text in SVG."""


def frames(typed: str, folder: Path) -> list[tuple[float, Screenful]]:
    """What the screen showed from which second on; the first shows the command alone."""
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    stream.feed(f"\x1b[32m$\x1b[0m {typed}\r\n".encode())
    seen = [(0.0, drawn(screen))]
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ.update(TERM="xterm-256color", NSA_HARNESS_RUNS=str(folder / "runs"))
        os.execvp("bash", ["bash", "-c", typed])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    began = time.monotonic()
    while True:
        select.select([terminal], [], [])
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the terminal's other end is closed
            break
        if not data:
            break
        stream.feed(data)
        now = drawn(screen)
        if now != seen[-1][1]:
            seen.append((time.monotonic() - began, now))
    os.waitpid(pid, 0)
    return seen


def drawn(screen: pyte.Screen) -> Screenful:
    """The screen's lines, one span for each run of characters of one look."""
    lines: Screenful = []
    for y in range(LINES):
        spans: list[tuple[str, str]] = []
        for x in range(COLUMNS):
            cell = screen.buffer[y][x]
            fill = COLOURS.get(cell.fg, PLAIN if cell.fg == "default" else f"#{cell.fg}")
            look = f'fill="{fill}"' + ' font-weight="bold"' * cell.bold
            if spans and spans[-1][0] == look:
                spans[-1] = (look, spans[-1][1] + cell.data)
            else:
                spans.append((look, cell.data))
        if any(text.strip() for _, text in spans):
            inner = "".join(f"<tspan {look}>{escape(text)}</tspan>" for look, text in spans if text)
            lines.append((y, inner))
    return lines


def svg(seen: list[tuple[float, Screenful]]) -> str:
    """All frames one over the other; each is visible in its part of the time, and the last one longest."""
    thinned = [seen[0]]
    apart_s = max(0.08, seen[-1][0] / MOST_FRAMES)
    for t_s, lines in seen[1:]:
        if t_s - thinned[-1][0] < apart_s:
            thinned[-1] = (thinned[-1][0], lines)
        else:
            thinned.append((t_s, lines))
    waits = [min(b - a, LONGEST_WAIT_S) for (a, _), (b, _) in pairwise(thinned)] + [STAYS_S]
    total_s, at_s = sum(waits), 0.0
    n_lines = 1 + max(y for _, lines in thinned for y, _ in lines)
    width, height = COLUMNS * CELL_W + 24, n_lines * CELL_H + 50
    rules, groups = [], []
    texts = sorted({text for _, lines in thinned for _, text in lines})
    number_of = {text: number for number, text in enumerate(texts)}
    defined = "".join(f'<text id="t{n}" x="12" xml:space="preserve">{text}</text>' for n, text in enumerate(texts))
    for number, ((real_s, lines), wait_s) in enumerate(zip(thinned, waits, strict=True)):
        first, last = 100 * at_s / total_s, 100 * (at_s + wait_s) / total_s
        is_last = number == len(waits) - 1
        until = "" if is_last else f"{last:.3f}%{{visibility:hidden}}"
        before = "" if number == 0 else "0%{visibility:hidden}"
        rules.append(f"@keyframes f{number}{{{before}{first:.3f}%{{visibility:visible}}{until}}}")
        rules.append(f".f{number}{{animation:f{number} {total_s:.2f}s steps(1,end) infinite}}")
        clock = f'<text x="{width - 12:g}" y="19" text-anchor="end" fill="#7d8590">{real_s:.1f} s</text>'
        shown = "".join(f'<use href="#t{number_of[text]}" y="{44 + y * CELL_H:g}"/>' for y, text in lines)
        groups.append(f'<g class="f f{number}">{clock}{shown}</g>')
        at_s += wait_s
    # Where nothing is animated, the last frame stands still.
    rules.append(".f{visibility:hidden}.f:last-child{visibility:visible}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        'font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace" font-size="13">'
        f"<style>{''.join(rules)}</style><defs>{defined}</defs>"
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>'
        '<circle cx="18" cy="15" r="5" fill="#ff6b68"/><circle cx="36" cy="15" r="5" fill="#e2b86b"/>'
        '<circle cx="54" cy="15" r="5" fill="#7ccf7c"/>'
        f"{''.join(groups)}</svg>\n"
    )


def record(name: str, to: Path) -> None:
    """Run one scene in a folder of its own; the picture goes to ``to``."""
    scene = SCENES[name]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as given:
        folder = Path(given)
        (folder / "train.py").write_text(scene.program.lstrip())
        child = None
        if scene.is_running:
            child = subprocess.Popen([sys.executable, "train.py"], cwd=folder, stdout=subprocess.DEVNULL)
            time.sleep(3)
        typed = scene.typed.replace("{pid}", str(child.pid)) if child else scene.typed
        try:
            picture = svg(frames(typed, folder))
        finally:
            if child:
                child.kill()
                child.wait()
        to.write_text(picture.replace(str(folder), "~").replace(f"{folder.relative_to('/')}/", ""))
    print(f"{to}: {to.stat().st_size / 1000:.0f} kB", file=sys.stderr)


def main() -> None:
    """Record what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="*", choices=[[], *SCENES], help="which; all if none is named")
    for name in parser.parse_args().scenes or SCENES:
        record(name, Path(__file__).with_name(f"{name}.svg"))


if __name__ == "__main__":
    main()
