"""What a trial's handle asks of its descriptors."""

from __future__ import annotations

import os
import resource

from harness.launch.handle import _readable

HIGH = 1500
"""Beyond what select takes; a controller with many trials and GPUs gets there."""


def test_a_descriptor_with_a_high_number_can_be_waited_for():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, HIGH + 1), hard))
    read, write = os.pipe()
    try:
        os.dup2(read, HIGH)
        assert not _readable(HIGH, 0.0)
        os.write(write, b"!")
        assert _readable(HIGH, 1.0)
    finally:
        for fd in (read, write, HIGH):
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
