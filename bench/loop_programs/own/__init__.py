"""Programs of our own, one file per field, written as users write loops over NumPy arrays."""
