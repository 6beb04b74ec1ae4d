"""The fallback checklist, followed: what was probed at each step, what it showed, and where the cause was found."""

from memdoctor.checklist.asking import asks
from memdoctor.checklist.causes import Cause, cause_of
from memdoctor.checklist.decisions import decisions_of
from memdoctor.checklist.trace import trace_of

__all__ = ["Cause", "asks", "cause_of", "decisions_of", "trace_of"]
