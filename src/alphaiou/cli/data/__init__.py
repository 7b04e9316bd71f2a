"""``alphaiou data``: look at data sets, and make new ones of them."""

from alphaiou.cli.data.check import DataCheck, run_data_check
from alphaiou.cli.data.convert import DataConvert, run_data_convert
from alphaiou.cli.data.noise import DataNoise, run_data_noise
from alphaiou.cli.data.stats import DataStats, run_data_stats
from alphaiou.cli.data.subset import DataSubset, run_data_subset
from alphaiou.cli.tasks import command_of
from alphaiou.data.formats.registry import FORMATS

DATA = command_of(
    f"Check, convert, cut, describe or perturb a data set.\n\nLayouts: {', '.join(FORMATS)}.",
    {
        "check": (DataCheck, run_data_check),
        "convert": (DataConvert, run_data_convert),
        "subset": (DataSubset, run_data_subset),
        "stats": (DataStats, run_data_stats),
        "noise": (DataNoise, run_data_noise),
    },
)
