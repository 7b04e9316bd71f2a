import pytest
import torch

from tests.losses.kernels.cases import kernel_device


@pytest.fixture
def device():
    return torch.device(kernel_device())
