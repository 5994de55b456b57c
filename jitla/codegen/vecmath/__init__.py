"""Mathematical functions as vector code."""
