"""The table of what each op writes."""
import subprocess
import sys

from child import ROOT


def test_the_committed_table_is_what_the_installed_torch_gives():
    done = subprocess.run([sys.executable, ROOT / "tools" / "mutation_table.py", "--check"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
