"""``python -m alphaiou.experiments.bench losses|fuzz [options]``: the command without tyro."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from benchmarks.settings import FuzzBench, LossBench
from benchmarks.terminal import bench_fuzz, bench_losses

TASKS: dict[str, tuple[type, Callable[[Any], Path]]] = {
    "losses": (LossBench, bench_losses),
    "fuzz": (FuzzBench, bench_fuzz),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark that the first argument names."""
    parser = argparse.ArgumentParser(prog="python -m alphaiou.experiments.bench")
    tasks = parser.add_subparsers(dest="task", required=True)
    for name, (kind, _) in TASKS.items():
        task = tasks.add_parser(name, help=(kind.__doc__ or "").splitlines()[0])
        for one in fields(kind):
            _add_option(task, one.name, None if one.default is MISSING else one.default)
    options = vars(parser.parse_args(argv))
    kind, run = TASKS[options.pop("task")]
    try:
        settings = kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in options.items()})
        run(settings)
    except ValueError as error:
        sys.stderr.write(f"bench: {error}\n")
        return 2
    return 0


def _add_option(parser: argparse.ArgumentParser, name: str, default: Any) -> None:
    flag = "--" + name.replace("_", "-")
    if isinstance(default, bool):
        action = argparse.BooleanOptionalAction
        parser.add_argument(flag, default=default, action=action)
    elif isinstance(default, tuple):
        each = type(default[0]) if default else int if name == "sizes" else str
        parser.add_argument(flag, nargs="+", default=default, type=each)
    else:
        parser.add_argument(flag, default=default, type=Path if default is None else type(default))


if __name__ == "__main__":
    sys.exit(main())
