"""Tables of training: steps, detectors, batch norm, and trainings of other frameworks."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import groupby

from alphaiou.inference.tables import comparison_markdown, markdown
from alphaiou.losses.kinds import kind_title
from alphaiou.losses.spec import LossSpec
from alphaiou.metrics.comparison import comparison_rows
from benchmarks.record import Record, Row
from tools.loss_tables import times

OURS = "ours"


def training_table(record: Record) -> str:
    """Time of a training step and images per second.

    Examples:
        >>> row = {"detector": "yolov5s", "image_size": 320, "batch_size": 64, "commit": "abc"}
        >>> row |= {"images_per_second": 5000.4, "ms_per_step": 12.8, "data": "noise"}
        >>> print(training_table({"rows": [row]}).splitlines()[-1])
        | yolov5s | 320 | 64 | 5,000 | 12.8 | noise | abc |
    """
    head = ("detector", "pixels", "batch", "images a second", "ms a step", "of what", "commit")
    lines = [
        [
            row["detector"],
            str(row["image_size"]),
            str(row["batch_size"]),
            f"{row['images_per_second']:,.0f}",
            f"{row['ms_per_step']:.1f}",
            row["data"],
            row["commit"],
        ]
        for row in record["rows"]
    ]
    return markdown(head, lines, left=1)


def training_parts_table(record: Record) -> str:
    """Where the time of a step goes, each part as a graph of its own."""
    rows = [row for row in record["rows"] if "parts_ms" in row]
    names = list(rows[0]["parts_ms"])
    lines = [
        [
            f"{row['detector']}, {row['image_size']}",
            *(f"{row['parts_ms'][name]:.2f} ms" for name in names),
            row["commit"],
        ]
        for row in rows
    ]
    return markdown(["detector, pixels", *names, "commit"], lines, left=1)


def training_times_table(record: Record) -> str:
    """The seconds that a training spends beside its steps."""
    lines = [
        [row["what"], ", ".join(f"{seconds:.1f}" for seconds in row["seconds"]), row["commit"]]
        for row in record["times"]
    ]
    return markdown(("what", "seconds, each time", "commit"), lines, left=1)


def training_profile_table(record: Record) -> str:
    """The kernels of a step and their time, version by version.

    Examples:
        >>> parts = {"copies": {"kernels": 10, "ms": 0.092}}
        >>> step = {"step": "now", "commit": "abc", "ms_per_step": 7.53, "parts": parts}
        >>> print(training_profile_table({"profile": {"steps": [step]}}))
        |  | now (abc) |
        | --- | ---: |
        | copies | 0.09 ms (10) |
        | the step | 7.5 ms |
    """
    steps = record["profile"]["steps"]
    lines = [
        [part, *(f"{s['parts'][part]['ms']:.2f} ms ({s['parts'][part]['kernels']})" for s in steps)]
        for part in steps[0]["parts"]
    ]
    lines.append(["the step", *(f"{step['ms_per_step']:.1f} ms" for step in steps)])
    head = ["", *(f"{step['step']} ({step['commit']})" for step in steps)]
    return markdown(head, lines, left=1)


def norm_silu_table(record: Record) -> str:
    """Batch norm with SiLU, forward and backward, at the sizes of a network.

    Examples:
        >>> row = {"rows": 6400, "channels": 512, "megabytes": 6.6, "torch_ms": 0.04}
        >>> row |= {"ours_ms": 0.02, "ours_of_copy": 0.5, "torch_of_copy": 0.25}
        >>> print(norm_silu_table({"rows": [row]}).splitlines()[-1])
        | 6,400 | 512 | 6.6 | 20 µs | 40 µs | 2.0× | 50 % | 25 % |
    """
    head = ["pixels", "channels", "MB", "ours", "torch", "torch by ours", "of a copy’s speed"]
    lines = [
        [
            f"{row['rows']:,}",
            str(row["channels"]),
            f"{row['megabytes']:.1f}",
            f"{1e3 * row['ours_ms']:.0f} µs",
            f"{1e3 * row['torch_ms']:.0f} µs",
            f"{row['torch_ms'] / row['ours_ms']:.1f}×",
            f"{100 * row['ours_of_copy']:.0f} %",
            f"{100 * row['torch_of_copy']:.0f} %",
        ]
        for row in record["rows"]
    ]
    return markdown([*head, "torch’s"], lines, left=0)


def side_by_side_table(record: Record) -> str:
    """Several trainings on one GPU at once, and whether under MPS where that was recorded.

    Examples:
        >>> row = {"trainings": 2, "images_per_second": [3000, 3100], "commit": "abc"}
        >>> print(side_by_side_table({"side_by_side": [row | {"mps": False}]}).splitlines()[-1])
        | 2 | no | 3,000, 3,100 | 6,100 | abc |
    """
    head = ("trainings at once", "MPS", "images a second of each", "together", "commit")
    lines = [
        [
            str(row["trainings"]),
            {True: "yes", False: "no", None: "–"}[row.get("mps")],
            ", ".join(f"{speed:,.0f}" for speed in row["images_per_second"]),
            f"{sum(row['images_per_second']):,.0f}",
            row["commit"],
        ]
        for row in record["side_by_side"]
    ]
    return markdown(head, lines, left=0)


def detector_table(record: Record) -> str:
    """Training steps side by side, one line per contender.

    Examples:
        >>> rows = [{"contender": "detr_r50, transformers", "ms_per_step": 90.0}]
        >>> rows += [{"contender": "detr_r50, ours", "ms_per_step": 30.0, "memory_gib": 4.25}]
        >>> for row in rows:
        ...     row["images_per_second"] = 16e3 / row["ms_per_step"]
        >>> print(*detector_table({"rows": rows}).splitlines()[2:], sep="\\n")
        | detr_r50 | transformers | 90.0 | 178 | – | – |
        | detr_r50 | ours | 30.0 | 533 | 3.0× | 4.2 |
    """
    head = ("detector", "step of", "ms a step", "images a second", "ours by theirs")
    lines = [_line(row, record["rows"]) for row in record["rows"]]
    return markdown([*head, "GiB at the peak"], lines, left=2)


def detector_parts_table(record: Record) -> str:
    """Where the time of our step goes, each part as a graph of its own, and what is left."""
    rows = [row for row in record["rows"] if "parts_ms" in row]
    names = list(dict.fromkeys(name for row in rows for name in row["parts_ms"]))
    head = ["detector", *names, "the rest of the step"]
    return markdown(head, [_parts(row, names) for row in rows], left=1)


def integration_table(record: Record) -> str:
    """Our loss in the trainings of other frameworks: difference at α = 1, and time of a step.

    Examples:
        >>> row = {"framework": "rfdetr", "version": "1.11", "own_kind": "giou", "lines_changed": 1}
        >>> row |= {"largest_relative_difference": 7e-7, "ratio_alpha_1": 0.981}
        >>> record = {"device": "NVIDIA H200", "rows": [row | {"ratio_alpha_3": 1.0}]}
        >>> print(integration_table(record).splitlines()[-1])
        | rfdetr 1.11 | NVIDIA H200 | GIoU | 1 | 7e-07 | 0.98× | 1.00× |
    """
    head = ["framework", "device", "its own loss", "lines changed"]
    head += [
        "largest difference of a loss at α = 1, relative",
        "time of a step at α = 1",
        "at α = 3",
    ]
    lines = [
        [
            f"{row['framework']} {row['version']}",
            record["device"],
            kind_title(row["own_kind"]),
            str(row["lines_changed"]),
            f"{row['largest_relative_difference']:.0e}",
            f"{row['ratio_alpha_1']:.2f}×",
            f"{row['ratio_alpha_3']:.2f}×",
        ]
        for row in record["rows"]
    ]
    return markdown(head, lines, left=3)


def framework_runs_table(record: Record) -> str:
    """The scores of each loss, the framework's own first, and the settings of the training."""
    runs = sorted(record["runs"], key=lambda run: not run["loss"]["own"])
    rows = comparison_rows({_loss_name(run): run["scores"] for run in runs})
    return f"{comparison_markdown(rows, first='loss')}\n\n{_circumstances(runs[0])}"


def small_sets_table(record: Record) -> str:
    """The scores of small data sets by ``studies.own_data``, means over the seeds."""
    columns = [(split, name) for split in ("train", "test") for name in ("ap50", "map")]
    heads = ["AP50, training images", "mAP", "AP50, test images", "mAP", "time per image"]
    rows = []
    groups = groupby(record["runs"], key=lambda run: (run["job"]["data"], run["job"]["framework"]))
    for (data, framework), group in groups:
        runs = list(group)
        scores = [[100 * run["scores"][split][name] for run in runs] for split, name in columns]
        means = [statistics.fmean(values) for values in scores]
        # Times of runs that shared the machine say nothing.
        seconds = [run["seconds_per_image"] for run in runs if run["side_by_side"] == 1]
        clock = f"{1000 * statistics.median(seconds):.2f} ms" if seconds else "–"
        epochs, seeds = runs[0]["job"]["epochs"], len(runs)
        label = f"{data}, {epochs} epochs, {seeds} seeds"
        rows.append([label, framework, *(f"{mean:.1f}" for mean in means), clock])
    return markdown(["data set", "trained with", *heads], rows, left=2)


def _line(row: Row, rows: Sequence[Row]) -> list[str]:
    detector, whose = _names(row)
    if "error" in row:
        return [detector, whose, "failed", "–", "–", "–"]
    memory = f"{row['memory_gib']:.1f}" if "memory_gib" in row else "–"
    numbers = [f"{row['ms_per_step']:.1f}", f"{row['images_per_second']:,.0f}"]
    return [detector, whose, *numbers, times(_ratio(row, rows)), memory]


def _ratio(row: Row, rows: Sequence[Row]) -> float | None:
    """Our speed over that of the fastest other implementation; None for the others."""
    detector, whose = _names(row)
    speeds = [
        other["images_per_second"]
        for other in rows
        if "error" not in other and _names(other)[0] == detector and _names(other)[1] != OURS
    ]
    return row["images_per_second"] / max(speeds) if whose == OURS and speeds else None


def _parts(row: Row, names: Sequence[str]) -> list[str]:
    parts: dict[str, float] = row["parts_ms"]
    rest = row["ms_per_step"] - sum(parts.values())
    return [_names(row)[0], *(f"{parts[name]:.2f} ms" for name in names), f"{rest:.2f} ms"]


def _names(row: Row) -> tuple[str, str]:
    detector, _, whose = row["contender"].partition(", ")
    return detector, whose


def _loss_name(run: Record) -> str:
    loss = dict(run["loss"])
    is_own = loss.pop("own")
    name = LossSpec(**loss).display_name
    return f"{name}, its own" if is_own else name


def _circumstances(run: Record) -> str:
    settings, versions = run["settings"], run["versions"]
    seconds = statistics.median(epoch["seconds"] for epoch in run["history"])
    return (
        f"{run['framework']} {run['version']}, {run['model']} from random weights on "
        f"{run['train_images']:,} images of {run['data']}: {settings['epochs']} epochs at "
        f"{settings['imgsz']} px, batch {settings['batch']}, {settings['optimizer']}, box gain "
        f"{settings['box']:g}, seed {settings['seed']}. Scored on {run['test_images']:,} test "
        f"images by its own validator. {run['device']}, torch {versions['torch']}, "
        f"{run['side_by_side']} trainings side by side, {seconds:.1f} s an epoch."
    )
