"""Reports: from a diagnosis to what people and programs read."""
