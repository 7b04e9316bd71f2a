"""``alphaiou curves``."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Curves:
    """Draw the loss, its gradient and its reweighting against the IoU.

    Writes to --out:
    - loss_and_gradient.png, .svg   the loss and its gradient (the paper's Figure 1)
    - reweighting.png, .svg         the weights of the paper's Properties 2 to 5
    - curves.csv                    all plotted values
    """

    alphas: tuple[float, ...] = (0.5, 1.0, 2.0, 3.0, 5.0)
    """Values of α to draw, each above 0; 1 is the plain IoU loss."""

    out: Path = Path("runs/curves")
    """Folder to write to."""


def run_curves(command: Curves) -> int:
    """Write the figures and the CSV, and print the turning points."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from alphaiou.cli import UsageError
    from alphaiou.curves import compute_curves, save_figures, write_csv
    from alphaiou.properties import turning_point

    try:
        curves = compute_curves(command.alphas)
    except ValueError as error:
        raise UsageError(f"--alphas: {error}") from None
    console = Console()
    table = Table("α", "IoU", title="turning points", box=box.SIMPLE_HEAD)
    for alpha in curves:
        table.add_row(f"{alpha:g}", f"{turning_point(alpha):.4f}")
    console.print(table)
    for path in (write_csv(curves, command.out / "curves.csv"), *save_figures(curves, command.out)):
        console.print(f"wrote {path}", highlight=False, soft_wrap=True)
    return 0
