"""The tables of docs/understand.md."""

from __future__ import annotations

from benchmarks.record import Record

#: The measures and their titles; all are shares and are printed in points.
MEASURES = {
    "ap50": "AP50",
    "ap75": "AP75",
    "map75_95": "mAP75:95",
    **{
        f"{kind}_{iou}": f"{kind}, gain at .{iou}"
        for iou in (50, 75)
        for kind in ("classification", "localisation", "both", "duplicate", "background", "missed")
    },
    "box_error": "1 − IoU of true positives",
    "box_centre": "– of the centre",
    "box_scale": "– of the scale",
    "box_aspect": "– of the aspect",
    "calibration_50": "calibration error",
}


def error_changes(record: Record, data: str) -> str:
    """What each row changes on one data set; an interval that excludes zero is bold."""
    rows = [row for row in record["rows"] if row["set"] == data]
    pairs = list(dict.fromkeys((row["row"], row["against"]) for row in rows))
    baseline = pairs[0][1]
    cells = {(row["measure"], row["row"], row["against"]): row for row in rows}
    heads = [f"{row} against {against}" for row, against in pairs]
    lines = [f"| | {baseline} | {' | '.join(heads)} |", f"| --- |{' ---: |' * (len(pairs) + 1)}"]
    for measure, title in MEASURES.items():
        changes = [cells.get((measure, *pair)) for pair in pairs]
        if changes[0] is None or not any(row["value"] or row["baseline"] for row in changes if row):
            continue
        shown = [_change(row) if row else "–" for row in changes]
        lines.append(f"| {title} | {100 * changes[0]['baseline']:.2f} | {' | '.join(shown)} |")
    return "\n".join(lines)


def _change(row: Record) -> str:
    text = f"{100 * row['value']:+.2f}"
    if "low" not in row:
        return text
    text = f"{text} ({100 * row['low']:+.2f} to {100 * row['high']:+.2f})"
    return text if row["low"] <= 0 <= row["high"] else f"**{text}**"
