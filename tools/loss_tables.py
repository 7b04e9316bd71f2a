"""The records of ``alphaiou bench losses`` as tables."""

from __future__ import annotations

from collections.abc import Sequence

from alphaiou.inference.tables import figures, markdown, share, times
from alphaiou.losses.spec import LossSpec
from benchmarks.record import Record, Row

CONTENDERS = {
    "fused": "ours, fused",
    "reference": "ours, reference",
    "eager": "textbook, eager",
    "compiled": "textbook, torch.compile",
    "torchvision": "torchvision",
}
BACKWARD = "forward+backward"


def losses_table(record: Record, *, clock: str = "wall", mode: str = BACKWARD) -> str:
    """Milliseconds of everybody, for the losses that others have too; fp32, α = 3.

    Args:
        record: What ``alphaiou bench losses`` wrote.
        clock: ``wall``, from Python, or ``device``.
        mode: ``forward`` or ``forward+backward``.
    """
    shown = [
        rows
        for rows in by_cell(record).values()
        if _is(rows, dtype="fp32", alpha=3.0, mode=mode) and any(not r["ours"] for r in rows)
    ]
    names = [n for n in CONTENDERS if any(_of(rows, n) for rows in shown)]
    head = ["loss", "pairs", *(CONTENDERS[n] for n in names), "× torchvision", "× best of others"]
    lines = []
    for rows in sorted(shown, key=lambda rows: rows[0]["pairs"]):
        ours = _ours(rows)
        lines.append(
            [
                LossSpec(rows[0]["kind"], rows[0]["alpha"]).display_name,
                f"{rows[0]['pairs']:,}",
                *(milliseconds(_of(rows, name), clock) for name in names),
                times(ours[f"{clock}_vs_torchvision"]),
                times(ours[f"{clock}_vs_best_peer"]),
            ]
        )
    return markdown(head, lines, left=1)


def kinds_table(record: Record, *, mode: str = BACKWARD) -> str:
    """Every kind of ours at the smallest and the largest size: times, bandwidth and memory."""
    cells = [r for r in by_cell(record).values() if _is(r, dtype="fp32", alpha=3.0, mode=mode)]
    sizes = sorted({rows[0]["pairs"] for rows in cells})
    accelerator = record["device_type"] != "cpu"
    head = ["loss", f"wall, {sizes[0]:,} pairs", f"wall, {sizes[-1]:,}"]
    head += [f"device, {sizes[-1]:,}"] * accelerator + ["of the copy bandwidth"]
    head += ["bytes a pair beyond the inputs"] * accelerator
    lines = []
    for kind in dict.fromkeys(rows[0]["kind"] for rows in cells):
        of_kind = {rows[0]["pairs"]: _ours(rows) for rows in cells if rows[0]["kind"] == kind}
        small, large = of_kind[sizes[0]], of_kind[sizes[-1]]
        line = [LossSpec(kind, 3.0).display_name, milliseconds(small, "wall")]
        line += [milliseconds(large, "wall")] + [milliseconds(large, "device")] * accelerator
        line += [share(large["share_of_copy"])] + [_memory(large)] * accelerator
        lines.append(line)
    return markdown(head, lines, left=1)


def precision_table(record: Record, *, mode: str = BACKWARD) -> str:
    """CIoU in every dtype and with α = 1 and 3, ours: what precision and the power cost."""
    lines = []
    for rows in by_cell(record).values():
        if not _is(rows, kind="ciou", mode=mode):
            continue
        ours = _ours(rows)
        line = [f"{ours['pairs']:,}", ours["dtype"], f"{ours['alpha']:g}"]
        line += [milliseconds(ours, clock) for clock in ("wall", "device")]
        lines.append([*line, share(ours["share_of_copy"])])
    head = ["pairs", "dtype", "α", "wall", "device", "of the copy bandwidth"]
    return markdown(head, sorted(lines, key=lambda line: int(line[0].replace(",", ""))), left=0)


def memory_table(record: Record) -> str:
    """Bytes a pair held beyond the inputs at the peak of forward and backward, fp32, largest."""
    cells = [
        rows
        for rows in by_cell(record).values()
        if _is(rows, dtype="fp32", alpha=3.0, mode=BACKWARD) and any(not r["ours"] for r in rows)
    ]
    largest = max(rows[0]["pairs"] for rows in cells)
    names = [n for n in CONTENDERS if any(_of(rows, n) for rows in cells)]
    lines = [
        [LossSpec(rows[0]["kind"], 3.0).display_name, *(_memory(_of(rows, n)) for n in names)]
        for rows in cells
        if rows[0]["pairs"] == largest
    ]
    return markdown(["loss", *(CONTENDERS[n] for n in names)], lines, left=1)


def by_cell(record: Record) -> dict[tuple[object, ...], list[Row]]:
    """The rows that belong together, in the order of the record."""
    found: dict[tuple[object, ...], list[Row]] = {}
    for row in record["rows"]:
        key = tuple(row[name] for name in ("kind", "alpha", "dtype", "pairs", "mode"))
        found.setdefault(key, []).append(row)
    return found


def milliseconds(row: Row | None, clock: str) -> str:
    """A time with three figures, and with how it was taken where that is unusual."""
    value = None if row is None else row[f"{clock}_ms"]
    if row is None or value is None:
        return "–"
    queued = clock == "device" and row["device_how"] == "queue"
    return f"{figures(value)} ms" + "*" * queued


def _memory(row: Row | None) -> str:
    value = None if row is None else row["memory_bytes_per_pair"]
    return "–" if value is None else f"{value:,.0f}"


def _is(rows: Sequence[Row], **wanted: object) -> bool:
    return all(rows[0][key] == value for key, value in wanted.items())


def _of(rows: Sequence[Row], name: str) -> Row | None:
    return next((row for row in rows if row["contender"] == name), None)


def _ours(rows: Sequence[Row]) -> Row:
    return _of(rows, "fused") or _of(rows, "reference") or rows[0]
