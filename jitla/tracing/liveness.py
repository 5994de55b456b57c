"""stub"""
def live_locals(code, lasti):
    return None
