"""The command line: thin commands that parse, call one use case, print and exit."""

from memdoctor.cli.main import main

__all__ = ["main"]
