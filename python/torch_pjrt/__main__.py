"""python -m torch_pjrt: the same as the program torch-pjrt."""
import sys

from torch_pjrt.cli import main

sys.exit(main())
