"""What jitla needs of the process: modules loaded whole, memory, memory mappings and thread stacks."""
