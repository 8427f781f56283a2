"""Make a virtual environment with the lowest versions of the direct dependencies that pyproject.toml admits."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

# Only what runs the tests is installed new: the product's own bounds are on trial. An old anyio brings a pytest plugin
# that a newer pytest warns of.
TEST_TOOLS = ["pytest<9.1", "trio", "hypothesis", "pytest-mock", "jsonschema", "psutil"]


def main(folder: str) -> None:
    """Create ``folder`` anew, unless it was made from this very pyproject.toml."""
    text = Path("pyproject.toml").read_text(encoding="utf-8")
    stamp = Path(folder, ".made-from")
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == text:
        return
    venv.create(folder, with_pip=True, clear=True)
    lowest = [re.sub(r">=", "==", requirement) for requirement in tomllib.loads(text)["project"]["dependencies"]]
    pip = [f"{folder}/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *lowest, *TEST_TOOLS], check=True)
    subprocess.run([*pip, "--no-deps", "--editable", "."], check=True)
    stamp.write_text(text, encoding="utf-8")


main(sys.argv[1])
