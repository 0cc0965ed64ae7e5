# Sourced in the repository's root: $venv is an environment with what this machine's python3 has, the wheels of .wheels
# and this repository, made without a network. What is usually lacking beside torch:
#     pip download -d .wheels --no-deps --only-binary=:all: --python-version 3.12 --platform manylinux_2_28_x86_64 \
#       --platform manylinux2014_x86_64 click pydantic pydantic-core annotated-types typing-inspection py-spy pystack \
#       ruamel.yaml psutil nvidia-ml-py
venv=$(mktemp -d)
python3 -m venv --system-site-packages "$venv"
site=$("$venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')
# A venv made within a venv does not see the outer one's packages.
python3 -c "import site; print('\n'.join(site.getsitepackages()))" >"$site/outer.pth"
if [ -d .wheels ]; then "$venv/bin/pip" install -q --no-index --no-deps .wheels/*.whl || exit 1; fi
pwd >"$site/project.pth"
printf '#!%s\nfrom harness.cli.main import main\nmain()\n' "$venv/bin/python" >"$venv/bin/nsa-harness"
chmod +x "$venv/bin/nsa-harness"
"$venv/bin/python" -c 'import psutil, torch; print(torch.__version__)' && "$venv/bin/nsa-harness" --version || exit 1
