"""What libnexar_c.so exports is what nexar.map lists is what include/nexar.h declares; it needs libc and the C++
runtime, nothing else. Usage: symbols.py libnexar_c.so nexar.map nexar.h [sanitized]"""

import re
import subprocess
import sys

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


def main():
    library, map_file, header = sys.argv[1:4]
    with open(map_file, encoding="utf-8") as file:
        listed = set(re.findall(r"^\s*(nexar_\w+);", file.read(), re.MULTILINE))
    with open(header, encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.DOTALL)
    declared = set(re.findall(r"\b(nexar_\w+)\s*\(", text))
    found = exported(library)
    complaints = []
    for name in sorted(found ^ listed):
        complaints.append(f"{name}: {'exported, but not in nexar.map' if name in found else 'in nexar.map, not exported'}")
    for name in sorted(declared ^ listed):
        complaints.append(f"{name}: {'declared, but not in nexar.map' if name in declared else 'in nexar.map, not declared'}")
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
