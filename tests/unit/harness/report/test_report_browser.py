"""The page in a real browser: nothing requested, no complaint, nothing sticks out, and the answer comes first."""

from __future__ import annotations

import functools
import http.server
import json
import re
import shutil
import subprocess
import threading

import pytest

from harness.report.render.html import page_of

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on PATH"),
]

SIZES = {"phone": (390, 844), "desk": (1440, 900)}

LOOK = """<!doctype html><body style="margin:0"><pre id="seen"></pre>
%s
<script>
addEventListener("load", () => {
  const seen = {};
  for (const frame of document.querySelectorAll("iframe")) {
    const doc = frame.contentDocument, root = doc.documentElement, box = (e) => e.getBoundingClientRect();
    for (const fold of doc.querySelectorAll("details")) fold.open = false;
    const first = [...doc.querySelectorAll("h1, .first div")].map((e) => Math.round(box(e).bottom));
    for (const fold of doc.querySelectorAll("details")) fold.open = true;
    const inside = (e) => e.closest(".table, pre, svg");
    const wide = [...doc.querySelectorAll("body *")].filter((e) => !inside(e) && box(e).right > root.clientWidth + 1);
    seen[frame.id] = {
      overflow: root.scrollWidth - root.clientWidth,
      wide: wide.slice(0, 5).map((e) => e.outerHTML.slice(0, 80)),
      first: Math.max(...first),
      smallest: Math.min(...[...doc.querySelectorAll("figure svg text")].map((e) => box(e).height)),
      figures: doc.querySelectorAll("figure svg[role=img] > title").length,
      text: doc.body.innerText.length,
    };
  }
  document.getElementById("seen").textContent = JSON.stringify(seen);
});
</script>"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory, drawn):
    """What Chromium made of the page: per size its measures; all requests that were made; all it complained about."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "report.html").write_text(drawn[2], encoding="utf-8")
    frames = "".join(
        f'<iframe id="{name}" src="report.html" width="{w}" height="{h}" style="border:0;display:block"></iframe>'
        for name, (w, h) in SIZES.items()
    )
    (folder / "look.html").write_text(LOOK % frames, encoding="utf-8")
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format, *args):
            asked.append(self.path)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        done = subprocess.run(
            [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
             "--no-first-run", "--enable-logging=stderr", f"--user-data-dir={folder / 'profile'}",
             "--virtual-time-budget=10000", "--dump-dom", f"http://127.0.0.1:{server.server_port}/look.html"],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    finally:
        server.shutdown()
        server.server_close()
    found = re.search(r'<pre id="seen">(.+?)</pre>', done.stdout, flags=re.DOTALL)
    assert found, f"the browser measured nothing: {done.stderr[-2000:]}"
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(found[1]), asked, complaints


def test_nothing_but_the_page_itself_is_requested_and_the_console_is_silent(seen):
    _, asked, complaints = seen
    assert set(asked) <= {"/look.html", "/report.html", "/favicon.ico"}  # the last by the page that looks at ours
    assert complaints == []


@pytest.mark.parametrize("size", list(SIZES))
def test_nothing_sticks_out_at_the_side(size, seen):
    assert (seen[0][size]["overflow"], seen[0][size]["wide"]) == (0, [])


@pytest.mark.parametrize("size", list(SIZES))
def test_the_answer_stands_on_the_first_screen(size, seen):
    assert seen[0][size]["first"] <= SIZES[size][1]


@pytest.mark.parametrize("size", list(SIZES))
def test_figures_are_there_and_their_text_can_be_read(size, seen):
    assert seen[0][size]["figures"] >= 5
    assert seen[0][size]["smallest"] >= 8  # CSS pixels, line height included


def test_the_browser_would_see_a_table_that_sticks_out():
    """The guard above leaves tables out because they scroll inside a box of their own."""
    assert '<div class="table" tabindex="0"><table>' in page_of("| a |\n|:--|\n| b |")
