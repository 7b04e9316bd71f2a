"""Randomness that depends on a seed and on the name of an image, and on nothing else."""

from hashlib import shake_128


def image_bytes(purpose: str, seed: int, name: str, count: int) -> bytes:
    """Random bytes of one image: SHAKE-128 of the purpose, the seed and the image's stem.

    The stem is the file's name without folders and suffix, so that an image has the same bytes in
    every layout, order, subset, process and release. Images of one data set that share their stem
    (``cam1/0001.jpg`` and ``cam2/0001.jpg``) share their bytes.

    Examples:
        >>> a = image_bytes("noise", 0, "JPEGImages/000005.jpg", 4)
        >>> a == image_bytes("noise", 0, "images/train/000005.webp", 8)[:4]
        True
    """
    stem = name.rpartition("/")[2].rsplit(".", 1)[0]
    key = f"{purpose}/{seed}/{stem}".encode("utf-8", "surrogateescape")
    return shake_128(key).digest(count)
