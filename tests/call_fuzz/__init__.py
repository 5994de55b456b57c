"""Random programs of functions and classes that call each other in many ways, plain against decorated.

In the order of the data: `draft` fills templates, `statements`, `wrappers`, `classes` and `events` have them,
`program` makes modules, `observe` says what can be seen of one that ran, `runner` compares, `shrink` makes
what differs small, `driver` runs many programs in processes of their own.
"""
