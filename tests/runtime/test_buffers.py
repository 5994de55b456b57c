"""`empty` without native code gives the same layouts."""

import numpy as np
import pytest

from jitla.runtime.process import numpy_empty


@pytest.mark.parametrize("axes", [(), (0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)])
def test_plain_empty(axes: tuple[int, ...]) -> None:
    a = numpy_empty((3, 4, 5), np.dtype("f4"), axes)
    assert a.flags.owndata and a.shape == (3, 4, 5) and a.dtype == np.float32
    order = axes or (0, 1, 2)
    assert list(np.argsort([-s for s in a.strides], kind="stable")) == list(order)
