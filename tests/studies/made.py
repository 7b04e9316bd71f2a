"""Made-up runs of our search."""

from pathlib import Path

from alphaiou.paper.scales import quick_scale
from alphaiou.training.recipe import recipe_hash
from studies.voc320.search import search_grid
from tests.study.made import made_record

GRID = search_grid(quick_scale(Path("voc320")), seeds=(0, 1, 2))
PLAIN = {
    "IoU, box gain ×0.5": 0.3,
    "IoU, box gain ×1": 0.38,
    "IoU, box gain ×2": 0.4,
    "IoU, box gain ×3": 0.39,
}


def records(levels, change=lambda label, seed, scores: None):
    """Runs of some rows, each at its level; the seeds differ a little."""
    found = {}
    for row, recipe in GRID.recipes():
        if row.label in levels:
            record = made_record(recipe, levels[row.label] + 0.002 * (recipe.seed - 1))
            change(row.label, recipe.seed, record["scores"])
            found[recipe_hash(recipe)] = record
    return found
