"""Assignment of many problems at once, against SciPy's of one; the kernel in the interpreter."""

from itertools import permutations

import pytest
import torch
from scipy.optimize import linear_sum_assignment

from alphaiou.detectors.ops.assignment import _assign, assign
from tests.detectors.ops.kernels import DEVICE, check_in_the_interpreter, in_the_interpreter, kernel

pytestmark = pytest.mark.gpu


def random_costs(problems, rows, columns, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(problems, rows, columns, generator=generator)


def close_costs(problems, rows, columns):
    """All rows want the same columns, so that paths are long."""
    order = torch.arange(columns, dtype=torch.float32)
    return order + 0.01 * random_costs(problems, rows, columns, seed=5)


COSTS = {
    "random": random_costs(4, 12, 20),
    "square": random_costs(3, 17, 17, seed=1),
    "long paths": close_costs(2, 16, 33),
    "products": torch.arange(1.0, 13)[:, None] * torch.arange(1.0, 17) * torch.ones(2, 1, 1),
    "ties": random_costs(4, 10, 13, seed=2).round(),
    "all equal": torch.full((2, 6, 9), 0.5),
    "equal rows": random_costs(2, 1, 30, seed=3).expand(2, 11, 30),
    "equal columns": random_costs(2, 11, 1, seed=4).expand(2, 11, 30),
    "huge": random_costs(2, 8, 12, seed=6) * 1e30,
    "tiny": random_costs(2, 8, 12, seed=7) * 1e-30,
    "far from 0": random_costs(2, 8, 12, seed=8) + 1e4,
    "all scales": 10.0 ** (8 * random_costs(2, 9, 12, seed=9)).clamp(-30, 30),
    "one column": random_costs(3, 1, 1),
    "one row": random_costs(3, 1, 40),
}


def check(solve, cost, counts):
    """Columns are taken once, and their total is the least; rows that sit out have column 0."""
    found = solve(cost.to(DEVICE), counts.to(DEVICE)).cpu()
    assert found.dtype == torch.int64
    assert found.shape == cost.shape[:2]
    for matrix, columns, count in zip(cost.double(), found, counts.tolist(), strict=True):
        own = columns[:count]
        assert len(own.unique()) == count
        assert (columns[count:] == 0).all()
        total = matrix[torch.arange(count), own].sum().item()
        rows, best = linear_sum_assignment(matrix[:count].numpy())
        least = matrix[torch.from_numpy(rows), torch.from_numpy(best)].sum().item()
        assert total == pytest.approx(least, rel=1e-12, abs=1e-12 * matrix.abs().max().item())


def some_of(cost):
    """All rows, half of them, none, one."""
    problems, rows, _ = cost.shape
    return torch.tensor([rows, rows // 2, 0, 1] * problems)[:problems]


@pytest.mark.parametrize("name", COSTS)
def test_the_total_is_the_least(name):
    check(assign, COSTS[name], some_of(COSTS[name]))


@pytest.mark.parametrize("name", COSTS)
def test_the_kernel_finds_the_least_total(name):
    check(kernel("assignment"), COSTS[name], some_of(COSTS[name]))


def test_the_kernel_is_right_about_every_small_problem():
    """Against all permutations; few different costs make ties and equal paths the rule."""
    cost = torch.randint(4, (40, 4, 5), generator=torch.Generator().manual_seed(0)).float()
    found = kernel("assignment")(cost.to(DEVICE), counts_of(40, 4)).cpu()
    ways = torch.tensor(list(permutations(range(5), 4)))
    totals = cost[:, torch.arange(4), ways].sum(-1)
    assert cost.gather(2, found[..., None]).sum((1, 2)).equal(totals.amin(1))


@pytest.mark.parametrize("junk", [torch.nan, torch.inf, -torch.inf])
def test_the_kernel_takes_costs_that_are_no_numbers_last(junk):
    cost = random_costs(3, 5, 7)
    cost[0, :, 2] = junk
    cost[1, 3] = junk
    cost[2] = junk
    solve, largest = kernel("assignment"), torch.finfo(torch.float32).max
    cleaned = cost.nan_to_num(largest, largest, largest).to(DEVICE)
    for found in (assign(cost.to(DEVICE), counts_of(3, 5)), solve(cleaned, counts_of(3, 5))):
        assert not (found[0] == 2).any()
        assert all(len(columns.unique()) == 5 for columns in found)


@pytest.mark.filterwarnings("ignore:invalid value")  # the interpreter is numpy, which warns
@pytest.mark.parametrize("junk", [torch.nan, torch.inf])
def test_the_kernel_ends_even_with_costs_that_are_no_numbers(junk):
    """Its own caller takes them out before; if it did not, the answer would be wrong, but one."""
    cost = torch.full((2, 4, 6), junk)
    cost[1] = random_costs(1, 4, 6)[0]
    cost[1, 2, 3] = junk
    found = kernel("assignment")(cost.to(DEVICE), counts_of(2, 4)).cpu()
    assert ((found >= 0) & (found < 6)).all()


def counts_of(problems, rows):
    return torch.full((problems,), rows, device=DEVICE)


def test_counts_beyond_the_rows_are_all_rows():
    cost = random_costs(2, 3, 5)
    assert assign(cost, counts_of(2, 9)).equal(assign(cost, counts_of(2, 3)))


@pytest.mark.parametrize("shape", [(0, 3, 5), (2, 0, 5)])
def test_nothing_in_nothing_out(shape):
    assert assign(torch.zeros(shape), torch.zeros(shape[0]).long()).shape == shape[:2]


def test_more_rows_than_columns():
    with pytest.raises(ValueError, match=r"more rows \(3\) than columns \(2\)"):
        assign(torch.zeros(1, 3, 2), torch.tensor([2]))


def test_is_an_operator_that_can_be_compiled():
    cost, counts = COSTS["random"].to(DEVICE), counts_of(4, 12)
    torch.library.opcheck(_assign, (cost, counts))
    compiled = torch.compile(assign, fullgraph=True, backend="eager")
    assert compiled(cost, counts).equal(assign(cost, counts))


@pytest.mark.slow
@in_the_interpreter
def test_in_the_interpreter():
    check_in_the_interpreter(__file__, "kernel", len(COSTS) + 6)
