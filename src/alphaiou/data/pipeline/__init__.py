"""From files to training batches: decoding, cache, streaming, augmentation."""
