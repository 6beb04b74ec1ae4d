"""What is not the same in two diagnoses, and the sentence that says it. Pure."""

from memdoctor.difference.comparing import difference_of, layers_together
from memdoctor.difference.wording import in_words, signed, tensors_in_words

__all__ = ["difference_of", "in_words", "layers_together", "signed", "tensors_in_words"]
