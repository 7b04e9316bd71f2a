"""Small models of transformers, and batches for them."""

import torch
from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

from alphaiou.boxes import convert_boxes
from alphaiou.detectors.detr_network import DEVIATION, MEAN

CLASSES, QUERIES = 4, 12
SIZE = (70, 96)


def small_model(*, auxiliary_loss=False, dropout=0.0, seed=0, **changes):
    """A model whose every number is one of chance, norms and biases too."""
    torch.manual_seed(seed)
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
        hidden_sizes=[32, 32, 64, 64],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage4"],
    )
    model = DetrForObjectDetection(DetrConfig(backbone_config=backbone, **(settings | changes)))
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.model.backbone.buffers()):
            tensor.add_(0.3 * tensor.std().nan_to_num(1.0).clamp(0.1) * torch.randn_like(tensor))
        for name, tensor in model.model.backbone.named_buffers():
            if name.endswith("var"):
                tensor.abs_()
        model.class_labels_classifier.weight.mul_(20)
        model.bbox_predictor.layers[-1].weight.mul_(20)
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
    return (images - torch.tensor(MEAN)[:, None, None]) / torch.tensor(DEVIATION)[:, None, None]


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
