"""The native run time, written as LLVM text."""
