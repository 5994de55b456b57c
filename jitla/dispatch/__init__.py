"""What a call of a decorated function does: plain, traced or compiled; and its controls."""
