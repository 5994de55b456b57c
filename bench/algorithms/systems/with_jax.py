"""The scripts as ported to JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from bench.algorithms.systems.entered import Entered, NotHere, lines_changed, port

jax.config.update("jax_enable_x64", True)


def enter(name: str, script: str, plain: Any, arguments: tuple[Any, ...]) -> Entered:
    """Return the call of the port."""
    if any(sp.issparse(a) for a in arguments):
        raise NotHere("ports are for dense arrays")
    function, _ = port("jax", plain)
    given = tuple(_moved(a) for a in arguments)
    return Entered(lambda: jax.block_until_ready(function(*given)), lines_changed(plain, function))


def _moved(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return jnp.asarray(value)
    return [jnp.asarray(v) for v in value] if isinstance(value, list) else value
