"""The scripts ported to JAX: what has loops is traced once, as its guides advise."""
