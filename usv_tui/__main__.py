"""`usv-tui` and `python -m usv_tui`."""

import sys

from usv_tui.cli import main

if __name__ == "__main__":
    sys.exit(main())
