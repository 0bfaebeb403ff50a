"""`usv-tui` and `python -m usv_tui`."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    # `python -m` searches the current directory first: it may hold a module of any name.
    sys.path.append(sys.path.pop(0))

from usv_tui.cli import main

if __name__ == "__main__":
    sys.exit(main())
