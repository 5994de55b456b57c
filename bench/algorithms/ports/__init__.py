"""The scripts as people write them for other systems: one folder for each, files named as those they stand for."""
