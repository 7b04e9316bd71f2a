"""The root of this package's own errors, notes on errors, and the end of a process."""


class AlphaIoUError(Exception):
    """Something outside the program is wrong; the message names it and the remedy.

    The command line prints the message alone, without a traceback.
    """


def install_hint(extra: str) -> str:
    """The command that installs an extra; there is no release on PyPI, so it needs a clone.

    Examples:
        >>> install_hint("train")
        "pip install '.[train]' in a clone of alphaiou"
    """
    return f"pip install '.[{extra}]' in a clone of alphaiou"


def add_note(error: BaseException, note: str) -> None:
    """``error.add_note(note)``, which Python 3.10 does not have: there the note is only kept."""
    if hasattr(error, "add_note"):
        error.add_note(note)
    else:
        error.__notes__ = [*getattr(error, "__notes__", ()), note]  # type: ignore[attr-defined]


class TerminatedError(KeyboardInterrupt):
    """The process was asked to end by SIGTERM."""
