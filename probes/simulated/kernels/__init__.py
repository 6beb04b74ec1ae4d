"""The scratch memory of CUDA's kernels, worked out from their sources: one pure function for each kernel."""
