"""What evidence means: the one place where stacks are compared, stillness is judged and waits are understood.

Between the glossary (``harness.core``) and the stages. The watch asks it while a trial runs, the rules ask it of what
was recorded, reports ask it for words; so all of them mean the same by *nothing moves*, *the same stack*, *waits for
another program*. Pure: values in, values out, no clock, no files.

- ``frames``: which thread of a process decides, which frames of a stack mean something, when stacks are the same.
- ``stillness``: what moved between two looks at a process.
- ``waits``: the table of waits: what a thread waits for, and who can end that.
- ``standing``: for every process of a job, whether it can go on, and on whom that depends.
- ``meeting``: the collective that a rank waits in, by its stack. ``desync``: where ranks part, by flight recorders.
- ``loops``: the loop that a frame is in, its counter and its bound.
- ``pace``: how long a silence must last to be out of proportion. ``gpus``: what the cards did meanwhile.
- ``ranks``: which ranks there are, from what was seen. ``places``: which of them are at the same place.
"""
