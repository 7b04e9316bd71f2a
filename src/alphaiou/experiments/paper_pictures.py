"""What the detectors of a grid find, where it was kept beside their records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from alphaiou.experiments.compare import ComparedRun
from alphaiou.experiments.detection_pictures import FINDINGS, Findings, findings_of
from alphaiou.experiments.paper_records import CellRuns, run_folder


def seen_runs(
    cells: Mapping[str, CellRuns], paths: Mapping[str, Path]
) -> dict[str, list[ComparedRun]]:
    """The runs of every cell whose findings are on the disk; nothing is computed for it.

    Args:
        cells: What ``grid_scores`` gives.
        paths: Where the records are, as ``record_paths`` gives them.
    """
    seen: dict[str, list[ComparedRun]] = {}
    for label, own in cells.items():
        for _, record in sorted(own.runs.items()):
            folder = run_folder(paths[record["name"]])
            if (folder / FINDINGS).is_file():
                run = ComparedRun(record, findings_of(folder), folder)
                seen.setdefault(label, []).append(run)
    return seen


def alike(seen: Mapping[str, Sequence[ComparedRun]], most: int) -> dict[str, ComparedRun]:
    """The first run of some cells that were looked at on the same images, to be shown together."""
    firsts = {label: runs[0] for label, runs in seen.items()}
    if not firsts:
        return {}
    images = _images(next(iter(firsts.values())).findings)
    same = [label for label, run in firsts.items() if _images(run.findings) == images]
    return {label: firsts[label] for label in same[:most]}


def _images(findings: Findings) -> tuple[object, ...]:
    return findings.split, *(example.picture for example in findings.examples)


def compared_pairs(
    cells: Mapping[str, CellRuns], paths: Mapping[str, Path]
) -> list[tuple[str, str, Path, Path]]:
    """The labels of every baseline and its cell, and the folders of their first shared seed."""
    pairs = []
    for label, own in cells.items():
        base = cells.get(own.cell.baseline or "")
        seeds = sorted(own.runs.keys() & base.runs.keys()) if base else []
        if base and seeds:
            runs = (one.runs[seeds[0]]["name"] for one in (base, own))
            first, second = (run_folder(paths[name]) for name in runs)
            pairs.append((base.cell.label, label, first, second))
    return pairs
