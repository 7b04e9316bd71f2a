import pytest
import torch

from tests.fused.cases import kernel_device


@pytest.fixture
def device():
    return torch.device(kernel_device())
