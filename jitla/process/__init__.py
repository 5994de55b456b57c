"""Services of the operating-system process for all packages.

- `loading` imports modules of jitla during calls: completely or not at all, despite signals and forks.
- `resources` checks for memory, memory mappings and thread stacks before their lack would be fatal.

The package depends on `jitla.concurrency` only.
"""
