"""Mathematical functions as vector code: `library` writes the text of a function by its name.

The functions are in `exp_log` and `trig_special`, which are apart for their size, their numbers in
`coefficients`; `builder` writes the instructions.
"""
