"""An editor on the matrix files: each key is described, and yaml-language-server has no remark on what is shipped."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli.main import main
from harness.spec.yaml_file import matrix_schema

MATRICES = Path(__file__).parents[2] / "matrices"
FILES = sorted(MATRICES.glob("*.yaml"))
OFF = {"schemaStore": {"enable": False}, "validate": True, "hover": True, "completion": True}


def test_the_schema_that_is_shipped_is_the_one_that_files_are_read_by():
    assert (MATRICES / "matrix.schema.json").read_text() == matrix_schema()
    assert CliRunner().invoke(main, ["matrix", "schema"]).stdout == matrix_schema()
    assert json.loads(matrix_schema())["$id"] == "urn:nsa-harness:matrix:1"


def test_every_key_has_a_description():
    schema = json.loads(matrix_schema())
    objects = [schema, *schema["$defs"].values()]
    assert [key for at in objects for key, value in at["properties"].items() if not value.get("description")] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_file_names_its_schema_in_its_first_line(file):
    assert file.read_text().startswith("# yaml-language-server: $schema=matrix.schema.json\n")


def test_what_matrix_copy_writes_has_its_schema_beside_it(tmp_path):
    done = CliRunner().invoke(main, ["matrix", "copy", str(tmp_path / "mine")])

    assert done.exit_code == 0
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == sorted(
        [*(file.name for file in FILES), "matrix.schema.json"]
    )


class Server:
    """yaml-language-server, spoken to as an editor does."""

    def __init__(self, program: str) -> None:
        self.process = subprocess.Popen([program, "--stdio"], stdin=-1, stdout=-1, stderr=-3)
        self.send("initialize", {"processId": None, "rootUri": None, "capabilities": {}}, number=1)
        while self.read().get("id") != 1:
            pass
        self.send("initialized", {})
        self.send("workspace/didChangeConfiguration", {"settings": {"yaml": OFF}})

    def send(self, method: str, params: dict, *, number: int | None = None) -> None:
        self.say({"method": method, "params": params} | ({} if number is None else {"id": number}))

    def say(self, message: dict) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def read(self) -> dict:
        """The next message; a question of the server's is answered."""
        assert self.process.stdout is not None
        size = 0
        while line := self.process.stdout.readline().strip():
            if line.lower().startswith(b"content-length:"):
                size = int(line.split(b":")[1])
        message = json.loads(self.process.stdout.read(size))
        if "id" in message and "method" in message:
            items = message.get("params", {}).get("items", [])
            self.say({"id": message["id"], "result": [OFF if i.get("section") == "yaml" else None for i in items]})
        return message

    def remarks(self, path: Path, text: str) -> list[dict]:
        document = {"uri": path.as_uri(), "languageId": "yaml", "version": 1, "text": text}
        self.send("textDocument/didOpen", {"textDocument": document})
        while True:
            message = self.read()
            if message.get("method") == "textDocument/publishDiagnostics" and message["params"]["uri"] == path.as_uri():
                return message["params"]["diagnostics"]


def test_yaml_language_server_has_no_remark_on_our_files_and_one_on_an_unknown_key():
    program = shutil.which("yaml-language-server")
    if program is None:
        pytest.skip("yaml-language-server is not installed: npm install -g yaml-language-server")
    server = Server(program)
    try:
        found = {file.name: server.remarks(file, file.read_text()) for file in FILES}
        wrong = server.remarks(MATRICES / "wrong.yaml", FILES[0].read_text() + "\nstrategie: list\n")
    finally:
        server.process.kill()
        server.process.communicate()

    assert {name: remarks for name, remarks in found.items() if remarks} == {}
    assert [remark["message"] for remark in wrong] == ["Property strategie is not allowed."]
