"""Small models of transformers' DETR family, with random weights, and batches for them."""

import torch
import transformers
from transformers import ResNetConfig

SIZE, CLASSES = 64, 5


def resnet(*stages):
    return ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 8, 16, 16],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=list(stages),
    )


def plain(**options):
    """What DETR, Conditional DETR, DAB-DETR and Deformable DETR call alike."""
    own_backbone = {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None}
    return (
        (own_backbone if transformers.__version__ < "5" else {})
        | {
            "backbone_config": resnet("stage4"),
            "num_queries": 12,
            "encoder_layers": 1,
            "decoder_layers": 3,
            "encoder_ffn_dim": 16,
            "decoder_ffn_dim": 16,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 2,
            "auxiliary_loss": True,
            "dropout": 0.0,
        }
        | options
    )


def real_time(**options):
    """What RT-DETR, its second version, D-FINE and DEIMv2 call alike."""
    return {
        "backbone_config": resnet("stage2", "stage3", "stage4"),
        "encoder_in_channels": [8, 16, 16],
        "encoder_hidden_dim": 16,
        "decoder_in_channels": [16, 16, 16],
        "encoder_ffn_dim": 16,
        "encoder_attention_heads": 2,
        "d_model": 16,
        "num_queries": 12,
        "decoder_layers": 2,
        "decoder_ffn_dim": 16,
        "decoder_attention_heads": 2,
        "num_denoising": 4,
    } | options


def grouped(backbone, **options):
    """What LW-DETR and RF-DETR call alike."""
    return {
        "backbone_config": backbone,
        "d_model": 16,
        "decoder_ffn_dim": 16,
        "decoder_layers": 2,
        "decoder_self_attention_heads": 2,
        "decoder_cross_attention_heads": 2,
        "num_queries": 12,
        "group_detr": 2,
        "dropout": 0.0,
    } | options


def vit(kind, **options):
    config = getattr(transformers, kind)
    return config(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=SIZE,
        out_indices=[1, 2],
        **options,
    )


FAMILY = {
    "Detr": lambda: plain(d_model=16),
    "TableTransformer": lambda: plain(d_model=16),
    "ConditionalDetr": lambda: plain(d_model=16),
    "DabDetr": lambda: plain(hidden_size=16),
    "DeformableDetr": lambda: plain(
        d_model=32,
        backbone_config=resnet("stage3", "stage4"),
        num_feature_levels=2,
        two_stage=True,
        two_stage_num_proposals=12,
        with_box_refine=True,
    ),
    "Yolos": lambda: {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "image_size": [SIZE, SIZE],
        "num_detection_tokens": 12,
    },
    "RTDetr": real_time,
    "RTDetrV2": real_time,
    "DFine": real_time,
    "Deimv2": real_time,
    "LwDetr": lambda: grouped(vit("LwDetrViTConfig", num_windows=4), projector_scale_factors=[1.0]),
    "RfDetr": lambda: grouped(
        vit("RfDetrDinov2Config", patch_size=16, num_windows=2), intermediate_size=16
    ),
}
#: Those that the installed version has.
MEMBERS = [name for name in FAMILY if hasattr(transformers, f"{name}ForObjectDetection")]


def build(name, seed=0, **options):
    """A member with random weights, larger than those it starts with so that boxes differ."""
    torch.manual_seed(seed)
    options = FAMILY[name]() | {"num_labels": CLASSES} | options
    config = getattr(transformers, f"{name}Config")(**options)
    model = getattr(transformers, f"{name}ForObjectDetection")(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.train()


def batch(*counts, seed=0, channels=3):
    """Images, and as many boxes in each as told."""
    generator = torch.Generator().manual_seed(seed)
    labels = []
    for count in counts:
        sides = 0.1 + 0.4 * torch.rand(count, 2, generator=generator)
        centres = sides / 2 + (1 - sides) * torch.rand(count, 2, generator=generator)
        classes = torch.randint(CLASSES, (count,), generator=generator)
        labels.append({"class_labels": classes, "boxes": torch.cat([centres, sides], dim=1)})
    images = torch.rand(len(counts), channels, SIZE, SIZE, generator=generator)
    return {"pixel_values": images, "labels": labels}
