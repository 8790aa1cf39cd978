"""Shell scripts parse, and pass shellcheck where it is installed."""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import tidy

SHELL = re.compile(r"#!.*\b(ba)?sh\b|# shellcheck shell=")


def check_script(path):
    command = ["bash", "-n", str(path)]
    if shutil.which("shellcheck"):
        command = ["shellcheck", "-x", "-P", "SCRIPTDIR:tools:.", "-f", "gcc", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tidy.ROOT, check=False)
    return [] if done.returncode == 0 else [f"{path}: {(done.stdout + done.stderr).strip()}"]


def is_shell(name):
    suffix = Path(name).suffix
    return suffix in ("", ".sh") and SHELL.match(tidy.read(name).partition("\n")[0]) is not None


def check_repository():
    scripts = [name for name in tidy.repository_files("", ".sh") if is_shell(name)]
    if not scripts:
        sys.exit("no shell scripts found: the search is broken")
    return [complaint for script in scripts for complaint in check_script(script)]


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script"
        script.write_text("#!/usr/bin/env bash\nif true; then echo hello; fi\n", encoding="utf-8")
        tidy.expect(check_script(script))
        script.write_text("#!/usr/bin/env bash\nif true; then echo hello\n", encoding="utf-8")
        tidy.expect(check_script(script), str(script))


if __name__ == "__main__":
    tidy.main(check_repository, self_test)
