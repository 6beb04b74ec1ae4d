"""How many multiprocessors a card has: kernels size some of their buffers by it.

The counts are taken to be those of NVIDIA's data sheets; none was read back from a card. One that is not listed counts
as the largest of its compute capability: buffers grow with the count, so none comes out too small.
"""

from __future__ import annotations

from dataclasses import dataclass

from memdoctor.catalogue import find_gpu

_CARDS = {
    "T4": 40, "V100-16GB": 80, "V100-32GB": 80, "P100-16GB": 56, "P40": 30, "K80": 13, "A100-40GB": 108,
    "A100-80GB": 108, "A10": 72, "A10G": 80, "A30": 56, "A40": 84, "L4": 58, "L40": 142, "L40S": 142,
    "H100-80GB": 132, "H100-NVL": 132, "H200": 132, "H20": 78, "B200": 148, "A6000": 84, "A5000": 64, "A4000": 48,
    "A2000-12GB": 26, "RTX6000Ada": 142, "RTX-PRO-6000": 188, "QuadroRTX8000": 72, "QuadroRTX6000": 72,
    "TITAN-RTX": 72, "TITAN-V": 80, "TITAN-Xp": 30, "RTX5090": 170, "RTX5080": 84, "RTX5060Ti-16GB": 36,
    "RTX5060Ti-8GB": 36, "RTX4090": 128, "RTX4080-SUPER": 80, "RTX4080": 76, "RTX4070Ti-SUPER": 66,
    "RTX4070Ti": 60, "RTX4070": 46, "RTX4060Ti-16GB": 34, "RTX4060Ti-8GB": 34, "RTX4060": 24, "RTX3090Ti": 84,
    "RTX3090": 82, "RTX3080Ti": 80, "RTX3080": 70, "RTX3070": 46, "RTX3060": 28, "RTX2080Ti": 68,
    "RTX2080-SUPER": 48, "RTX2070-SUPER": 40, "RTX2070": 36, "RTX2060-SUPER": 34, "RTX2060": 34, "GTX1080Ti": 28,
    "GTX1080": 20, "GTX1070": 15,
}  # fmt: skip
_LARGEST = {
    (6, 0): 56, (6, 1): 30, (7, 0): 84, (7, 5): 72, (8, 0): 108, (8, 6): 84, (8, 7): 16, (8, 9): 142, (9, 0): 132,
    (10, 0): 160, (10, 3): 160, (12, 0): 188, (12, 1): 48,
}  # fmt: skip
_LARGEST_OF_ALL = 188
# CUDA programming guide, technical specifications by compute capability: resident threads of a multiprocessor.
_THREADS = {(7, 5): 1024, (8, 6): 1536, (8, 7): 1536, (8, 9): 1536, (11, 0): 1536, (12, 0): 1536, (12, 1): 1536}
_THREADS_ELSEWHERE = 2048


@dataclass(frozen=True, slots=True)
class Processors:
    """Multiprocessors of a card, and the threads that one of them holds."""

    count: int
    threads: int


def processors_of(name: str, capability: tuple[int, int]) -> Processors:
    """Of a card in the catalogue by one of its names; of any other the most that its compute capability has."""
    entry = find_gpu(name)
    same = entry is not None and entry.compute_capability == f"{capability[0]}.{capability[1]}"
    listed = _CARDS.get(entry.name) if entry is not None and same else None
    count = listed or _LARGEST.get(capability, _LARGEST_OF_ALL)
    return Processors(count, _THREADS.get(capability, _THREADS_ELSEWHERE))
