"""Colours of whole batches changed in hue, saturation and value."""

from __future__ import annotations

import torch
from jaxtyping import Float32
from torch import Tensor

Plane = Float32[Tensor, "batch side side"]


def change_colours(
    rgb: tuple[Plane, Plane, Plane], gains: Float32[Tensor, "batch 3"]
) -> tuple[Plane, Plane, Plane]:
    """Multiply hue (round the circle), saturation and value (up to their largest) by gains.

    With V = max(R, G, B) and C = V − min(R, G, B), S = C / V and the hue H in [0, 6) counts sixths
    of the circle from red. Back from H, S, V, channel n of (5, 3, 1) is

        V − V·S·clamp(min(k, 4 − k), 0, 1)   with   k = (n + H) mod 6.

    Args:
        rgb: The three channels, 0 to 255.
        gains: The factors of hue (at most 2), saturation and value of each image.

    Returns:
        The three channels, 0 to 255.

    Examples:
        >>> red, none = torch.full((1, 1, 1), 200.0), torch.zeros(1, 1, 1)
        >>> paler = change_colours((red, none, none), torch.tensor([[1, 0.5, 1]]))
        >>> [plane.item() for plane in paler]
        [200.0, 100.0, 100.0]
    """
    hue_gain, saturation_gain, value_gain = gains[:, :, None, None].unbind(1)
    hue, saturation, value = _to_hsv(*rgb)
    hue = _within_circle(hue * hue_gain)
    saturation = (saturation * saturation_gain).clamp(max=1)
    value = (value * value_gain).clamp(max=255)
    chroma = value * saturation
    red, green, blue = (value - chroma * _lack(_within_circle(hue + n)) for n in (5, 3, 1))
    return red, green, blue


def _to_hsv(red: Plane, green: Plane, blue: Plane) -> tuple[Plane, Plane, Plane]:
    value = torch.maximum(torch.maximum(red, green), blue)
    chroma = value - torch.minimum(torch.minimum(red, green), blue)
    # Where the chroma is 0, any divisor does: the hue of grey is 0.
    divisor = torch.where(chroma > 0, chroma, 1)
    hue = torch.where(
        value == red,
        (green - blue) / divisor,
        torch.where(value == green, 2 + (blue - red) / divisor, 4 + (red - green) / divisor),
    )
    hue = torch.where(hue < 0, hue + 6, hue)
    return hue, chroma / torch.where(value > 0, value, 1), value


def _within_circle(hue: Plane) -> Plane:
    """A hue of at most two circles as one within the first."""
    return torch.where(hue >= 6, hue - 6, hue)


def _lack(k: Plane) -> Plane:
    """The share of the chroma that a channel lacks."""
    return torch.minimum(k, 4 - k).clamp(0, 1)
