"""`python -m workbench` is the command `workbench`."""

import os
import sys

# Python puts the folder it was started in first, where a file of a cloned project would stand in for a package's module.
if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:  # noqa: PTH109
    del sys.path[0]

from workbench.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
