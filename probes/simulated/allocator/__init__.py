"""A model of PyTorch's CUDA caching allocator: which address, how many bytes reserved, when it runs out.

``settings`` holds the numbers and the roundings, ``blocks`` and ``segments`` what memory is made of,
``caching`` the allocator itself. ``replay`` runs births and deaths of blocks through it; ``traces`` and
``comparison`` prove it against histories that real GPUs recorded. Standard library only, no GPU.
"""
