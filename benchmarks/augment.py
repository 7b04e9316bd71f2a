"""Augmentation of a batch of 64: one call launched, compiled, and replayed from a CUDA graph.

    python -m benchmarks.augment [--sizes 320 640] [--images 2000] [--batch 64]

Times are medians over rounds of many calls, in milliseconds per batch, including random numbers.
The images are random noise and exceed the memory cache of the device; photographs are not faster.
"""

import argparse
import time

import torch

from alphaiou.data.pipeline.augment import Augmentation, augment, sample_augmentation
from alphaiou.data.pipeline.cache import ImageCache

MOST_BOXES = 56  # sufficient for VOC


def random_cache(images, side, device):
    low = torch.rand(images, MOST_BOXES, 2, device=device) * side / 2
    boxes = torch.cat([low, low + torch.rand_like(low) * side / 2], dim=2)
    shorter = torch.randint(side // 2, side + 1, (images,), dtype=torch.int32, device=device)
    return ImageCache(
        pixels=torch.randint(256, (images, side, side, 3), dtype=torch.uint8, device=device),
        sizes=torch.stack([torch.full_like(shorter, side), shorter], dim=1),
        scales=torch.ones(images, 2, device=device),
        boxes=boxes.clamp(max=side),
        labels=torch.randint(20, (images, MOST_BOXES), device=device),
        counts=torch.randint(1, 6, (images,), device=device),
        image_ids=torch.arange(images, device=device),
    )


def make_step(cache, batch, settings, slots):
    device = cache.pixels.device

    def step(first):
        sample = sample_augmentation(batch, len(cache), cache.side, settings, device)
        return augment(cache, first, sample, settings, slots)

    return step


def graphed(step, first):
    """Capture the step as a CUDA graph; calling the result replays it."""
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        for _ in range(3):
            step(first)
    torch.cuda.current_stream().wait_stream(side_stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        batch = step(first)

    def replay(_):
        graph.replay()
        return batch

    return replay


def median_ms(step, first, *, rounds, calls):
    wait = torch.cuda.synchronize if first.is_cuda else lambda: None
    times = []
    for _ in range(rounds + 1):
        wait()
        start = time.perf_counter()
        for _ in range(calls):
            step(first)
        wait()
        times.append(1e3 * (time.perf_counter() - start) / calls)
    return sorted(times[1:])[rounds // 2]


def fresh(replay, first):
    """Return whether two replays differ, so that the graph draws new random numbers."""
    before = replay(first).images.clone()
    return not torch.equal(before, replay(first).images)


def kernels(step, first):
    """Return the time of each kernel of one call, the longest first."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        step(first)
        torch.cuda.synchronize()
    rows = sorted(found.key_averages(), key=lambda row: -row.device_time_total)
    return [(row.key[:80], row.count, row.device_time_total) for row in rows]


def measure(side, arguments):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    cache = random_cache(arguments.images, side, device)
    step = make_step(cache, arguments.batch, Augmentation(), slots=32 * arguments.batch)
    first = torch.randint(arguments.images, (arguments.batch,), device=device)
    timing = {"rounds": arguments.rounds, "calls": arguments.calls}

    def show(what, call):
        print(f"{side:5d} px  {what:28s} {median_ms(call, first, **timing):8.3f} ms", flush=True)

    show("eager", step)
    start = time.perf_counter()
    compiled = torch.compile(step, fullgraph=True, dynamic=False)
    compiled(first)
    print(f"{side:5d} px  compiled in {time.perf_counter() - start:.0f} s")
    show("compiled", compiled)
    if device == "cuda":
        show("eager, CUDA graph", graphed(step, first))
        replay = graphed(compiled, first)
        show("compiled, CUDA graph", replay)
        print(f"{side:5d} px  new random numbers at each replay: {fresh(replay, first)}")
        for name, count, microseconds in kernels(compiled, first):
            print(f"    {microseconds:9.1f} us  {count:3d} x {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[320, 640])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=50)
    arguments = parser.parse_args()
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    print(name, "torch", torch.__version__, f"batch {arguments.batch}, {arguments.images} images")
    for side in arguments.sizes:
        measure(side, arguments)


if __name__ == "__main__":
    main()
