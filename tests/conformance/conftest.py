"""The suite is run from the repository's root and belongs to no installed package."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
