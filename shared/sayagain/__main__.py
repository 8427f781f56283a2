"""``python -m sayagain`` is the ``sayagain`` command."""

import sys

from sayagain.cli import main

if __name__ == "__main__":
    sys.exit(main())
