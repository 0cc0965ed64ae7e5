"""Every example of examples/ runs as it stands and shows what it says."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHOWN = {
    "functional.py": "(1, 1024, 8, 64) gradient of q: 0.0",
    "layer.py": "decoded equals whole: True",
    "hugging_face.py": "\n64\n",
}


def test_no_example_is_left_out_or_long():
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == set(SHOWN)
    for name in SHOWN:
        code = [line for line in (ROOT / "examples" / name).read_text().splitlines() if line and '"""' not in line]
        assert len(code) <= 15, name


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name != "layer.py")) for name in SHOWN]
)
def test_an_example_runs_and_shows_what_it_says(name, tmp_path):
    if name == "hugging_face.py" and importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed: pip install 'nsa-harness[hf]'")
    # A test may read a variable that its child is to have.
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, ROOT / "examples" / name],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert SHOWN[name] in ran.stdout
