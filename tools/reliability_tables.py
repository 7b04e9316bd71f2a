"""Tables of what was disturbed and what was lost, from the records of faults and damage."""

from __future__ import annotations

from alphaiou.inference.tables import markdown
from benchmarks.record import Record

#: The layouts of data sets as people write them.
LAYOUTS = {"voc": "VOC", "coco": "COCO", "yolo": "YOLO"}


def faults_table(record: Record) -> str:
    """Each kind of fault: how often it was tried, and how often the outcome was another one.

    Examples:
        >>> row = dict(fault="grids", how="killed", expected="resumed", tried=1200, wrong=0)
        >>> print(faults_table({"rows": [row]}).splitlines()[-1])
        | grids | killed | 1,200 | resumed | 0 |
    """
    head = ["what", "fault", "tried", "expected", "otherwise"]
    lines = []
    for row in record["rows"]:
        numbers = (f"{row['tried']:,}", row["expected"], f"{row['wrong']:,}")
        lines.append([row["fault"], row["how"], *numbers])
    return markdown(head, lines, left=2)


def faults_answer(record: Record) -> str:
    """The totals of a record of faults, in sentences."""
    rows = record["rows"]
    tried, wrong = (sum(row[key] for row in rows) for key in ("tried", "wrong"))
    outcome = (
        "Every one ended as expected: nothing was lost, and no damage went unnoticed."
        if not wrong
        else f"**{wrong:,} did not end as expected**; the table shows which."
    )
    unfinished = "" if record["complete"] else " The battery was stopped before its end."
    return f"{tried:,} faults were tried. {outcome}{unfinished}"


def faults_cost(record: Record) -> str:
    """What kills and interrupts cost, in sentences."""
    rows = {row["how"]: row for row in record["rows"]}
    killed = next(row for row in rows.values() if "epochs_begun_again" in row)
    interrupted = [row for row in rows.values() if "epochs_lost" in row]
    grid = next(row for row in rows.values() if "orphans" in row)
    count = sum(row["tried"] for row in interrupted)
    return (
        f"{killed['runs']:,} trainings were killed {killed['tried']:,} times; "
        f"{killed['epochs_begun_again']:,} epochs were begun again, with a checkpoint after every "
        f"epoch. {count:,} interrupts without a checkpoint due lost "
        f"{sum(row['epochs_lost'] for row in interrupted):,} finished epochs. "
        f"{grid['tried']:,} killed grids with {grid['workers']:,} workers left "
        f"{grid['orphans']:,} processes behind."
    )


def suite_line(record: Record) -> str:
    """The size of the test suite on the day of the record."""
    tests, files = record["suite"]["tests"], record["suite"]["files"]
    return f"The suite has {tests:,} tests in {files:,} files ({record['date'][:10]})."


def damage_table(record: Record) -> str:
    """Damaged data sets by layout, and how opening and checking them ended.

    Examples:
        >>> counts = dict(tried=9, read=5, refused=4, unclear=0, crashed=0)
        >>> print(damage_table({"counts": {"voc": counts}}).splitlines()[-1])
        | VOC | 9 | 5 | 4 | 0 | 0 |
    """
    head = ["layout", "damaged sets", "opened, the rest reported", "refused with the file"]
    head += ["refused without", "crashed"]
    keys = ("tried", "read", "refused", "unclear", "crashed")
    lines = [
        [LAYOUTS[layout], *(f"{counts[key]:,}" for key in keys)]
        for layout, counts in record["counts"].items()
    ]
    return markdown(head, lines, left=1)
