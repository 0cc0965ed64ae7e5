"""Watching jobs for weeks: each hang is told once, nothing that only works is, and next to nothing is used for it.

A full look (``nsa-harness watch``) takes some seconds, one or two of them on a CPU: too much every ten seconds, for
weeks. So every job has a pulse, the CPU time of its processes, which costs a read of one file each. A job that has
been quiet for a while is looked into; one that computes is looked into now and then, because a kernel without an end
and a wait inside NCCL compute too. What stays as it is is looked into ever more rarely, what has not run at all since
two looks that agreed only each half hour, and what moves again is watched as at first.

A hang is told when two looks, some time apart, say the same of the same job. It is then one incident, with a number
of its own, until a look finds that the job goes on: that is told too, and the watch begins anew. Every event is in a
ledger on disk before anybody is told of it, and what a receiver has not taken is brought again. A guard that is
killed, and started again, reads the ledger: nothing is lost. A receiver may hear of an incident twice, if the guard
died between the telling and the note that it was told; the incident's number is in the message, so that it can see
that.

What does not work: telling of every look that says HANG (a program that is held up for a minute by a disk has been
told by then), and ending a job because it hangs by one look. Only a hang of high confidence, told twice alike, may be
acted on, and only if the user asked for that.
"""
