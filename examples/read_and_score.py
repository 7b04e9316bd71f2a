"""From a data set to scores: boxes with the paper's noise, scored as if they were detections."""

import torch

from alphaiou import DetectionDataset, DetectionScores, load_dataset
from alphaiou.data.noise import perturb_index
from alphaiou.metrics import counts_above, detection_ious

dataset = load_dataset("shapes", "val")  # drawn as it is read; or the path of a data set
print(dataset)
image, target = dataset[0]
print(f"image {tuple(image.shape)}, {len(target['boxes'])} boxes")

for rate in (0.0, 0.1, 0.2, 0.3):
    noisy = DetectionDataset(perturb_index(dataset.index, rate, seed=0))
    scores = DetectionScores(classes=dataset.index.classes)
    for position in range(len(dataset)):
        target, found = dataset.target(position), noisy.target(position)  # no pixels needed
        prediction = {
            "boxes": found["boxes"],
            "labels": found["labels"],
            "scores": torch.ones(len(found["labels"])),
        }
        scores.update([prediction], [target])
    result = scores.compute()
    above = counts_above(detection_ious(scores.data()))
    print(
        f"rate {rate:.1f}: AP50 {result.ap[50]:.3f}, AP75 {result.ap[75]:.3f}, "
        f"mAP {result.map:.3f}; {above[0.9]:,} boxes reach IoU .9"
    )
