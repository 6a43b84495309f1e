"""Prints product lines by language (blank lines and comments left out): C must be at least 60%, C++ at most 4,000 lines.

    python3 tools/loc.py [--check]
"""
import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Product: what is installed. Tests, tools, examples, benchmarks and generated tables are not.
PRODUCT = {"C": [("core", "*.c"), ("core", "*.h")], "C++": [("bridge", "*.cpp"), ("bridge", "*.h")], "Python": [("python", "*.py")]}
LEFT_OUT = ("core/tests/",)
LEAST_C, MOST_CPP = 0.60, 4000


def lines_of(path):
    """Lines that are code."""
    text = path.read_text()
    if path.suffix == ".py":
        text = re.sub(r'^\s*(?:"""[\s\S]*?""")\s*$', "", text, flags=re.M)
        return sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith("#"))
    text = re.sub(r"/\*[\s\S]*?\*/", "", text)
    return sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith("//"))


def count():
    totals = {}
    for language, places in PRODUCT.items():
        files = [f for folder, pattern in places for f in (ROOT / folder).rglob(pattern)
                 if not str(f.relative_to(ROOT)).startswith(LEFT_OUT)]
        totals[language] = sum(map(lines_of, files))
    return totals


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit status 1 when a limit is broken")
    options = parser.parse_args()
    totals = count()
    everything = sum(totals.values())
    for language, lines in totals.items():
        print(f"{language:<8}{lines:>7} lines {lines / everything:>7.1%}")
    broken = totals["C"] < LEAST_C * everything or totals["C++"] > MOST_CPP
    if broken:
        print(f"limits: C at least {LEAST_C:.0%}, C++ at most {MOST_CPP} lines", file=sys.stderr)
    return options.check and broken


if __name__ == "__main__":
    sys.exit(main())
