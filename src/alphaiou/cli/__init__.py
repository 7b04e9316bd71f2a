"""The command line. Each command is a module with one frozen dataclass and one function.

Module-level imports use the standard library only. With nothing but the losses installed, the
command still starts and reports which extra to install.
"""

import os
import sys
from collections.abc import Sequence

from alphaiou.errors import AlphaIoUError, TerminatedError, install_hint

#: The extra that installs each optional module.
EXTRAS = {
    **dict.fromkeys(("tyro", "rich", "matplotlib", "numpy"), "cli"),
    **dict.fromkeys(("torchvision", "PIL", "yaml", "msgspec", "hotcoco"), "data"),
    **dict.fromkeys(("lightning", "safetensors", "scipy"), "train"),
    **dict.fromkeys(("onnx", "onnxscript", "onnxruntime"), "export"),
    "transformers": "detr",
    "optuna": "tune",
    "av": "video",
}


class UsageError(Exception):
    """Invalid command-line arguments; the message lists the allowed values."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: The arguments after the program name; ``sys.argv[1:]`` by default.

    Returns:
        The exit code: 0 for success, 1 for a failure, 2 for invalid arguments, 130 after Ctrl-C,
        143 after SIGTERM.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        from alphaiou.cli.commands import run

        return run(arguments)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRAS:
            raise
        return _without(missing, arguments)
    except UsageError as error:
        return _fail(str(error), 2)
    except OSError as error:
        return _fail_outside(error)
    except AlphaIoUError as error:
        return _fail(str(error), 1)
    except KeyboardInterrupt as stop:
        code = 143 if isinstance(stop, TerminatedError) else 130
        return _fail("interrupted; run the same command again to continue", code)


def _without(missing: str, arguments: Sequence[str]) -> int:
    """Report which extra to install; ``alphaiou doctor`` runs without it."""
    if arguments == ["doctor"]:
        from alphaiou.cli.doctor import Doctor, run_doctor

        return run_doctor(Doctor())
    install = install_hint(EXTRAS[missing])
    return _fail(f"this command needs {missing}, which is not installed: {install}", 1)


def _fail_outside(error: OSError) -> int:
    """Report an operating system error; stay silent if the output pipe was closed."""
    if isinstance(error, BrokenPipeError):
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
        return 1
    named = error.filename is not None and error.strerror
    return _fail(f"{error.filename}: {error.strerror}" if named else str(error), 1)


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"alphaiou: {message}\n")
    return code
