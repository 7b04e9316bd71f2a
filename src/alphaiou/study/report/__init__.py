"""The HTML report of a study."""

from alphaiou.study.report.page import report_page, write_report

__all__ = ["report_page", "write_report"]
