"""Reports as Markdown for pull requests and ``$GITHUB_STEP_SUMMARY``: at most 900 KiB, and safe whatever is in them."""

from memdoctor.reports.markdown.diagnosis import diagnosis_markdown
from memdoctor.reports.markdown.difference import difference_markdown
from memdoctor.reports.markdown.others import fit_markdown, verification_markdown

__all__ = ["diagnosis_markdown", "difference_markdown", "fit_markdown", "verification_markdown"]
