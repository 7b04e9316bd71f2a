"""Where the pixels of a data set fit: on the device, in host memory, or nowhere."""

from __future__ import annotations

from pathlib import Path

import torch

from alphaiou.data.problems import DataError

#: The share of free memory that pixels may take: on a GPU the network needs the rest.
DEVICE_SHARE = 0.5
HOST_SHARE = 0.7


class TooLargeError(DataError):
    """The images of a data set fit in no memory; they can still be streamed."""


def choose_device(
    num_bytes: int, device: torch.device, memory_limit: int | None = None
) -> torch.device:
    """The device that can hold some bytes: the one given, else the host.

    Args:
        num_bytes: How many bytes there are to hold.
        device: Where they should be.
        memory_limit: How many bytes that may be; a share of the free memory unless given.

    Raises:
        TooLargeError: They do not fit in host memory either.

    Examples:
        >>> choose_device(1000, torch.device("cpu"))
        device(type='cpu')
    """
    host = torch.device("cpu")
    share = HOST_SHARE if device.type == "cpu" else DEVICE_SHARE
    limit = share * free_memory(device) if memory_limit is None else memory_limit
    if num_bytes <= limit:
        return device
    if device.type != "cpu":
        limit = HOST_SHARE * free_memory(host)
    if num_bytes > limit:
        raise TooLargeError(
            f"the images take {num_bytes / 2**30:.1f} GiB once decoded, more than the "
            f"{limit / 2**30:.1f} GiB that may be used; take a smaller image_size, or stream them"
        )
    return host


def free_memory(device: torch.device) -> float:
    """The bytes that are free on a device; infinity where nobody says."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    meminfo = Path("/proc/meminfo")
    if device.type != "cpu" or not meminfo.exists():
        return float("inf")
    lines = dict(line.split(":") for line in meminfo.read_text().splitlines())
    return 1024 * int(lines["MemAvailable"].split()[0])
