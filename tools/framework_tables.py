"""Tables of the frameworks and the versions on which the losses were tested."""

from __future__ import annotations

from alphaiou.inference.tables import markdown
from alphaiou.losses.kinds import kind_title
from benchmarks.record import Record, Row

BACKENDS = {"auto": "ours, default", "reference": "ours, reference", "fused": "ours, fused"}
BACKENDS["torchvision"] = "torchvision"


def frameworks_table(record: Record) -> str:
    """One row per framework: versions, difference at α = 1, whether it was called, step time.

    Examples:
        >>> row = {"framework": "yolov5", "versions": {"torch": "2.5.1", "yolov5": "7.0.14"}}
        >>> row |= {"model": "YOLOv5n", "own_kind": "ciou", "largest_relative_difference": 2e-7}
        >>> row |= {"rounding_relative_difference": 3e-6}
        >>> row |= {"called": True, "ratio_alpha_3": 1.014, "date": "2026-11-19"}
        >>> print(frameworks_table({"rows": [row]}).splitlines()[-1])
        | yolov5 7.0.14 | 2.5.1 | YOLOv5n | CIoU | 2e-07 | 3e-06 | yes | 1.01× | 2026-11-19 |
    """
    head = ["framework", "torch", "model", "its own loss", "largest difference at α = 1, relative"]
    head += ["own loss, weights rounded", "called", "time of a step at α = 3", "last run"]
    lines = [
        [
            f"{row['framework']} {row['versions'][row['framework']]}",
            row["versions"]["torch"],
            row["model"],
            kind_title(row["own_kind"]),
            f"{row['largest_relative_difference']:.0e}",
            f"{row['rounding_relative_difference']:.0e}",
            "yes" if row["called"] else "no",
            f"{row['ratio_alpha_3']:.2f}×",
            row["date"],
        ]
        for row in record["rows"]
    ]
    return markdown(head, lines, left=4)


def mmdetection_table(record: Record) -> str:
    """One row per detector and kind of MMDetection: calls, differences at α = 1, step time.

    Examples:
        >>> kind = {"calls": 5, "call_loss": 0.0, "call_gradient": 2e-7, "training": 6e-4}
        >>> row = {"detector": "YOLOX", "giou": kind | {"training_rounding": 6e-3}}
        >>> row |= {"diou": row["giou"], "ratio_alpha_3": 1.014}
        >>> print(mmdetection_table({"rows": [row]}).splitlines()[2])
        | YOLOX | GIoU | 5 | 0e+00 | 2e-07 | 6e-04 | 6e-03 | 1.01× |
    """
    head = ["detector", "loss", "calls", "loss of a call", "gradient of a call"]
    head += ["training", "training, weights rounded", "time of an iteration at α = 3"]
    differences = ("call_loss", "call_gradient", "training", "training_rounding")
    lines = [
        [
            row["detector"],
            kind_title(kind),
            str(row[kind]["calls"]),
            *(f"{row[kind][name]:.0e}" for name in differences),
            f"{row['ratio_alpha_3']:.2f}×",
        ]
        for row in record["rows"]
        for kind in ("giou", "diou")
    ]
    return markdown(head, lines, left=2)


def openmmlab_table(record: Record, package: str) -> str:
    """One row per detector and kind of MMYOLO or MMRotate: calls, differences at α = 1, step time.

    Examples:
        >>> row = {"package": "mmyolo", "detector": "YOLOv8-n", "kind": "ciou", "own": "IoULoss"}
        >>> row |= {"calls": 5, "call_loss": 2e-7, "call_gradient": 3e-7, "own_not_finite": 0}
        >>> row |= {"call_gradient_float64": 3e-9, "training": 6e-6, "training_rounding": 6e-5}
        >>> row |= {"ratio_alpha_3": 1.014}
        >>> print(openmmlab_table({"rows": [row]}, "mmyolo").splitlines()[-1])
        | YOLOv8-n | CIoU | `IoULoss` | 5 | 0 | 2e-07 | 3e-07 | 3e-09 | 6e-06 | 6e-05 | 1.01× |
    """
    head = ["detector", "loss", "compared with", "calls", "theirs not finite", "loss of a call"]
    head += ["gradient of a call", "in float64", "training", "training, weights rounded"]
    head += ["time of an iteration at α = 3"]
    differences = ["call_loss", "call_gradient", "call_gradient_float64"]
    differences += ["training", "training_rounding"]
    lines = [
        [
            row["detector"],
            kind_title(row["kind"]),
            f"`{row['own']}`",
            str(row["calls"]),
            str(row.get("own_not_finite", "–")),
            *("–" if row.get(name) is None else f"{row[name]:.0e}" for name in differences),
            _times(row.get("ratio_alpha_3")),
        ]
        for row in record["rows"]
        if row["package"] == package
    ]
    return markdown(head, lines, left=3)


def formulas_table(record: Record) -> str:
    """The largest difference of a pair of boxes from the losses of MMYOLO and MMRotate.

    Examples:
        >>> row = {"package": "mmrotate", "kind": "kld", "own": "GDLoss kld", "pairs": 10000}
        >>> print(formulas_table({"formulas": [row | {"difference": 2e-14}]}).splitlines()[-1])
        | mmrotate, GDLoss kld | KLD | 10,000 | 2e-14 |
    """
    lines = [
        [
            f"{row['package']}, {row['own']}",
            kind_title(row["kind"]),
            f"{row['pairs']:,}",
            f"{row['difference']:.0e}",
        ]
        for row in record["formulas"]
    ]
    return markdown(["loss", "ours", "pairs", "largest difference at α = 1"], lines, left=2)


def versions_table(record: Record) -> str:
    """The outcomes of the core's tests per version of Python and torch.

    Examples:
        >>> row = {"python": "3.10.13", "torch": "2.1.2", "passed": 4569, "skipped": 8}
        >>> print(versions_table({"rows": [row | {"failed": 0, "error": 0}]}).splitlines()[-1])
        | 3.10.13 | 2.1.2 | 4,569 | 8 | 0 |
    """
    lines = [
        [row["python"], row["torch"], *(["not installed"] + ["–"] * 2)]
        if "missing" in row
        else [
            row["python"],
            row["torch"],
            f"{row['passed']:,}",
            str(row["skipped"]),
            str(row["failed"] + row["error"]),
        ]
        for row in record["rows"]
    ]
    return markdown(["Python", "torch", "passed", "skipped", "failed"], lines, left=2)


def plain_table(record: Record) -> str:
    """CIoU on the CPU, forward and backward: milliseconds of every contender."""
    rows = [row for row in record["rows"] if row["kind"] == "ciou"]
    cells: dict[tuple[int, str, int], dict[str, Row]] = {}
    for row in rows:
        cell = cells.setdefault((row["threads"], row["dtype"], row["pairs"]), {})
        cell[row["contender"]] = row
    head = ["threads", "dtype", "pairs", *BACKENDS.values(), "default × torchvision"]
    lines = [
        [
            str(threads),
            dtype,
            f"{pairs:,}",
            *(_milliseconds(cell.get(name, {}).get("ms")) for name in BACKENDS),
            _times(cell["torchvision"]["auto_is_faster"]),
        ]
        for (threads, dtype, pairs), cell in cells.items()
    ]
    return markdown(head, lines, left=2)


def plain_kinds_table(record: Record) -> str:
    """Every kind on the CPU in fp32 on one thread: the default, and its speed relative to others.

    Examples:
        >>> cell = {"kind": "diou", "pairs": 1000, "dtype": "fp32", "threads": 1}
        >>> times = {"auto": (0.2, 1.0), "reference": (0.5, 2.5), "torchvision": (0.3, 1.5)}
        >>> rows = [cell | {"contender": c, "ms": t, "auto_is_faster": f}
        ...         for c, (t, f) in times.items()]
        >>> print(plain_kinds_table({"rows": rows}))
        | loss | 1,000 pairs | × reference | × torchvision |
        | --- | ---: | ---: | ---: |
        | DIoU | 0.2 ms | 2.50× | 1.50× |
    """
    rows = [row for row in record["rows"] if (row["dtype"], row["threads"]) == ("fp32", 1)]
    cells = {(row["kind"], row["pairs"], row["contender"]): row for row in rows}
    sizes = list(dict.fromkeys(row["pairs"] for row in rows))
    head, lines = ["loss"], []
    for pairs in sizes:
        head += [f"{pairs:,} pairs", "× reference", "× torchvision"]
    for kind in dict.fromkeys(row["kind"] for row in rows):
        line = [kind_title(kind)]
        for pairs in sizes:
            auto, *others = (
                cells.get((kind, pairs, name), {}) for name in ("auto", "reference", "torchvision")
            )
            line.append(_milliseconds(auto.get("ms")))
            line += [_times(other.get("auto_is_faster")) for other in others]
        lines.append(line)
    return markdown(head, lines, left=1)


def _milliseconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g} ms"


def _times(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}×"
