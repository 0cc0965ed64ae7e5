"""Trials on other machines: an engine places agents, an agent conducts its part of a trial, the head judges the whole.

``conduct()`` is the cut. The head sends a trial; the agent on each node builds the command, starts it below a
supervisor of its own, watches and looks, exactly as a trial on this machine is watched, and sends evidence; the head
joins the parts into one case and asks one judge. Nothing else crosses a machine's border: no /proc, no stack and no
signal is ever asked of a distant PID.

One TCP connection, opened by the agent, carries JSON objects, a line each. Both ends prove that they know the run's
token, and both give up the other after LOST_S seconds without a word (``wire`` says which count). What follows from
that is all there is to failures:

- The agent loses the head (killed, cut off, suspended): it ends its trial's processes, then tries to come back for
  REJOIN_S seconds, and ends.
- The head loses an agent (node dead, cut off, killed by its engine): the trial says nothing about the program (INFRA)
  and is asked again elsewhere, as any trial that its machine has spoiled.
- An agent dies: its trial's supervisors see the end of their socket and end everything, as they do for a controller.

A short cut of the network is TCP's business and loses nothing. A trial has a number that is used once, so a part that
was given up is never taken for another one's.

What does not work: sending /proc and stacks to a watch at the head (a look is a hundred reads, and the moment matters);
the shared run directory as the channel (NFS shows a file up to 60 s late, and pods have none); judging at each node
(only the whole shows who waits for whom).
"""

from __future__ import annotations

from harness.registry import Registry

ENGINES = Registry(
    "engine",
    {
        "local": "harness.cluster.engines:LocalEngine",
        "ray": "harness.cluster.engines:RayEngine",
        "slurm": "harness.cluster.engines:SlurmEngine",
    },
    group="nsa_harness.engines",
)
