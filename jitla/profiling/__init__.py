"""Which calls are worth tracing, before anything heavy is loaded: classes of arguments, bounds on loops.

Tracing counts by the same classes, so that this package is below it; what is decided from the counts of
traced calls is in `jitla.tracing.profile`.
"""
