"""The root of this package's own errors."""


class AlphaIoUError(Exception):
    """Something outside the program is wrong; the message names it and the remedy.

    The command line prints the message alone, without a traceback.
    """
