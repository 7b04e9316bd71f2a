"""``alphaiou paper``: the paper's tables and figures, run again."""

from alphaiou.cli.paper.list import PaperList, run_paper_list
from alphaiou.cli.paper.plots import PaperPlots, run_paper_plots
from alphaiou.cli.paper.report import PaperReport, run_paper_report
from alphaiou.cli.paper.run import PaperRun, run_paper_run
from alphaiou.cli.paper.tables import PaperTables, run_paper_tables
from alphaiou.cli.tasks import command_of

PAPER = command_of(
    "Run the paper's tables and figures again, with intervals.",
    {
        "list": (PaperList, run_paper_list),
        "run": (PaperRun, run_paper_run),
        "tables": (PaperTables, run_paper_tables),
        "plots": (PaperPlots, run_paper_plots),
        "report": (PaperReport, run_paper_report),
    },
)
