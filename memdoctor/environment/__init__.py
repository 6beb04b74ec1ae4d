"""The environment for a bug report: what is there, what is wrong with it, and what to do."""

from memdoctor.environment.facts import document, facts
from memdoctor.environment.gather import Environment, gather
from memdoctor.environment.problems import find_problems
from memdoctor.environment.wording import Problem

__all__ = ["Environment", "Problem", "document", "facts", "find_problems", "gather"]
