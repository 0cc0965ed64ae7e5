"""What the site has beside the pages in docs/: every command's own help; links into the repository as plain names."""

from __future__ import annotations

import re
from typing import Any

import click
from mkdocs.structure.files import File, Files

from harness.cli.main import main

OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+[^)]*\)")
"""A link to what is in the repository and not on the site."""


def on_files(files: Files, *, config: Any) -> Files:
    """Add a page for each command, as click knows it when the site is built."""
    group = click.Context(main, info_name="nsa-harness")
    index = ["# Commands\n"]
    for name in main.list_commands(group):
        command = main.get_command(group, name)
        if command is None:
            continue
        path = f"cli/{name}.md"
        files.append(File.generated(config, path, content=f"# nsa-harness {name}\n\n{helps(command, group, name)}"))
        index.append(f"- [nsa-harness {name}]({name}.md): {command.get_short_help_str(limit=200)}")
    files.append(File.generated(config, "cli/index.md", content="\n".join(index)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page without links that lead out of the site."""
    return OUTSIDE.sub(r"`\1`", markdown)


def helps(command: click.Command, parent: click.Context, name: str) -> str:
    """The help of a command, and of those below it."""
    context = click.Context(command, info_name=name, parent=parent, max_content_width=100)
    text = f"```text\n{command.get_help(context)}\n```\n"
    for below in command.commands if isinstance(command, click.Group) else ():
        text += f"\n## {below}\n\n{helps(command.commands[below], context, below)}"
    return text
