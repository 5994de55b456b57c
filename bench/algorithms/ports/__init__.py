"""The scripts as people write them for other systems: a folder for each, files named as what they replace."""
