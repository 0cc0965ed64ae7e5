"""The shells that complete our words; where none of those fits, the names of files, as they do without us."""

from __future__ import annotations

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    get_completion_class,
)

from harness.cli.exit_codes import ExitCode


class _WithFiles(ShellComplete):
    """Completion that leaves to the shell what is no word of ours: a stranger's command line, a path."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        """Our words, or that a file is to be named."""
        return super().get_completions(args, incomplete) or [CompletionItem(incomplete, type="file")]


class _Bash(_WithFiles, BashComplete):
    pass


class _Zsh(_WithFiles, ZshComplete):
    pass


class _Fish(_WithFiles, FishComplete):
    pass


for _shell in (_Bash, _Zsh, _Fish):
    add_completion_class(_shell)


def refuse_others(instruction: str) -> None:
    """End with a sentence where ``instruction`` (``bash_source``) names a shell for which there is no completion."""
    shell = instruction.partition("_")[0]
    if get_completion_class(shell) is None:
        click.echo(f"there is no completion for {shell!r}, only for bash, zsh and fish (bash_source)", err=True)
        raise SystemExit(ExitCode.USAGE)
