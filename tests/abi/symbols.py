"""What libnexar_c.so exports is what include/nexar.h and its parts declare, under one version, which is the header's; nothing.c calls
all of it; the library needs libc and the C++ runtime, nothing else.

    symbols.py libnexar_c.so nexar.h nothing.c [sanitized]
"""

import re
import subprocess
import sys

from header import whole

RUNTIME = ("libc.so", "libm.so", "libstdc++.so", "libgcc_s.so", "libc++.so", "libc++abi.so", "ld-linux")


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def exported(library):
    names = set()
    for line in run("nm", "-D", "--defined-only", library).splitlines():
        _, kind, name = line.split()
        if kind != "A":
            names.add(name.split("@")[0])
    return names


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def abi_version(header):
    """Until 1.0 each 0.N is an ABI of its own."""
    major, minor = (re.search(rf"NEXAR_VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR"))
    return f"NEXAR_0.{minor}" if major == "0" else f"NEXAR_{major}"


def main():
    library, header, caller = sys.argv[1:4]
    text, called = whole(header), read(caller)
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    declared = set(re.findall(r"\b(nexar_\w+)\s*\(", text))
    found, version = exported(library), abi_version(text)
    complaints = [f"{name}: never called by {caller}" for name in sorted(declared - set(re.findall(r"nexar_\w+", called)))]
    for line in run("nm", "-D", "--defined-only", "--with-symbol-versions", library).splitlines():
        name = line.split()[-1]
        if name.startswith("nexar_") and not name.endswith(f"@@{version}"):
            complaints.append(f"{name}: not of version {version}")
    for name in sorted(found ^ declared):
        complaints.append(f"{name}: {'exported, but not declared' if name in found else 'declared, but not exported'}")
    if "sanitized" not in sys.argv:
        for name in re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", library)):
            if not name.startswith(RUNTIME):
                complaints.append(f"needs {name}")
    for complaint in complaints:
        print(complaint)
    print(f"{len(found)} symbols exported")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
