"""Training steps recorded on a real GPU, each beside its simulation: ``python -m memdoctor.probes.record --help``.

Needs torch and transformers with what they bring, click and pydantic, and nothing else: machines with a GPU often
have no package index.
"""
