"""Studies of a training function: killed, shared, disturbed; each ends as if it had not been."""

import contextlib
import json
import sys
from collections import Counter

import optuna
import pytest

from alphaiou.study.tune import Choice, Range, TuneError, TuneReport, tune
from alphaiou.study.tune.result import importance_of, pareto_front
from benchmarks.tiny import events, one_process, wait_for
from tests.study.tune.functions import SPACE, Logged, planted, tune_logged

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="signals and locks are POSIX's"),
]
TRIALS = 14


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    return tune(planted, SPACE, folder, trials=TRIALS, seeds=2, best=2)


def outcomes(tuning):
    return [(t.number, t.state, t.values, t.score, t.run) for t in tuning.trials]


def test_a_killed_study_goes_on_as_if_it_had_not_been(undisturbed, tmp_path):
    folder, log = tmp_path / "study", tmp_path / "log"
    with one_process(tune_logged, folder, log, TRIALS) as process:
        wait_for(lambda: len(events(log, "begun")) >= 6)
        process.kill()
    before = Counter(name for name, _ in events(log, "done"))
    assert 0 < len(before) < TRIALS
    again = tune(Logged(log), SPACE, folder, trials=TRIALS, seeds=0)
    assert outcomes(again) == outcomes(undisturbed)
    done = Counter(name for name, _ in events(log, "done"))
    assert set(done.values()) == {1}  # nothing is computed twice
    complete = {trial.run for trial in again.trials if trial.state == "complete"}
    assert complete == set(done)  # and nothing is lost
    begun = Counter(name for name, _ in events(log, "begun"))
    assert sum(begun.values()) <= len(begun) + 1  # the one that was killed


def test_four_processes_share_a_study(tmp_path):
    folder, log = tmp_path / "study", tmp_path / "log"
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(one_process(tune_logged, folder, log, 24)) for _ in "1234"]
        for process in processes:
            process.join(120)
        assert [process.exitcode for process in processes] == [0] * 4
    result = tune(Logged(log), SPACE, folder, trials=24, seeds=0)
    assert [trial.number for trial in result.trials] == list(range(24))
    assert {trial.state for trial in result.trials} <= {"complete", "pruned"}
    done = Counter(name for name, _ in events(log, "done"))
    assert set(done.values()) == {1}
    assert set(done) == {t.run for t in result.trials if t.state == "complete"}
    assert len({process for _, process in events(log, "begun")}) == 4


def test_the_result_has_intervals_importances_a_front_and_a_share(undisturbed):
    result = undisturbed
    assert result.winner.score == max(t.score for t in result.trials if t.score is not None)
    assert sum(result.importance.values()) == pytest.approx(1.0)
    assert set(result.importance) == {"kind", "alpha", "lr"}
    points = {t.number: (t.scores["ap50"], t.scores["map75_95"]) for t in result.trials if t.scores}
    assert result.front == pareto_front(points)
    table = {row.label: row for row in result.table.rows}
    assert list(table)[:2] == ["baseline", "equal gradient"]
    best = table[f"trial {result.winner.number}"]
    assert (best.baseline, best.seeds) == ("baseline", (1, 2))
    assert best.changes["map"].interval is not None
    means = [table[label].mean("map") for label in table]
    assert result.share.share == pytest.approx((means[1] - means[0]) / (means[2] - means[0]))
    text = result.markdown()
    for title in ("The best configurations", "Importance", "AP50 against mAP75:95", "winner again"):
        assert f"## {title}" in text or f"## The {title}" in text
    assert eval_settings(result.command).values == result.winner.values


def eval_settings(command):
    from alphaiou.study.tune import Settings

    return eval(command.removeprefix("train(").removesuffix(", report)"), {"Settings": Settings})


def test_a_line_that_was_not_written_to_its_end_is_removed(undisturbed, tmp_path):
    tune(planted, SPACE, tmp_path, trials=5, seeds=0)
    with (tmp_path / "journal.log").open("ab") as journal:
        journal.write(b'{"op_code":5,"worker')
    again = tune(planted, SPACE, tmp_path, trials=TRIALS, seeds=0)
    assert outcomes(again) == outcomes(undisturbed)


def test_a_longer_study_begins_with_the_shorter_one(undisturbed, tmp_path):
    short = tune(planted, SPACE, tmp_path, trials=6, seeds=0)
    assert outcomes(short) == outcomes(undisturbed)[:6]
    assert outcomes(tune(planted, SPACE, tmp_path, trials=4, seeds=0)) == outcomes(short)


def test_another_study_in_the_folder_is_rejected(tmp_path):
    tune(planted, SPACE, tmp_path, trials=1, seeds=0)
    with pytest.raises(TuneError, match=r"holds another study \(score is 'map', not 'ap50'\)"):
        tune(planted, SPACE, tmp_path, trials=1, seeds=0, score="ap50")
    with pytest.raises(TuneError, match=r"sampler is 'tpe', not 'random'.*rm -r"):
        tune(planted, SPACE, tmp_path, trials=1, seeds=0, sampler="random")
    (tmp_path / "journal.log").write_text("nonsense\n{}\n")
    with pytest.raises(TuneError, match=r"journal\.log: is damaged"):
        tune(planted, SPACE, tmp_path, trials=1, seeds=0)


def test_an_undefined_score_fails_a_trial_and_an_error_leaves_it_for_the_next_call(tmp_path):
    space = {"depth": Choice((1, 2, 3)), "width": Range(1.0, 8.0)}
    broken = [True]

    def train(settings, report):
        if settings["depth"] == 2:
            return {"map": float("nan")}
        if settings["depth"] == 3 and broken:
            raise RuntimeError("out of memory")
        return {"map": settings["width"] / 10}

    with pytest.raises(RuntimeError, match="out of memory"):
        tune(train, space, tmp_path, trials=12, seeds=0)
    left = json.loads(json.dumps([one.name for one in (tmp_path / "trials").iterdir()]))
    broken.clear()
    result = tune(train, space, tmp_path, trials=12, seeds=0)
    assert len(left) <= len(result.trials) == 12
    states = {trial.values["depth"]: trial.state for trial in result.trials}
    assert states == {1: "complete", 2: "failed", 3: "complete"}


def test_who_listens_hears_of_every_trial(tmp_path):
    begun, ended = [], {}
    report = TuneReport(
        begun=lambda number, label: begun.append((number, label)), ended=ended.__setitem__
    )
    result = tune(planted, SPACE, tmp_path, trials=12, seeds=0, report=report)
    assert [number for number, _ in begun] == list(ended) == list(range(12))
    assert begun[0][1] == "kind iou, alpha 1, lr 1"
    pruned = {trial.number for trial in result.trials if trial.state == "pruned"}
    assert {number for number, outcome in ended.items() if outcome == "pruned"} == pruned != set()


def test_worker_processes_compute_the_same_runs(tmp_path):
    result = tune(planted, SPACE, tmp_path, trials=4, seeds=1, best=1, workers=2)
    assert {trial.state for trial in result.trials} == {"complete"}
    assert [trial.values["alpha"] for trial in result.trials] == [1.0, 3.0, 1.0, 3.0]
    assert result.table is not None


def test_the_importance_of_what_decides_the_score_is_the_largest():
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(
        lambda trial: (
            -((trial.suggest_float("alpha", 0.5, 5) - 2) ** 2)
            + 0.01 * trial.suggest_float("lr", 0, 1)
        ),
        n_trials=200,
    )
    found = importance_of(study)
    assert found["alpha"] > 0.9
    assert sum(found.values()) == pytest.approx(1.0)
