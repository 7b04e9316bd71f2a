"""The names of splits, as data sets spell them in files, folders and fields."""

from __future__ import annotations

import re

USUAL_SPLITS = ("train", "val", "test", "trainval")
_SPELLINGS = {"valid": "val", "validation": "val"}


def split_name(text: str) -> str:
    """The name of a split that a file, folder or field calls ``text``; others stay as they are.

    Examples:
        >>> split_name("valid"), split_name("TRAIN"), split_name("holdout")
        ('val', 'train', 'holdout')
    """
    lower = text.lower()
    lower = _SPELLINGS.get(lower, lower)
    return lower if lower in USUAL_SPLITS else text


_NO_SPLIT = {"instances", "annotations", "annotation", "labels", "coco", "result", "csv"}
_NO_SPLIT |= {"boxes", "bbox", "bboxes"}


def file_split(stem: str, folder: str = "") -> str:
    """The split that the name of an annotation file stands for, or that of its folder.

    Examples:
        >>> file_split("instances_train2017"), file_split("_annotations.coco", "valid")
        ('train2017', 'val')
        >>> file_split("test_labels"), file_split("labels"), file_split("fold 1")
        ('test', 'train', 'fold 1')
    """
    words = [word for word in re.split(r"[_.\-]+", stem) if word]
    rest = [word for word in words if word.lower() not in _NO_SPLIT]
    if not rest:
        usual = split_name(folder)
        return usual if usual in USUAL_SPLITS else "train"
    return split_name("_".join(rest) if len(rest) < len(words) else stem)


#: Words beside the name of a split in the name of a folder: ``train_images``, ``test_zip``.
_OTHER_WORDS = {"images", "image", "img", "imgs", "annotations", "annotation", "labels", "xml"}
_OTHER_WORDS |= {"xmls", "zip", "set", "data"}


def folder_split(name: str) -> str | None:
    """The split that a folder in a path stands for; None if there is no such folder.

    Examples:
        >>> folder_split("images/TRAIN/a.jpg"), folder_split("valid_images/a.jpg")
        ('train', 'val')
        >>> folder_split("train.jpg")
    """
    for part in name.split("/")[:-1]:
        words = {split_name(word) for word in re.split(r"[ _.\-]+", part.lower())}
        usual = words & set(USUAL_SPLITS)
        if len(usual) == 1 and words - usual <= _OTHER_WORDS:
            return usual.pop()
    return None
