"""Timing: wall time from Python, device time, memory, kernels.

``measure`` interleaves all contenders. Wall time is the time of one call between two
synchronisations. Device time, on CUDA, is the time per replay of the call captured in a CUDA graph,
measured over many replays between two events. Calls that cannot be captured are queued instead.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

Call = Callable[[], object]
WARM_UP_CALLS = 3
MOST_CALLS = 200


@dataclass(frozen=True)
class Measurement:
    """The times of one contender in one cell, in milliseconds; ``error`` if it failed."""

    wall_ms: float | None = None
    wall_ms_fastest: float | None = None
    device_ms: float | None = None
    device_how: str | None = None
    calls: int = 0
    peak_bytes: int | None = None
    error: str | None = None


def measure(
    calls: Mapping[str, Call],
    *,
    device: torch.device,
    repeats: int,
    seconds: float,
    capturable: Mapping[str, bool],
) -> dict[str, Measurement]:
    """Time calls in alternating rounds.

    Args:
        calls: The calls to time, by name.
        device: The device of the calls.
        repeats: The number of rounds; each round times every call once.
        seconds: The approximate time to spend on each call, over all rounds.
        capturable: Whether to try CUDA graphs.

    Returns:
        Medians over all rounds.
    """
    probes: dict[str, _Probe] = {}
    results: dict[str, Measurement] = {}
    for name, call in calls.items():
        try:
            probes[name] = _Probe(call, device, seconds / repeats, capturable[name])
        except Exception as error:  # a peer that cannot run must not end the run
            results[name] = Measurement(error=f"{type(error).__name__}: {error}".splitlines()[0])
    names = list(probes)
    for turn in range(repeats):
        # A new order each round, so that no call always follows the same other call.
        start = turn % max(len(names), 1)
        for name in names[start:] + names[:start]:
            probes[name].sample()
    return {name: results[name] if name in results else probes[name].result() for name in calls}


@dataclass
class _Probe:
    """One warmed-up call with its samples."""

    call: Call
    device: torch.device
    seconds: float
    capturable: bool
    walls: list[float] = field(default_factory=list)
    on_device: list[float] = field(default_factory=list)
    replay: Call | None = None
    peak: int | None = None

    def __post_init__(self) -> None:
        for _ in range(WARM_UP_CALLS):
            self.call()
        once = min(self._wall() for _ in range(2))
        # Half of the time for the wall clock, half for the device.
        self.batch = max(1, min(MOST_CALLS, int(self.seconds / 2 / once)))
        if self.device.type == "cuda":
            self.peak = peak_bytes(self.call, self.device)
            self.replay = captured(self.call) if self.capturable else None
            self.queue = max(5, self.batch)

    def _wall(self) -> float:
        synchronise(self.device)
        start = time.perf_counter()
        self.call()
        synchronise(self.device)
        return time.perf_counter() - start

    def sample(self) -> None:
        self.walls += [self._wall() for _ in range(self.batch)]
        if self.device.type == "cuda":
            self.on_device.append(device_seconds(self.replay or self.call, self.queue))

    def result(self) -> Measurement:
        wall = 1e3 * statistics.median(self.walls)
        how = "wall"
        if self.device.type == "cuda":
            how = "graph" if self.replay else "queue"
        return Measurement(
            wall_ms=wall,
            wall_ms_fastest=1e3 * min(self.walls),
            device_ms=1e3 * statistics.median(self.on_device) if self.on_device else wall,
            device_how=how,
            calls=len(self.walls),
            peak_bytes=self.peak,
        )


def synchronise(device: torch.device) -> None:
    """Wait for the device to finish."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def device_seconds(call: Call, count: int) -> float:
    """Return seconds per call between two CUDA events, over ``count`` consecutive calls."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    call()  # the queue is never empty when the first event is reached
    start.record()
    for _ in range(count):
        call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / count


def captured(call: Call) -> Call | None:
    """Return a replay of the call as a CUDA graph, or None if it cannot be captured."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP_CALLS):
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            call()
    except RuntimeError:
        return None
    replay: Call = graph.replay
    return replay


def milliseconds(call: Call, *, calls: int = 100, rounds: int = 3) -> float:
    """Return the time of a call on CUDA: the median over rounds of many calls."""
    found = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
        found.append((time.perf_counter() - start) / calls * 1e3)
    return sorted(found)[rounds // 2]


def graphed(call: Call) -> Call:
    """Return a replay of the call as a CUDA graph."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    replay: Call = graph.replay
    return replay


def kernels(call: Call, count: int = 20) -> dict[str, object]:
    """Return the longest kernels of a call, in milliseconds."""
    from torch.profiler import ProfilerActivity, profile

    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        call()
        torch.cuda.synchronize()
    rows = sorted(found.key_averages(), key=lambda row: -row.self_device_time_total)
    total = sum(row.self_device_time_total for row in rows) / 1e3
    launched = sum(row.count for row in rows)
    top = [[row.key[:90], row.count, row.self_device_time_total / 1e3] for row in rows[:count]]
    return {"total_ms": total, "kernels": launched, "top": top}


def peak_bytes(call: Call, device: torch.device) -> int:
    """Return the peak memory of a call beyond the memory in use before, including its results."""
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    kept = call()
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device) - before
    del kept
    return peak


def copy_bandwidth(device: torch.device, *, megabytes: int = 512, repeats: int = 20) -> float:
    """Return the bandwidth of a device copy in bytes per second, reads plus writes."""
    source = torch.ones(megabytes << 18, device=device)
    target = torch.empty_like(source)
    times = []
    for turn in range(repeats + WARM_UP_CALLS):
        synchronise(device)
        if device.type == "cuda":
            seconds = device_seconds(lambda: target.copy_(source), 10)
        else:
            start = time.perf_counter()
            target.copy_(source)
            seconds = time.perf_counter() - start
        if turn >= WARM_UP_CALLS:
            times.append(seconds)
    return 2 * source.nbytes / statistics.median(times)


@contextmanager
def no_garbage_collection(*, collect: bool) -> Iterator[None]:
    """Disable garbage collection during a measurement."""
    if collect:
        gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
