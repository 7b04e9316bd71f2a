from alphaiou.metrics.comparison import PAPER_COLUMNS
from tools.framework_runs import framework_runs_table


def run(score, *, own):
    return {
        "framework": "ultralytics",
        "version": "8.4",
        "model": "yolov8n.yaml",
        "data": "voc320",
        "train_images": 11538,
        "test_images": 5008,
        "loss": {"own": own, "kind": "ciou", "alpha": 1.0 if own else 3.0, "penalty_alpha": None},
        "settings": {"imgsz": 320, "batch": 64, "epochs": 3, "seed": 0, "box": 7.5}
        | {"optimizer": "AdamW"},
        "scores": dict.fromkeys(PAPER_COLUMNS, score),
        "side_by_side": 2,
        "device": "NVIDIA H200",
        "versions": {"torch": "2.11"},
        "history": [{"epoch": e, "seconds": s} for e, s in ((1, 60.0), (2, 9.0), (3, 11.0))],
    }


def test_a_table_of_trainings_starts_with_the_loss_of_the_framework():
    table = framework_runs_table({"runs": [run(0.3, own=False), run(0.2, own=True)]})
    head, _, own, ours, change, blank, circumstances = table.splitlines()
    assert head == "| loss | AP50 | AP75 | AP85 | AP95 | mAP | mAP75:95 |"
    assert own == f"| CIoU, its own |{' 20.00 |' * 6}"
    assert ours == f"| α-CIoU (α=3) |{' 30.00 |' * 6}"
    assert change.count("+50.00%") == 6
    assert not blank
    assert "on 11,538 images of voc320: 3 epochs at 320 px, batch 64, AdamW" in circumstances
    assert circumstances.endswith(
        "NVIDIA H200, torch 2.11, 2 trainings side by side, 11.0 s an epoch."
    )
