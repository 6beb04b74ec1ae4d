"""Is gradient accumulation what it should be? The real loop on the CPU with real numbers, watched and compared."""
