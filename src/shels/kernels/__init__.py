"""GPU kernels for many small networks at once: every tensor has a leading trial axis.

Written in Triton, which comes with PyTorch's CUDA builds; nothing here is imported without a GPU.
"""
