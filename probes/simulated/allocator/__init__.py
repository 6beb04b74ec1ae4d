"""A model of PyTorch's CUDA caching allocator: which address, how many bytes reserved, when it runs out.

``settings`` holds the numbers and the roundings and ``conf`` reads them from ``PYTORCH_ALLOC_CONF``; ``blocks``,
``segments`` and ``expandable`` are what memory is made of, ``releases`` what goes back to the driver, ``oom`` what is
said when all is in use, ``caching`` the allocator itself. ``replay`` runs births and deaths of blocks through it;
``traces`` and ``comparison`` prove it against histories that real GPUs recorded. Standard library only, no GPU.
"""
