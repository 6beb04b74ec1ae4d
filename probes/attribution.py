"""From marks to categories: an ordered list of rules, each resting on a fact that was seen, none on subtraction."""

from __future__ import annotations

from memdoctor.probes.tracker import BlockDraft, Mark
from memdoctor.records import Category

# First match wins. A parameter saved for backward is still a parameter; a gradient that was first an operator's
# output is a gradient; an autocast copy is saved by the product that uses it and is still a copy. What nobody
# marked is a temporary: an operator's output that neither autograd, the optimizer nor the model kept.
ORDER: tuple[tuple[Mark, Category], ...] = (
    (Mark.WORKSPACE, Category.WORKSPACE),
    (Mark.PARAMETER, Category.PARAMETERS),
    (Mark.BUFFER, Category.INPUTS_AND_BUFFERS),
    (Mark.INPUT, Category.INPUTS_AND_BUFFERS),
    (Mark.OPTIMIZER_STATE, Category.OPTIMIZER_STATE),
    (Mark.GRADIENT, Category.GRADIENTS),
    (Mark.AUTOCAST_COPY, Category.AUTOCAST_COPIES),
    (Mark.SAVED_FOR_BACKWARD, Category.ACTIVATIONS),
)


def category_of(draft: BlockDraft) -> Category:
    """The category of a block by the first of its marks in :data:`ORDER`; unmarked blocks are temporaries."""
    return next((category for mark, category in ORDER if mark in draft.marks), Category.TEMPORARIES)
