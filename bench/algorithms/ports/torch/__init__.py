"""Networks as modules of torch are written: tensors in, tensors out."""
