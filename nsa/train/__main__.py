"""``nsa-train [CONFIG]``, or ``python -m nsa.train``: train as configured and print one JSON line per logged step.

CONFIG is a YAML file or the name of a configuration that comes with the package (``--list``). Later sources win:
defaults, CONFIG, the NSA_* switches of ``nsa.env``, ``--override "train.steps=10 model.n_layers=2"``. What differs
from the defaults is printed first, with its source, on standard error. For several processes start it with
``torchrun --nproc_per_node=2 -m nsa.train CONFIG``. ``generate``, ``evaluate`` and ``export`` take what came out of a
run: ``nsa.train.results``.

Exit status: 0 trained (or ended early by the end of the data or a HALT file), 2 the configuration cannot be run
here, 3 the loss is not finite, 4 another rank was lost, 5 a rank has no data, 143 ended by SIGTERM or
SIGINT after a checkpoint.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from nsa.env import read_launch
from nsa.errors import ConfigError, DataFailed, InputError, KernelUnavailable, NonFiniteLoss, RankLost
from nsa.train.effective import Effective, effective, names
from nsa.train.results import COMMANDS
from nsa.train.results import main as results

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

EXIT_CODES: dict[type[Exception], int] = {
    ConfigError: 2,
    InputError: 2,
    KernelUnavailable: 2,
    NonFiniteLoss: 3,
    RankLost: 4,
    DataFailed: 5,
}
ABOUT = """\
Train as configured and print one JSON line per logged step.

Later sources win: defaults, CONFIG, the NSA_* switches of the environment,
--override. What differs from the defaults is printed first, with its source,
on standard error."""
EXAMPLES = """\
Examples:
  nsa-train
  nsa-train train_showcase --override "train.steps=10 model.n_layers=2"
  nsa-train train_showcase --show
  torchrun --nproc_per_node=2 -m nsa.train train_showcase \\
      --override parallel.mode=ddp
  nsa-train generate RUN --prompt "def main("
  nsa-train evaluate RUN --text FILE
  nsa-train export RUN FOLDER --format hf

Exit codes:
  0    trained, or ended early by the end of the data or a HALT file
  2    the configuration cannot be run here
  3    the loss is not finite
  4    another rank was lost
  5    a rank has no data, or its data failed
  143  ended by SIGTERM or SIGINT, after a checkpoint"""
STOPPED = 143
"""128 + SIGTERM, as a shell says it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words and words[0] in COMMANDS:
        return _told(lambda: results(words))
    parser = argparse.ArgumentParser(
        prog="nsa-train",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("config", nargs="?", help="a YAML file of settings, or a name from --list")
    parser.add_argument(
        "--override",
        "--set",
        action="append",
        default=[],
        metavar="'PATH=VALUE ...'",
        dest="overrides",
        help="set these, e.g. 'train.steps=10 model.n_layers=2'; may be repeated",
    )
    parser.add_argument("--show", action="store_true", help="print the effective configuration as JSON and stop")
    parser.add_argument("--sources", action="store_true", help="print every setting with its source and stop")
    parser.add_argument("--list", action="store_true", help="print the configurations that come with the package")
    return _told(lambda: _configured(parser.parse_args(words)))


def _configured(options: argparse.Namespace) -> int:
    """What the options ask of a configuration: to be shown, or trained."""
    if options.list:
        return _print(names())
    built = effective(options.config, overrides=options.overrides)
    if options.show:
        return _print([built.config.to_json().rstrip()])
    if options.sources:
        return _print(built.lines())
    return _train(built)


def _told(command: Callable[[], int]) -> int:
    """Run a command; an error of ours becomes a sentence and its exit status."""
    try:
        return command()
    except tuple(EXIT_CODES) as error:
        sys.stderr.write(f"error: {error}\n")
        return next(code for kind, code in EXIT_CODES.items() if isinstance(error, kind))


def _train(built: Effective) -> int:
    """Train, watched by the run's own files, until the end or a signal."""
    launch = read_launch()
    is_first = launch is None or launch.rank == 0
    if is_first:
        for line in built.lines(only_changed=True):
            sys.stderr.write(f"[config] {line}\n")
        sys.stderr.flush()
    from nsa.train.signals import Stop
    from nsa.train.telemetry import watching
    from nsa.train.trainer import train
    from nsa.train.votes import Wish
    from nsa.train.world import check_device

    check_device(built.config)
    rank = launch.rank if launch else 0
    with Stop() as stop, watching(built.config, rank=rank, sources=built.sources) as probes:
        result = train(built.config, probes, stop_asked=stop.asked)
    if is_first and result.ended != "all steps done":
        sys.stderr.write(f"[train] {result.ended}\n")
    return STOPPED if result.wish is Wish.SIGNAL else 0


def _print(lines: object) -> int:
    sys.stdout.writelines(f"{line}\n" for line in lines)  # pyrefly: ignore[not-iterable] - lines of text
    return 0


if __name__ == "__main__":
    sys.exit(main())
