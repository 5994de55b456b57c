"""SciPy's and scikit-learn's own tests, run with the libraries' functions decorated."""
