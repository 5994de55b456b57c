"""NumPy functions as operators of the tape."""
