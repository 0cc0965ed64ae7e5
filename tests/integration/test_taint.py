"""What a stranger says never reaches anybody as it is: secrets are hidden, controls are taken out, everywhere."""

from __future__ import annotations

import contextlib
import fcntl
import http.server
import os
import pty
import queue
import re
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tarfile
import termios
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli.main import main
from harness.report.render import FORMS

SAID = {
    "a variable's value": "correct-horse-battery",
    "a value of --env": "staple-of-the-env",
    "an option's value": "hunter2-the-option",
    "an option's value behind =": "hunter3-the-option",
    "a password in a URL": "s3cr3t-in-url",
    "Hugging Face": "hf_abcdefghijklmnopqrstuvwx",
    "GitHub": "ghp_abcdefghijklmnopqrstuvwxyz012345",
    "GitHub, fine": "github_pat_11ABCDEFG0abcdefghijkl",
    "OpenAI": "sk-abcdefghijklmnopqrstuv",
    "AWS": "AKIAIOSFODNN7EXAMPLE",
    "Slack": "xoxb-123456789012-abcdefghij",
    "Slack's webhook": "T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX",
    "Azure": "QXp1cmVBY2NvdW50S2V5MDEyMzQ1",
    "npm": "npm_abcdefghijklmnopqrstuvwxyz0123456789",
    "PyPI": "pypi-AgEIcHlwaS5vcmcCJGFiY2RlZg",
    "GitLab": "glpat-abcdefghijklmnopqrst",
    "Stripe": "sk_live_abcdefghijklmnopqrstuv",
    "Google": "AIzaSyA-abcdefghijklmnopqrstuvwxyz01234",
    "a JWT": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "a bearer": "abcdefghijklmnop.qrstuv",
    "a basic authorization": "dXNlcjpzM2NyM3QtaW4tYmFzaWM",
    "a word": "passphrase-value-one",
    "a word in JSON": "api-key-in-json-01",
    "a variable that is said": "value-of-a-variable-said",
    "Discord's webhook": "123456789012345678/abcdefghijklmnopqrstuvwxyz",
    "DigitalOcean": "dop_v1_0123456789abcdef0123456789abcdef",
    "SendGrid": "SG.abcdefghijklmnop01.qrstuvwxyz0123456789",
    "a value of --set": "letmein-by-set",
    "a password behind -p": "letmein-behind-p",
    "a private key": "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC",
    "the end of a value that is escaped": "end-of-the-escaped",
}
ESCAPED = f'q"uo\\te/é {SAID["the end of a value that is escaped"]}'
"""A value that every language writes in another way."""

PROGRAM = r"""
import base64, json, os, sys, urllib.parse
print("step 1", flush=True)
escaped = os.environ["APP_SECRET"]
said = f"{os.environ['WANDB_API_KEY']} {os.environ['MY_TOKEN']} {sys.argv[1:]} " + (
    "<Hugging Face> <GitHub> <GitHub, fine> <OpenAI> <AWS> <Slack> https://hooks.slack.com/services/<Slack's webhook> "
    "AccountKey=<Azure>; <npm> <PyPI> <GitLab> <Stripe> <Google> <a JWT> Authorization: Bearer <a bearer> "
    "Authorization: Basic <a basic authorization> https://discord.com/api/webhooks/<Discord's webhook> <DigitalOcean> "
    "<SendGrid> {\"api_key\": \"<a word in JSON>\"} DB_PASSWORD=<a variable that is said> "
    "passphrase=<a word> -----BEGIN PRIVATE KEY-----\n<a private key>\n-----END PRIVATE KEY----- "
    "\x1b]0;PWNED\x07 \x1b[2J \x9b2J \u202e \u2066 \x9d0;PWNED\x9c <script>document.title='PWNED'</script> "
    "<img src=x onerror=document.title='PWNED'> [a link](javascript:document.title='PWNED') "
    + repr([escaped]) + ascii(escaped) + json.dumps(escaped) + json.dumps(escaped, ensure_ascii=False)
    + urllib.parse.quote(escaped) + urllib.parse.quote_plus(escaped)
)
print(said, file=sys.stderr, flush=True)
class CustomError(Exception):
    pass
def fail_at_once():
    raise CustomError(said)
if int(sys.argv[1]) > 1:
    fail_at_once()
"""
for kind, secret in SAID.items():
    PROGRAM = PROGRAM.replace(f"<{kind}>", secret)
ARGV = [
    "-u", "somebody", "-p", SAID["a password behind -p"],
    "--token", SAID["an option's value"], "--password=" + SAID["an option's value behind ="],
    f"postgres://user:{SAID['a password in a URL']}@db.example.org/x",
]  # fmt: skip
CONTROLS = ("\x1b", "\x07", "\x9b", "\x9d", "\x9c", "\u202e", "\u2066")
NAME = "train\x1b[31m\u202e.py"
HANGING = "hang\x1b]0;PWNED\x07\u202e.py"
HANG = "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()\n"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OWN_WORDS = {"stdout.txt", "stderr.txt", "stdout.tail", "stderr.tail"}
"""What the program printed is kept as it is, in a folder that nobody else may enter."""


def texts_of(path: Path, name: str) -> dict[str, str]:
    """The text of a file; of an archive that of each file in it."""
    if ".tar" not in path.suffixes:
        return {name: path.read_text(errors="replace")}
    with tarfile.open(path) as archive:
        files = [(one.name, archive.extractfile(one)) for one in archive if one.isfile()]
        return {f"{name}: {inside}": file.read().decode(errors="replace") for inside, file in files}


def nsa_harness(*argv: str) -> list[str]:
    return [sys.executable, "-P", "-m", "harness", *argv]


def environment() -> dict[str, str]:
    """The surroundings of a command that has secrets in them."""
    return {**os.environ, "WANDB_API_KEY": SAID["a variable's value"], "PYTHONUTF8": "1", "APP_SECRET": ESCAPED,
            "NCCL_SOCKET_IFNAME": f"https://user:{SAID['a password in a URL']}@host"}  # fmt: skip


def words(place: Path) -> list[str]:
    """The tainted program's command line, up to the values."""
    return ["--env", f"MY_TOKEN={SAID['a value of --env']}", "--", sys.executable, str(place / NAME)]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with the tainted program."""
    folder = tmp_path_factory.mktemp("taint")
    (folder / NAME).write_text(PROGRAM)
    return folder


@pytest.fixture(scope="module")
def seen(place: Path) -> dict[str, str]:
    """Everything that a search of a tainted program shows and writes, by where it was."""

    def ask(*argv: str) -> subprocess.CompletedProcess[str]:
        command = nsa_harness(*argv)
        return subprocess.run(command, cwd=place, env=environment(), capture_output=True, text=True, check=False)

    def shown(*argv: str) -> str:
        done = CliRunner(env=environment()).invoke(main, argv, prog_name="nsa-harness")
        assert done.output, argv
        return done.output

    program = words(place)
    progress = ["--progress", r"step (\d+)"]
    search = ask("bisect", "--axis", "x=1..2", "--certify", "2", *progress, *program, "{x}", *ARGV)
    assert search.returncode == 0, search.stderr
    assert "CustomError" in search.stderr
    once = ask("run", "--json", "--set", f"db_token={SAID['a value of --set']}", *program, "2", "{db_token}", *ARGV)
    echo = ask("run", "--echo", *program, "2", *ARGV)
    assert (once.returncode, echo.returncode) == (1, 1), once.stderr + echo.stderr
    assert "CustomError" in echo.stderr
    found = {"bisect, stdout": search.stdout, "bisect, live": search.stderr, "run, stdout": once.stdout,
             "run, live": once.stderr, "run --echo": echo.stdout + echo.stderr}  # fmt: skip
    runs = sorted((place / "runs").iterdir())
    found["report --index"] = ask("report", "--index").stdout
    found["index.html"] = (place / "runs" / "index.html").read_text()
    both = ["report", str(runs[-1]), "--compare", str(runs[0]), "--viewer", "-o", str(runs[-1] / "both.html")]
    assert subprocess.run(nsa_harness(*both), cwd=place, env=environment(), check=False).returncode == 0
    for run in runs:
        found["report --viewer"] = shown("report", str(run), "--viewer")
        for form in FORMS:
            found[f"report --format {form}"] = shown("report", str(run), "--format", form)
        bundle = place / f"bundle of {run.name}"
        found[f"report --bundle of {run.name}"] = shown("report", str(run), "--bundle", str(bundle))
        for path in bundle.rglob("*"):
            if path.is_file():
                found.update(texts_of(path, f"{bundle.name}/{path.relative_to(bundle)}"))
        for verb in ("status", "log", "graph", "classify", "replay", "fsck"):
            found[verb] = shown(verb, str(run))
        for path in run.rglob("*"):
            if path.is_file() and path.name not in OWN_WORDS:
                found[f"{run.name}/{path.relative_to(run)}"] = path.read_text(errors="replace")
    return found


def test_the_taint_is_there_to_be_seen(seen):
    assert any("CustomError" in text for where, text in seen.items() if where.endswith("report.md"))
    assert len([where for where in seen if where.endswith("result_rank0.json")]) >= 2
    assert any("hidden" in text for text in seen.values())


def test_nobody_else_may_enter_a_run(seen, place):
    runs = [path for path in (place / "runs").iterdir() if path.is_dir()]

    assert len(runs) >= 3
    assert {stat.S_IMODE(run.stat().st_mode) for run in runs} == {0o700}


@pytest.mark.parametrize("kind", SAID)
def test_no_secret_is_shown_or_written(seen, kind):
    leaks = [where for where, text in seen.items() if SAID[kind] in text]

    assert not leaks, "\n".join(leaks)


@pytest.mark.parametrize("control", CONTROLS, ids=ascii)
def test_no_control_is_shown_or_written(seen, control):
    leaks = [where for where, text in seen.items() if control in text]

    assert not leaks, "\n".join(leaks)


def test_a_page_holds_no_script_of_a_strangers(seen):
    kinds = ("report.html", "viewer.html", "both.html", "index.html")
    pages = [text for where, text in seen.items() if where.endswith(kinds)]

    assert len(pages) >= 2 * len(kinds)
    assert all("<script>document" not in page for page in pages)


def test_what_is_shown_as_json_is_json(seen):
    import json

    assert json.loads(seen["run, stdout"])
    assert json.loads(seen["report --format json"])
    for where, text in seen.items():
        if Path(where).suffix == ".json":
            json.loads(text)


OWN_SEQUENCES = re.compile(r"\x1b\[[0-9;]*[ABGHJKm]|\x1b\[\?(?:25|2026)[hl]")
"""What the progress itself sends to a terminal: colours, and its own lines again."""


@pytest.mark.parametrize("width", [pytest.param(40, marks=pytest.mark.long), 200])
def test_a_terminal_is_sent_nothing_of_a_strangers(place, width):
    """By a recorder: all that a real terminal is sent, its live lines too."""
    command = [*nsa_harness("bisect"), "--axis", "x=1..2", "--certify", "1", *words(place), "{x}", *ARGV]
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    env = {**environment(), "TERM": "xterm-256color", "COLUMNS": str(width)}
    with subprocess.Popen(command, cwd=place, env=env, stdin=terminal, stdout=terminal, stderr=terminal) as search:
        os.close(terminal)
        recorded = b""
        with contextlib.suppress(OSError):  # a terminal whose last user has gone
            while said := os.read(controller, 1 << 16):
                recorded += said
        os.close(controller)
    text = recorded.decode()

    assert search.returncode == 0, text
    assert "CustomError" in text
    assert "\x1b[" in text
    rest = OWN_SEQUENCES.sub("", text)
    assert [control for control in CONTROLS if control in rest] == []
    assert [kind for kind, secret in SAID.items() if secret in text] == []


def title_in_a_browser(page: Path, profile: Path) -> str:
    """The title of a page once its scripts have run."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
             "--disable-background-networking", "--disable-component-update", f"--user-data-dir={profile}"]  # fmt: skip
    argv = [str(CHROMIUM), *flags, "--virtual-time-budget=2000", "--dump-dom", page.as_uri()]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.long
@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on PATH")
def test_a_browser_runs_nothing_of_a_strangers(seen, place, tmp_path):
    pages = [*sorted(place.glob("runs/*/report.html"))[:2], *sorted(place.glob("bundle of */report.html"))[:1]]
    pages += [*sorted(place.glob("runs/*/viewer.html"))[:2], *place.glob("runs/*/both.html")]
    naked = tmp_path / "naked.html"
    naked.write_text("<title>A page</title><img src=x onerror=document.title='PWNED'>")

    assert title_in_a_browser(naked, tmp_path / "profile") == "PWNED"  # such a thing is seen when it happens
    assert len(pages) == 6
    for page in pages:
        assert "PWNED" in page.read_text()
        assert "PWNED" not in title_in_a_browser(page, tmp_path / "profile")


@pytest.mark.long
def test_who_is_notified_of_a_hang_is_told_no_secret_and_sent_no_control(place):
    pytest.importorskip("apprise")
    (place / HANGING).write_text(PROGRAM.partition("class CustomError")[0] + HANG)
    told: queue.Queue[str] = queue.Queue()

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            told.put(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(200)
            self.end_headers()

    env = {**environment(), "MY_TOKEN": SAID["a value of --env"]}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    program = [sys.executable, str(place / HANGING), "1", *ARGV]
    job = subprocess.Popen(program, cwd=place, env=env, stderr=subprocess.DEVNULL)
    notify = ["--notify", f"json://127.0.0.1:{server.server_port}"]
    command = nsa_harness("guard", str(job.pid), "--runs", "guarded", *notify)
    with subprocess.Popen(command, cwd=place, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as guard:
        try:
            found = {"the notification": told.get(timeout=400)}
        finally:
            guard.send_signal(signal.SIGINT)
            found["the terminal"] = guard.communicate(timeout=60)[0].decode()
            job.kill()
            job.wait()
            server.shutdown()
            server.server_close()
    for path in (place / "guarded").rglob("*"):
        if path.is_file():
            found[f"guarded/{path.relative_to(place / 'guarded')}"] = path.read_text(errors="replace")

    assert "hang" in found["the notification"].lower()
    assert [where for where in found if where.endswith("guard.jsonl")]
    assert [where for where in found if where.endswith("report.html")]
    assert [(where, kind) for where, text in found.items() for kind, secret in SAID.items() if secret in text] == []
    assert [(where, control) for where, text in found.items() for control in CONTROLS if control in text] == []
