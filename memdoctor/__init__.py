"""memdoctor: find out why BERT fine-tuning runs out of GPU memory."""

__version__ = "0.1.0"
