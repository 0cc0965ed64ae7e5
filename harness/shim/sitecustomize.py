"""Python imports this at start-up because its folder is on PYTHONPATH: start the shim, then step aside.

The folder is taken off ``sys.path`` again, so that the program sees the path it would have had, and the
``sitecustomize`` that this one hides, if there is one, is imported in its place.
"""

import os
import sys

import nsa_harness_shim  # pyrefly: ignore[missing-import] - beside this file

nsa_harness_shim.start(os.environ.get("NSA_HARNESS_TRIAL_DIR"))

_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _here]
_mine = sys.modules.pop(__name__, None)
try:
    __import__("sitecustomize")  # the one that ours hides
except ModuleNotFoundError as error:
    if error.name != "sitecustomize":
        raise
finally:
    if _mine is not None:
        sys.modules.setdefault(__name__, _mine)
