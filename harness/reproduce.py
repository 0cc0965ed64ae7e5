"""Reproduce: a failing trial as a script that runs without the harness, tried before anybody is told of it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.codec import to_json
from harness.core.command_line import composed
from harness.core.errors import CommandError, NotStartedHereError, SpecError
from harness.core.verdict import Kind
from harness.launch import prctl
from harness.reading.frames import deciding_thread, telling_frame
from harness.report.findings import Findings
from harness.report.stacks import deciding_sample
from harness.store import layout
from harness.store.files import write_atomic
from harness.store.history import read_evidence
from harness.store.redact import redact_text
from harness.worker.world import world_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harness.core.ports import Clock
    from harness.core.record import Run, TrialRecord

TRIES = 2
TELLING = 40
"""Characters of an exception's message that must come back; further on it may hold addresses and paths."""

MOST_S = 120.0
"""A script is not given longer than this, whatever the trial took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptTrials:
    """How often the script showed the failure, and what would have been seen each time."""

    command: tuple[str, ...]
    expected: str
    shown: int
    tries: int
    ended: tuple[str, ...]
    sentence: str


def reproduce(
    run: Run,
    run_dir: Path,
    *,
    python: str,
    env: Mapping[str, str],
    clock: Clock,
    note: Callable[[str], None] = lambda _: None,
) -> ScriptTrials:
    """Write ``repro.py`` for the trial that the report is about, run it TRIES times, and keep how that went.

    ``note`` is told as the first try begins.

    Raises:
        SpecError: no trial failed, or the failing one was not a run of our own trainer, or nothing that we started.
    """
    record = Findings(run=run).subject
    if record is None:
        raise SpecError(f"no trial of {run.id} failed, so there is nothing to reproduce")
    if "watched" in record.trial.config:
        what = f"{run.id} only watched what somebody else had started, and does not know how it was started"
        raise NotStartedHereError(f"{what}: {record.trial.config['watched']}")
    if record.trial.target != "nsa":
        line = composed(record.trial.config, python=record.trial.python or python, env=record.trial.env)
        raise CommandError(f"a program is reproduced by its own command: {redact_text(str(line))}")
    symptom = expected(record, run_dir)
    limit_s = limit_of(record)
    path = layout.repro(run_dir)
    write_atomic(path, script(record, limit_s=limit_s, symptom=symptom.sentence))
    world = world_of(record.trial.config)
    ranks = ("-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={world}") if world > 1 else ()
    argv = (python, "-P", *ranks, str(path.absolute()))
    ended: list[str] = []
    note("trying the failure twice without the harness ..")
    for number in range(1, TRIES + 1):
        output, code = _run(argv, env=env, limit_s=limit_s + 60, clock=clock, log=run_dir / f"repro-{number}.txt")
        ended.append(symptom.judge(output, code))
    matches = ended.count(symptom.sentence)
    shell = ("torchrun", *ranks[2:], path.name) if world > 1 else ("python", path.name)
    tried = ScriptTrials(
        command=shell,
        expected=symptom.sentence,
        shown=matches,
        tries=TRIES,
        ended=tuple(ended),
        sentence=f"reproduced {matches}/{TRIES} outside the harness: {' '.join(shell)} {symptom.sentence}.",
    )
    write_atomic(layout.repro(run_dir, "json"), json.dumps(asdict(tried), indent=1) + "\n")
    return tried


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the script must show to count: ``words`` in its output, and whether its own limit must have ended it."""

    sentence: str
    words: tuple[str, ...]
    by_limit: bool
    still_moving: bool | None = None

    def judge(self, output: str, code: int | None) -> str:
        """What was seen: its sentence where that is the failure, else why it is not."""
        if code is None:
            return "no: it did not even end by its own limit"
        if code == 0:
            return "no: it ran to its end"
        timed_out = "Timeout (" in output
        if timed_out is not self.by_limit:
            return f"no: it {'reached its limit' if timed_out else f'ended by itself with exit code {code}'}"
        missing = [word for word in self.words if word not in output]
        if missing:
            return f"no: its output does not name {', '.join(missing)}"
        if self.still_moving is not None and _moving_at_the_end(output) is not self.still_moving:
            return f"no: it was {'silent' if self.still_moving else 'still making progress'} when its limit ran out"
        return self.sentence


def expected(record: TrialRecord, run_dir: Path) -> Expected:
    """What shows that it is the same failure, from what the trial itself showed."""
    verdict = record.verdict
    evidence = read_evidence(run_dir, record.trial.key)
    if verdict.kind is Kind.HANG:
        sample = deciding_sample(evidence, verdict) if evidence else None
        thread = deciding_thread(sample) if sample else None
        frame = telling_frame(thread) if thread else None
        words = (frame.function.rpartition(".")[2],) if frame and not frame.native else ()
        where = f" with a thread in {words[0]}" if words else ""
        return Expected(sentence=f"hangs until its limit{where}", words=words, by_limit=True, still_moving=False)
    if verdict.kind is Kind.SLOW:
        return Expected(
            sentence="is still making progress when its limit runs out", words=(), by_limit=True, still_moving=True
        )
    result = evidence.result_of(verdict.rank) if evidence else None
    name = result.exception if result else None
    words = (name.rpartition(".")[2],) if name else ()
    message = (result.message or "").strip() if result else ""
    begins = message.splitlines()[0][:TELLING] if message else ""
    sentence = f"ends with {words[0] if words else 'an error'}{f' ({begins} ..)' if begins else ''}"
    return Expected(sentence=sentence, words=(*words, *([begins] if begins else [])), by_limit=False)


def limit_of(record: TrialRecord) -> float:
    """Seconds for the script: long enough to start, and three times the silence that was called a hang."""
    stall_s = record.trial.budget.stall.seconds
    if record.verdict.kind is Kind.HANG:
        return min(max(20.0, 15.0 + 3 * stall_s), MOST_S)
    return min(max(30.0, 1.2 * record.outcome.duration_s), MOST_S)


def script(record: TrialRecord, *, limit_s: float, symptom: str) -> str:
    """The text of ``repro.py``: the configuration, the trainer, a limit that prints all stacks, and progress lines."""
    trial = record.trial
    config: dict[str, Any] = {name: dict(part) for name, part in trial.config.items() if isinstance(part, dict)}
    world = world_of(trial.config)
    start = f"torchrun --standalone --nproc_per_node={world} repro.py" if world > 1 else "python repro.py"
    planted = PLANTED.format(trial=json.dumps(to_json(trial))) if trial.fault else ""
    env = "".join(f"os.environ[{name!r}] = {value!r}\n" for name, value in trial.env)
    return SCRIPT.format(
        where=trial.point,
        verdict=record.verdict,
        start=start,
        symptom=symptom,
        config=json.dumps(config, indent=1, sort_keys=True),
        limit_s=limit_s,
        env=env,
        planted=planted,
        probes="[Progress(), *planted()]" if trial.fault else "[Progress()]",
    )


SCRIPT = '''"""{where}: {verdict}, without the harness.

    {start}

It {symptom}. Needs torch and the trainer that was tested. After LIMIT_S seconds it prints the
stack of every thread and ends.
"""

import faulthandler
import json
import os
import sys
import time

LIMIT_S = {limit_s:.0f}
CONFIG = json.loads("""
{config}
""")
{env}faulthandler.dump_traceback_later(LIMIT_S, exit=True)

from nsa.config import RunConfig  # noqa: E402
from nsa.train.probe import NullProbe  # noqa: E402
from nsa.train.trainer import train  # noqa: E402


class Progress(NullProbe):
    """Says where training is, with the seconds since the start, so that slow can be told from hung."""

    def mark(self, *, phase, edge, step, detail=None):
        sys.stderr.write(f"[{{time.monotonic() - BEGAN:.1f}} s] step {{step}} {{phase}} {{edge}}\\n")
        sys.stderr.flush()


{planted}BEGAN = time.monotonic()
if __name__ == "__main__":
    train(RunConfig.from_mapping(CONFIG), {probes})
'''

PLANTED = '''def planted():
    """The fault that was planted on purpose; it is all that is taken from the harness."""
    import tempfile
    from pathlib import Path

    from harness.core.codec import from_json
    from harness.core.trial import Trial
    from harness.worker.world import Place
    from harness.specimens.catalog import SPECIMENS
    from harness.worker.fault import FaultProbe

    trial = from_json(Trial, json.loads(TRIAL))
    place = Place(rank=int(os.environ.get("RANK", "0")), world=int(os.environ.get("WORLD_SIZE", "1")))
    folder = Path(tempfile.mkdtemp())
    fault = FaultProbe(SPECIMENS.load(trial.fault.specimen), trial=trial, trial_dir=folder, place=place)
    fault.start()
    return [fault]


TRIAL = r"""{trial}"""

'''


def _run(
    argv: tuple[str, ...], *, env: Mapping[str, str], limit_s: float, clock: Clock, log: Path
) -> tuple[str, int | None]:
    """What a program printed and its exit code; None for one that had to be ended. Nothing of it is left."""
    nsa = find_spec("nsa")  # imported it would bring torch into the controller
    own = str(Path(nsa.origin).parents[1]) if nsa and nsa.origin else ""
    with log.open("w+", encoding="utf-8", errors="replace") as out:
        process = subprocess.Popen(
            argv, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
            env={**env, "PYTHONPATH": own},
            preexec_fn=partial(prctl.die_with_parent, signal.SIGKILL, parent=os.getpid()),
        )  # fmt: skip
        until = clock.now() + limit_s
        try:
            while process.poll() is None and clock.now() < until:
                clock.sleep(0.05)
            code = process.poll()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its own session: nobody else is in that group
                process.wait()
        out.seek(0)
        return out.read(), code


def _moving_at_the_end(output: str) -> bool:
    """Whether the last line of progress is younger than a fifth of the time."""
    times = list(map(float, re.findall(r"^\[(\d+(?:\.\d+)?) s\]", output, flags=re.MULTILINE)))
    limit = re.search(r"Timeout \((\d+):(\d+):(\d+)", output)
    if not times or limit is None:
        return False
    hours, minutes, rest = map(int, limit.groups())
    return times[-1] > 0.7 * (3600 * hours + 60 * minutes + rest)
