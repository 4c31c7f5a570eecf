"""`python -m workbench` is the command `workbench`."""

import os
import sys

# Python looks first in the folder it was started in, where a file of a cloned project may have a module's name.
if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:  # noqa: PTH109
    del sys.path[0]

from workbench.cli import main

if __name__ == "__main__":
    sys.exit(main())
