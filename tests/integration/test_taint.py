"""What a stranger says never reaches anybody as it is: secrets are hidden, controls are taken out, everywhere."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from harness.report.forms import FORMS

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
    "a word": "passphrase-value-one",
    "a private key": "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC",
}
PROGRAM = r"""
import os, sys
print("step 1", flush=True)
said = f"{os.environ['WANDB_API_KEY']} {os.environ['MY_TOKEN']} {sys.argv[1:]} " + (
    "<Hugging Face> <GitHub> <GitHub, fine> <OpenAI> <AWS> <Slack> https://hooks.slack.com/services/<Slack's webhook> "
    "AccountKey=<Azure>; <npm> <PyPI> <GitLab> <Stripe> <Google> <a JWT> Authorization: Bearer <a bearer> "
    "passphrase=<a word> -----BEGIN PRIVATE KEY-----\n<a private key>\n-----END PRIVATE KEY----- "
    "\x1b]0;PWNED\x07 \x1b[2J \x9b2J \u202e \u2066 \x9d0;PWNED\x9c <script>alert(1)</script>"
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
    "--token", SAID["an option's value"], "--password=" + SAID["an option's value behind ="],
    f"postgres://user:{SAID['a password in a URL']}@db.example.org/x",
]  # fmt: skip
CONTROLS = ("\x1b", "\x07", "\x9b", "\x9d", "\x9c", "\u202e", "\u2066")
OWN_WORDS = {"stdout.txt", "stderr.txt", "stdout.tail", "stderr.tail"}
"""What the program printed is kept as it is, in a folder that nobody else may enter."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory) -> dict[str, str]:
    """Everything that a search of a tainted program shows and writes, by where it was."""
    place = tmp_path_factory.mktemp("taint")
    program = place / "train\x1b[31m\u202e.py"
    program.write_text(PROGRAM)
    env = {**os.environ, "WANDB_API_KEY": SAID["a variable's value"], "PYTHONUTF8": "1",
           "NCCL_SOCKET_IFNAME": f"https://user:{SAID['a password in a URL']}@host"}  # fmt: skip

    def nsa_harness(*argv: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-m", "harness", *argv]
        return subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, check=False)

    words = ["--env", f"MY_TOKEN={SAID['a value of --env']}", "--", sys.executable, str(program)]
    progress = ["--progress", r"step (\d+)"]
    search = nsa_harness("bisect", "--axis", "x=1..2", "--certify", "2", *progress, *words, "{x}", *ARGV)
    assert search.returncode == 0, search.stderr
    assert "CustomError" in search.stderr
    once = nsa_harness("run", "--json", *words, "2", *ARGV)
    echo = nsa_harness("run", "--echo", *words, "2", *ARGV)
    assert (once.returncode, echo.returncode) == (1, 1), once.stderr + echo.stderr
    assert "CustomError" in echo.stderr
    found = {"bisect, stdout": search.stdout, "bisect, live": search.stderr, "run, stdout": once.stdout,
             "run, live": once.stderr, "run --echo": echo.stdout + echo.stderr}  # fmt: skip
    runs = sorted((place / "runs").iterdir())
    for run in runs:
        assert stat.S_IMODE(run.stat().st_mode) == 0o700
        for form in FORMS:
            found[f"report --format {form}"] = nsa_harness("report", str(run), "--format", form).stdout
        for verb in ("status", "log", "graph", "classify"):
            found[verb] = nsa_harness(verb, str(run)).stdout
        for path in run.rglob("*"):
            if path.is_file() and path.name not in OWN_WORDS:
                found[f"{run.name}/{path.relative_to(run)}"] = path.read_text(errors="replace")
    return found


def test_the_taint_is_there_to_be_seen(seen):
    assert any("CustomError" in text for where, text in seen.items() if where.endswith("report.md"))
    assert len([where for where in seen if where.endswith("result.json")]) >= 2
    assert any("hidden" in text for text in seen.values())


@pytest.mark.parametrize("kind", SAID)
def test_no_secret_is_shown_or_written(seen, kind):
    leaks = [where for where, text in seen.items() if SAID[kind] in text]

    assert not leaks, "\n".join(leaks)


@pytest.mark.parametrize("control", CONTROLS, ids=ascii)
def test_no_control_is_shown_or_written(seen, control):
    leaks = [where for where, text in seen.items() if control in text]

    assert not leaks, "\n".join(leaks)


def test_a_page_holds_no_script_of_a_strangers(seen):
    pages = [text for where, text in seen.items() if where.endswith("report.html")]

    assert pages
    assert all("<script>alert" not in page for page in pages)


def test_what_is_shown_as_json_is_json(seen):
    import json

    assert json.loads(seen["run, stdout"])
    assert json.loads(seen["report --format json"])
    for where, text in seen.items():
        if Path(where).suffix == ".json":
            json.loads(text)
