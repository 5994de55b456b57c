"""`python -m tests.call_fuzz --seeds A:B --jobs N`: run random programs of calls, count, show, shrink."""

from __future__ import annotations

import sys

from tests.call_fuzz.driver import main

if __name__ == "__main__":
    sys.exit(main())
