"""The page and the pictures of a training, as text and in a browser."""

import re

import numpy as np
import pytest
from PIL import Image

from alphaiou.metrics import ScoringData
from alphaiou.metrics.confusion import assign, best_point, best_points, confusion_matrix
from alphaiou.metrics.scores import score
from alphaiou.study.report import training_page as module
from alphaiou.study.report.training_page import Detected, training_page, write_training_page
from alphaiou.training.loop import Execution, Report, fit
from alphaiou.training.recipe import recipe_hash
from tests.metrics.made_data import make
from tests.study.test_report import Checked
from tests.training.runs import tiny_recipe, write_shapes


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A training with its pictures and its page: the folder and the record."""
    place = tmp_path_factory.mktemp("training")
    data = write_shapes(place / "data", val=3)
    recipe = tiny_recipe(data, data={"val": "val"}, epochs=2, evaluate_every=1)
    folder = place / recipe_hash(recipe)

    def prepared(batches, classes):
        module.save_batch(folder, batches, classes)

    execution = Execution(device="cpu")
    record = fit(recipe, place, execution=execution, report=Report(prepared=prepared))
    write_training_page(folder, record, device="cpu", workers=0)
    return folder, record


@pytest.fixture(scope="module")
def page(run):
    return (run[0] / module.PAGE).read_text(encoding="utf-8")


def detected_of(classes, seed=0):
    """What a detector finds, of made-up boxes."""
    data = make(seed, kind="whole", classes=classes, images=40, targets=400, detections=600)
    return detected_from(data, [f"class <{number}> with a long name" for number in range(classes)])


def detected_from(data, names):
    class Index:
        classes, split = tuple(names), "val"

    assignments = assign(data)
    best = best_point(assignments)
    return Detected(
        index=Index(),
        split_images=5000,
        data=data,
        scores=score(data, names),
        points=best_points(assignments, len(names)),
        min_score=best.score,
        is_best=True,
        confusion=confusion_matrix(assignments, len(names), min_score=best.score),
    )


def rows_of(text, mark):
    """The cells of the table of a section, row by row."""
    section = text.partition(f'<section id="{mark}">')[2].partition("</section>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", section.partition("<tbody>")[2].partition("</table>")[0])
    cell = r"<t[hd][^>]*>(.*?)</t[hd]>"
    return [re.findall(cell, row) for row in rows]


def test_the_page_is_whole_and_loads_nothing(page):
    Checked(page)
    bare = re.sub(r"data:image/jpeg;base64,[\w+/=]+", "", page)
    assert "//" not in re.sub(r"http://www\.w3\.org/[\w/]+", "", bare)
    assert "<script" not in bare
    for mark in ("scores", "curves", "classes", "confusion", "predictions", "batch", "run"):
        assert f'<section id="{mark}">' in page
    assert page.count("data:image/jpeg") == 2
    assert "box_gain: 0.05" in page, "the recipe"
    assert "split train): 4 images" in page, "the notes"


def test_the_tables_are_those_of_the_run(run, page):
    _, record = run
    assert rows_of(page, "scores")[0][1] == f"{100 * record['scores']['ap50']:.2f}"
    classes = rows_of(page, "classes")
    objects = sum(int(row[1]) for row in classes)
    aps = [float(row[2]) for row in classes if row[2] != "–"]
    assert sum(aps) / len(aps) == pytest.approx(100 * record["scores"]["ap50"], abs=0.02)
    matrix = [[int(cell or 0) for cell in row[1:]] for row in rows_of(page, "confusion")]
    assert sum(map(sum, matrix[:-1])) == objects
    assert "On the 3 images of val." in page


def test_the_pictures_show_every_image(run):
    folder, _ = run
    with Image.open(folder / module.BATCH) as picture:
        assert picture.size == (2 * module.TILE + 24, module.TILE + 16)
    with Image.open(folder / module.PREDICTIONS) as picture:
        assert picture.width == 4 * module.TILE + 40
        assert picture.height > module.TILE


def test_some_images_of_a_large_split_are_enough(run, monkeypatch):
    monkeypatch.setitem(module.MOST_IMAGES, "cpu", 2)
    folder, record = run
    detected = module._detect(folder, "cpu", 0)
    assert (len(detected.index), detected.split_images) == (2, 3)
    text = training_page(folder, record, detected)
    assert "On 2 of the 3 images of val, spread evenly; the scores above are of all." in text


def test_without_a_scored_split_it_has_the_curves(run, tmp_path):
    _, record = run
    text = training_page(tmp_path, {**record, "scores": {}, "scored_on": ""}, None)
    Checked(text)
    assert "no images to score on" in text
    assert "Training losses" in text
    assert "confusion" not in text.partition("<body>")[2]


def test_the_matrix_of_many_classes_is_a_list(run):
    folder, record = run
    detected = detected_of(41)
    rows = rows_of(training_page(folder, record, detected), "confusion")
    assert len(rows) == module.MOST_CONFUSIONS
    counts = [int(row[2]) for row in rows]
    wrong = detected.confusion - np.diag(detected.confusion.diagonal())
    assert counts == sorted(wrong.flatten().tolist(), reverse=True)[: len(counts)]


def test_classes_without_objects_or_right_detections(run):
    folder, record = run
    nothing = ScoringData.empty()
    data = ScoringData(**{**vars(nothing), "image_ids": np.arange(2)})
    text = training_page(folder, record, detected_from(data, ["a", "b"]))
    assert rows_of(text, "classes")[0] == ["a", "0", "–", "–", "–", "–", "–"]


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (375, True)])
def test_in_a_browser(run, width, dark, browser, tmp_path):
    folder, record = run
    path = tmp_path / "page.html"
    path.write_text(training_page(folder, record, detected_of(20)), encoding="utf-8")
    browser.show(path, width=width, dark=dark)
    assert browser.page_width() <= width
    assert browser.brightness() < 80 if dark else browser.brightness() > 200
    cut = browser.evaluate(
        "[...document.querySelectorAll('table.confusion th')]"
        ".filter(one => one.scrollWidth > one.clientWidth + 1"
        " || one.scrollHeight > one.clientHeight + 1).length"
    )
    assert cut == 0
    loaded = "[...document.images].every(one => one.complete && one.naturalWidth > 0)"
    assert browser.evaluate(loaded)
    assert browser.errors == []
