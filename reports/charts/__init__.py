"""What charts show, as numbers: each view draws them in its own way."""
