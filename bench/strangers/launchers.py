"""Launchers that people write by hand: each starts the ranks of ``train.py`` and looks after them in its own way.

``launch.py RANKS PORT`` ends with 0 where all ranks do; where one fails it ends the others, and with 1.
"""

_STARTS = """
import logging, os, subprocess, sys, time

def start(world, port):
    procs = []
    for rank in range(world):
        env = dict(os.environ)
        if world > 1:
            env.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1")
        env["MASTER_PORT"] = port
        procs.append(subprocess.Popen([sys.executable, "train.py"], env=env))
    return procs
"""

POLLS = (
    _STARTS
    + """
procs = start(int(sys.argv[1]), sys.argv[2])
while any(p.poll() is None for p in procs):
    time.sleep(0.5)
    if any(p.poll() not in (None, 0) for p in procs):
        for p in procs:
            if p.poll() is None:
                p.terminate()
sys.exit(any(p.returncode for p in procs))
"""
)

CODES = (
    _STARTS
    + """
log = logging.getLogger("launcher")

class Launcher:
    def __init__(self, world, port):
        self.procs = start(world, port)

    def stop(self):
        for p in self.procs:
            if p.poll() is None:
                p.kill()

    def run(self):
        while True:
            codes = [p.poll() for p in self.procs]
            failed = [rank for rank, code in enumerate(codes) if code not in (None, 0)]
            if failed:
                log.error("rank %d failed with %s", failed[0], codes[failed[0]])
                self.stop()
                return 1
            if all(code == 0 for code in codes):
                return 0
            time.sleep(1.0)

sys.exit(Launcher(int(sys.argv[1]), sys.argv[2]).run())
"""
)

WAITS = (
    _STARTS
    + """
def main(world, port):
    running = dict(enumerate(start(world, port)))
    code = 0
    while running:
        for rank, p in list(running.items()):
            try:
                ended = p.wait(timeout=1)
            except subprocess.TimeoutExpired:
                continue
            del running[rank]
            if ended:
                code = 1
                for other in running.values():
                    other.terminate()
    return code

sys.exit(main(int(sys.argv[1]), sys.argv[2]))
"""
)

OWN = (POLLS, CODES, WAITS)
"""One of them, by the case's number, for the launcher ``own``."""
