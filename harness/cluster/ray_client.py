"""A Ray driver that holds agents: ``python -m harness.cluster.ray_client '{"nodes": 2, ...}'``, started by RayEngine.

A placement group (STRICT_SPREAD) gets each agent a node of its own; one task a bundle runs the agent as a child and
waits for it. When this driver ends, however it does, Ray ends the tasks' processes, and each agent, which dies with
its parent, ends its trials. What it writes last is what the user is told while he waits, or at the end.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

from harness.cluster.engines import DIE_WITH_US
from harness.cluster.wire import ORDER
from harness.settings import surroundings

ASK_S = 1.0
"""How often is looked whether the nodes are there."""

START_S = 60.0
"""How long Ray may take to start its tasks' processes before it is said that they run."""


def run_agent(argv: list[str], env: dict[str, str], cwd: str, wrapper: str) -> str:
    """Run an agent on the node that this task was given, to its end: its last line. Carried to the node by value."""
    import os
    import subprocess

    command = [argv[0], "-I", "-S", "-c", wrapper, str(os.getpid()), *argv]
    if not os.path.isdir(cwd):  # noqa: PTH112 - nothing of ours is imported there
        return f"there is no folder {cwd} on {os.uname().nodename}; nodes share the working folder"
    done = subprocess.run(
        command,
        env={**os.environ, **env},  # noqa: TID251 - what Ray gave this node
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return (done.stderr.strip().splitlines() or [f"an agent ended with {done.returncode}"])[-1]


def say(text: str) -> None:
    """Write a line for the placement."""
    sys.stderr.write(f"ray: {text}\n")
    sys.stderr.flush()


def hold(order: dict[str, Any]) -> str:
    """Place the agents and wait until none runs any more: the last one's last line."""
    ray: Any = import_module("ray")  # by name: only whoever asks for it has it
    util: Any = import_module("ray.util")
    strategy: Any = import_module("ray.util.scheduling_strategies").PlacementGroupSchedulingStrategy
    environment = dict(surroundings())
    env = {name: environment[name] for name in order["names"]}
    say("waits for Ray to answer")
    ray.init(address=order["address"] or "auto", log_to_driver=False, logging_level="ERROR")
    resources = order["resources"]
    group = util.placement_group([resources] * order["nodes"], strategy="STRICT_SPREAD")
    while not group.wait(ASK_S):
        has = 0
        for node in ray.nodes():
            has += all(node["Resources"].get(name, 0) >= number for name, number in resources.items())
        amounts = ", ".join(f"{name}:{number:g}" for name, number in resources.items())
        say(f"waits for {order['nodes']} node(s) with {amounts} free; {has} node(s) have so much at all")
    more = dict(resources)
    cpus, gpus = more.pop("CPU", 0), more.pop("GPU", 0)
    tasks: list[Any] = []
    for number in range(order["nodes"]):
        place = strategy(group, placement_group_bundle_index=number)
        agent = ray.remote(num_cpus=cpus, num_gpus=gpus, resources=more, max_retries=0)(run_agent)
        agent = agent.options(scheduling_strategy=place)
        tasks.append(agent.remote(order["argv"], {**env, ORDER: str(number)}, order["cwd"], DIE_WITH_US))
    say("waits for its tasks to begin")
    ray.wait(tasks, timeout=START_S)
    say("its tasks run")
    last = ""
    while tasks:
        (done,), tasks = ray.wait(tasks)
        try:
            last = ray.get(done)
        except ray.exceptions.RayError as error:
            last = f"a node or its worker was lost: {type(error).__name__}"
    return last


def main() -> int:
    """Hold agents until the last one has ended, or until SIGTERM."""
    try:
        say(hold(json.loads(sys.argv[1])))
    except (ConnectionError, RuntimeError, ValueError) as error:
        say(f"no Ray answers as it should: {' '.join(str(error).split())[:300]}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
