"""Small records made by hand."""

from benchmarks.losses import with_ratios

TIMES = {"fused": 0.25, "reference": 5.0, "eager": 4.0, "compiled": 1.0, "torchvision": 10.0}


def losses_row(contender, **changes):
    """One row of a losses record."""
    row = {
        "kind": "ciou",
        "alpha": 3.0,
        "dtype": "fp32",
        "pairs": 1024,
        "mode": "forward+backward",
        "contender": contender,
        "ours": contender in ("fused", "reference"),
        "wall_ms": 1.0,
        "wall_ms_fastest": 0.9,
        "device_ms": 0.5,
        "device_how": "queue" if contender == "torchvision" else "graph",
        "calls": 10,
        "error": None,
        "memory_bytes_per_pair": 36.0,
        "gb_per_s": 100.0,
        "share_of_copy": 0.75,
        "wall_vs_torchvision": None,
        "wall_vs_best_peer": None,
        "device_vs_torchvision": None,
        "device_vs_best_peer": None,
    }
    return row | changes


def losses_record():
    """A losses record with two kinds, of which others have one."""
    rows = []
    for pairs, factor in ((1024, 1.0), (4194304, 8.0)):
        for mode in ("forward", "forward+backward"):
            for kind, names in (("ciou", tuple(TIMES)), ("shape_iou", ("fused", "reference"))):
                cell = [
                    losses_row(
                        name,
                        kind=kind,
                        pairs=pairs,
                        mode=mode,
                        wall_ms=TIMES[name] * factor,
                        device_ms=TIMES[name] * factor / 2,
                    )
                    for name in names
                ]
                rows += with_ratios(cell)
    return {
        "record": "losses",
        "date": "2026-01-02T03:04:05+00:00",
        "device": "NVIDIA H200",
        "device_type": "cuda",
        "threads": 16,
        "versions": {"python": "3.12.1", "alphaiou": "0.1", "torch": "2.11", "triton": None},
        "settings": {"repeats": 10},
        "copy_gb_per_s": 4290.0,
        "complete": True,
        "rows": rows,
    }


def fuzz_row(contender, kind, alpha, domain, pairs, values, gradients, largest):
    """One counting row of a fuzz record."""
    return {
        "contender": contender,
        "kind": kind,
        "alpha": alpha,
        "dtype": "fp32",
        "test": "finite",
        "domain": domain,
        "pairs": pairs,
        "nonfinite_values": values,
        "nonfinite_gradients": gradients,
        "largest_gradient": largest,
    }


def agreement_row(kind, alpha, **changes):
    """One comparing row of a fuzz record."""
    row = {"contender": "fused", "kind": kind, "alpha": alpha, "dtype": "fp32"}
    row |= {"test": "agreement", "pairs": 1000, "comparable": 500, "value_error": 1e-6}
    row |= {"gradient_error": 2e-5, "gradient_off": 0, "value_off_all": 3, "gradient_off_all": 9}
    return row | {"examples": []} | changes


def fuzz_record():
    """A fuzz record of one kind, ours with two powers and torchvision's."""
    rows = []
    for alpha, largest in ((1.0, 360.0), (3.0, 900.0)):
        rows.append(fuzz_row("fused", "ciou", alpha, "all", 1000, 0, 0, largest * 10))
        rows.append(fuzz_row("fused", "ciou", alpha, "ordinary", 400, 0, 0, largest))
        rows.append(agreement_row("ciou", alpha, gradient_error=alpha * 1e-5))
    rows[-1] |= {"gradient_off": 2}
    rows.append(fuzz_row("torchvision", "ciou", 1.0, "all", 1000, 70, 150, 1e30))
    rows.append(fuzz_row("torchvision", "ciou", 1.0, "ordinary", 400, 20, 50, 2.5e24))
    return losses_record() | {"record": "fuzz", "rows": rows}
