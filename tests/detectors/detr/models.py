"""Small models of transformers, and batches for them."""

import torch
from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

from alphaiou import AlphaIoULoss
from alphaiou.boxes import convert_boxes
from alphaiou.detectors.base import DEVIATION, MEAN
from alphaiou.detectors.detr.backbone import prepare_backbone
from alphaiou.detectors.detr.loss import DETRLoss
from alphaiou.detectors.detr.network import DETR, DETRNetwork, set_first_weights

CLASSES, QUERIES = 4, 12
SIZE = (70, 96)


def fresh_small_model(*, auxiliary_loss=False, dropout=0.0, stages=4, **changes):
    """A model with its first weights; stride 4 in the first stage, twice as much in each next."""
    settings = {
        "num_labels": CLASSES,
        "num_queries": QUERIES,
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "dropout": dropout,
        "auxiliary_loss": auxiliary_loss,
    }
    backbone = ResNetConfig(
        embedding_size=32,
        hidden_sizes=[32, 32, 64, 64][:stages],
        depths=[1] * stages,
        layer_type="basic",
        out_features=[f"stage{stages}"],
    )
    model = DetrForObjectDetection(DetrConfig(backbone_config=backbone, **(settings | changes)))
    set_first_weights(model)
    return model


def small_detr(*, dropout=0.0, **changes):
    """A detector with its first weights, as one learns that has none to start from."""
    model = fresh_small_model(dropout=dropout, **changes)
    prepare_backbone(model.model.backbone.model, weights=None, norm="group")
    return DETR(DETRNetwork(model), DETRLoss(AlphaIoULoss("giou", 3.0)), backbone_lr_scale=0.1)


def small_model(*, seed=0, **changes):
    """A model whose every number is one of chance, norms and biases too."""
    torch.manual_seed(seed)
    model = fresh_small_model(**changes)
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.model.backbone.named_buffers()):
            if tensor.ndim == 1:
                tensor.add_(0.2 * torch.randn_like(tensor))
            if name.endswith("var"):
                tensor.abs_()
        for layer in (model.class_labels_classifier, *model.bbox_predictor.layers):
            layer.weight.mul_(3)
    return model.requires_grad_()


def random_target(count, *, size=SIZE, generator):
    height, width = size
    sides = torch.tensor([width, height])
    low = torch.rand(count, 2, generator=generator) * 0.7
    high = low + 0.05 + torch.rand(count, 2, generator=generator) * (0.95 - low)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    return {"boxes": torch.cat([low * sides, high * sides], dim=1), "labels": labels}


def batch(counts=(3, 0, 5), *, size=SIZE, seed=0):
    """Images as numbers from 0 to 1, and targets of so many boxes."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(len(counts), 3, *size, generator=generator)
    return images, [random_target(count, size=size, generator=generator) for count in counts]


def normalised(images):
    mean, deviation = (torch.tensor(numbers)[:, None, None] for numbers in (MEAN, DEVIATION))
    return (images - mean) / deviation


def as_labels(targets, size=SIZE):
    """Targets in the words of transformers."""
    height, width = size
    scale = torch.tensor([width, height, width, height])
    return [
        {
            "class_labels": target["labels"],
            "boxes": convert_boxes(target["boxes"], "xyxy", "cxcywh") / scale,
        }
        for target in targets
    ]
