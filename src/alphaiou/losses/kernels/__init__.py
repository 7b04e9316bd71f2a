"""The fused kernels: one analytic pair loss, for Triton on CUDA and torch.compile on the CPU."""
