"""The line that sets the caching allocator up, for the shell that starts the script."""

from __future__ import annotations

import shlex

from memdoctor.patches.edit import Release

RENAMED: Release = (2, 9)
"""torch's first that reads ``PYTORCH_ALLOC_CONF``; the older name is read by every release."""


def environment_line(alloc_conf: str, torch: Release) -> str:
    """Sets the settings, or takes them away where there are none."""
    name = "PYTORCH_ALLOC_CONF" if torch >= RENAMED else "PYTORCH_CUDA_ALLOC_CONF"
    return (
        f"export {name}={shlex.quote(alloc_conf)}" if alloc_conf else "unset PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF"
    )
