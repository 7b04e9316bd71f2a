"""Export a detector to a file that runs without this package: ONNX, or a program of torch."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from alphaiou._files import write_file
from alphaiou._shapes import Bool, Float, Int
from alphaiou._version import __version__
from alphaiou.boxes import check_choice
from alphaiou.detectors import YOLOv5
from alphaiou.detectors.base import Detector
from alphaiou.errors import AlphaIoUError
from alphaiou.inference.predictor import SCORE, for_inference, nms_threshold
from alphaiou.inference.weights import TrainedDetector

#: Dynamic heights and widths are multiples of this, the largest stride of the detectors.
MULTIPLE = 32
#: The least of a dynamic height or width in multiples: the coarsest features, at a stride of 64,
#: have more than one cell, which torch takes for granted.
LEAST_MULTIPLES = 3
#: The maximum of a dynamic batch size, and of a dynamic height or width in multiples.
MOST_IMAGES, MOST_MULTIPLES = 1024, 256
#: The boxes per image that enter NMS.
CANDIDATES = 4096
#: Where a ``.pt2`` file has its metadata.
METADATA = "metadata.json"
FORMATS, PRECISIONS = ("onnx", "pt2"), ("fp32", "fp16", "int8")


class ExportError(AlphaIoUError, ValueError):
    """A detector cannot be exported with these options; the message says what to change."""


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """The options of an export.

    Attributes:
        format: ``onnx``, or ``pt2`` for ``torch.export.load``.
        nms: Whether NMS and the minimum score are part of the file.
        score: The minimum score of a detection.
        nms_threshold: The IoU above which NMS removes a box; by default that of the training.
        batch: The number of images per batch.
        dynamic_batch: Whether any number of images is allowed.
        image_size: Height and width of the images; by default the side of the training.
        dynamic_size: Whether any multiples of 32, from 96 on, are allowed as height and width.
        candidates: The maximum number of boxes per image that enter NMS, the best ones.
        precision: ``fp32``; or ``fp16`` or ``int8`` weights, for YOLOv5 as ONNX only.
    """

    format: Literal["onnx", "pt2"] = "onnx"
    nms: bool = True
    score: float = SCORE
    nms_threshold: float | None = None
    batch: int = 1
    dynamic_batch: bool = False
    image_size: int | None = None
    dynamic_size: bool = False
    candidates: int = CANDIDATES
    precision: Literal["fp32", "fp16", "int8"] = "fp32"

    def __post_init__(self) -> None:
        check_choice("format", self.format, FORMATS)
        check_choice("precision", self.precision, PRECISIONS)
        if not 0.0 <= self.score <= 1.0:
            raise ExportError(f"score must be from 0 to 1, got {self.score}")
        for name in ("batch", "image_size", "candidates"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ExportError(f"{name} must be at least 1, got {value}")
        if self.precision != "fp32" and self.format != "onnx":
            raise ExportError(
                f"precision {self.precision} is for format onnx; use fp32 for {self.format}"
            )


def export_detector(
    trained: TrainedDetector, path: Path, options: ExportOptions = ExportOptions()
) -> Path:
    """Write a detector to one file that runs without this package.

    The file takes ``images``, uint8 of shape (batch, 3, height, width) in the order red, green,
    blue, resized and padded beforehand. It returns ``boxes`` (``xyxy`` in pixels of these images),
    ``scores`` and ``labels`` for a fixed number of slots per image, best first; empty slots are at
    the end with score 0 and label -1. Without NMS it returns the boxes and the scores for each
    class of all predictions.

    Args:
        trained: The detector with its weights.
        path: The file to write.
        options: What to export.

    Returns:
        The path.

    Raises:
        ExportError: If the options do not fit the detector.
    """
    write_program(export_program(trained, options), path, metadata(trained, options))
    return path


def write_program(program: ExportedProgram, path: Path, facts: Mapping[str, Any]) -> None:
    """Write a program in the format and precision that its metadata names.

    Write pt2 first if a program is written twice: the conversion to ONNX adds guards to it.
    """
    if facts["format"] == "onnx":
        from alphaiou.inference.onnx_file import write_onnx

        write_onnx(program, path, facts)
        return
    with warnings.catch_warnings():
        # torchvision's NMS asks torch for an unknown size by a function of an older name.
        warnings.filterwarnings("ignore", "`create_unbacked_symint`", FutureWarning)
        program = program.run_decompositions(
            {torch.ops.alphaiou.keep_best.default: keep_best_of_all}
        )
    content = io.BytesIO()
    torch.export.save(program, content, extra_files={METADATA: json.dumps(facts)})
    write_file(path, content.getvalue())


def metadata(trained: TrainedDetector, options: ExportOptions) -> dict[str, Any]:
    """Return what a program needs to know about an exported file."""
    own = trained.recipe.get("detector")
    threshold = options.nms_threshold
    return {
        "alphaiou": __version__,
        "detector": own.get("name") if isinstance(own, dict) else own,
        "names": dict(enumerate(trained.classes)),
        "image_size": options.image_size or trained.image_size,
        **{name: value for name, value in asdict(options).items() if name != "image_size"},
        "nms_threshold": nms_threshold(trained.detector) if threshold is None else threshold,
    }


def export_program(trained: TrainedDetector, options: ExportOptions) -> ExportedProgram:
    """Trace a detector from uint8 images to detections.

    Raises:
        ExportError: If the options do not fit the detector.
    """
    if options.precision != "fp32" and not isinstance(trained.detector, YOLOv5):
        raise ExportError(
            f"precision {options.precision} is for YOLOv5; use fp32 for "
            f"{type(trained.detector).__name__}"
        )
    try:
        detector = for_inference(
            trained.detector, score=options.score, nms=options.nms_threshold
        ).cpu()
    except ValueError as error:
        raise ExportError(str(error)) from None
    side = options.image_size or trained.image_size
    height, width = (4 * MULTIPLE, 5 * MULTIPLE) if options.dynamic_size else (side, side)
    # torch takes a dimension of one for a constant.
    count = 2 if options.dynamic_batch else options.batch
    dims: dict[int, Any] = {}
    if options.dynamic_batch:
        dims[0] = Dim("batch", min=1, max=MOST_IMAGES)
    if options.dynamic_size:
        dims |= {
            axis: MULTIPLE * Dim(name, min=LEAST_MULTIPLES, max=MOST_MULTIPLES)
            for axis, name in ((2, "rows"), (3, "columns"))
        }
    with torch.no_grad():
        return torch.export.export(
            _Exported(detector, nms=options.nms, candidates=options.candidates),
            (torch.zeros(count, 3, height, width, dtype=torch.uint8),),
            dynamic_shapes={"images": dims},
        )


class _Exported(nn.Module):
    """A detector from uint8 images to tensors."""

    def __init__(self, detector: Detector, *, nms: bool, candidates: int) -> None:
        super().__init__()
        self.detector, self.nms, self.candidates = detector, nms, candidates

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return boxes, scores and labels, or without NMS boxes and scores for each class."""
        if not self.nms:
            return self.detector.predictions(images)
        return tuple(self.detector.detect_padded(images, candidates=self.candidates))


def keep_best_of_all(
    boxes: Float[Tensor, "problems candidates 4"],
    groups: Int[Tensor, "problems candidates"],
    valid: Bool[Tensor, "problems candidates"],
    threshold: float,
) -> Bool[Tensor, "problems candidates"]:
    """Solve all problems of ``keep_best`` by one call of torchvision's NMS.

    Boxes of different problems or groups are moved apart.

    Examples:
        >>> boxes = torch.tensor([[[0.0, 0, 9, 9], [0.0, 0, 9, 8], [5.0, 5, 9, 9]]])
        >>> keep_best_of_all(boxes, torch.zeros(1, 3).long(), torch.ones(1, 3).bool(), 0.5)
        tensor([[ True, False,  True]])
    """
    from torchvision.ops import nms

    problems, candidates = valid.shape
    # fp64, because moving boxes apart costs precision. Empty slots are equal boxes in a group of
    # their own, of which the first removes all others at once.
    exact = boxes.double().where(valid[..., None], 0.0)
    extent = exact.amax() - exact.amin() + 1.0
    own = (groups + 1).where(valid, 0)
    several = own.amax() + 1
    problem = torch.arange(problems, device=boxes.device)[:, None]
    apart = exact + ((problem * several + own) * extent)[..., None]
    empty = torch.arange(4, device=boxes.device).double() // 2  # a box of side 1
    apart = apart.where(valid[..., None], apart + empty).flatten(0, 1)
    # torch takes it for granted that NMS keeps two boxes or more.
    spare = apart.amax() + 10.0 * (1 + torch.arange(2, device=boxes.device)[:, None]) + empty
    ranks = -torch.arange(candidates, dtype=torch.float64, device=boxes.device)
    ranks = torch.cat([ranks.expand(problems, candidates).flatten(), ranks.new_zeros(2)])
    kept = nms(torch.cat([apart, spare]), ranks, threshold)
    mask = torch.zeros_like(ranks, dtype=torch.bool).index_fill(0, kept, value=True)
    return mask[:-2].view(problems, candidates) & valid
