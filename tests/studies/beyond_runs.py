"""Made-up runs of the grid ``beyond``."""

from pathlib import Path

from alphaiou.paper.grids import paper_grids
from alphaiou.paper.scales import quick_scale
from alphaiou.training.recipe import recipe_hash
from tests.study.made import made_record

GRID = paper_grids(quick_scale(Path("voc320")), seeds=(0, 1, 2))["beyond"]
PLAIN = {"IoU, gain ×0.5": 0.3, "IoU, gain ×1": 0.38, "IoU, gain ×2": 0.4, "IoU, gain ×3": 0.39}


def records(levels, change=lambda label, seed, scores: None):
    """Runs of some rows, each at its level, whose seeds differ a little."""
    found = {}
    for cell, recipe in GRID.recipes():
        if cell.label in levels:
            record = made_record(recipe, levels[cell.label] + 0.002 * (recipe.seed - 1))
            change(cell.label, recipe.seed, record["scores"])
            found[recipe_hash(recipe)] = record
    return found
