#!/usr/bin/env python3
"""Makes digits.bin from digits.csv or digits.csv.gz: one image a line, 64 pixels 0..16 and the digit.

    convert.py digits.csv.gz digits.bin         write it
    convert.py --check digits.csv.gz digits.bin compare what is there with what would be written

Standard library only. DATA.md says where the input comes from and what the output looks like.
"""
import gzip
import struct
import sys


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def convert(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rt") as lines:
        rows = [[int(float(field)) for field in line.split(",")] for line in lines if line.strip()]
    for number, row in enumerate(rows, 1):
        if len(row) != 65 or not all(0 <= p <= 16 for p in row[:64]) or not 0 <= row[64] <= 9:
            sys.exit(f"{path}, image {number}: want 64 pixels 0..16 and a digit 0..9")
    body = b"NXDIGIT1" + struct.pack("<II", len(rows), 64)
    body += b"".join(bytes(row[:64]) for row in rows) + bytes(row[64] for row in rows)
    return body + struct.pack("<Q", fnv1a(body))


def main(arguments):
    check = arguments[:1] == ["--check"]
    if len(arguments) != 2 + check:
        sys.exit(__doc__)
    source, target = arguments[check:]
    data = convert(source)
    if not check:
        with open(target, "wb") as out:
            out.write(data)
    elif open(target, "rb").read() != data:
        sys.exit(f"{target} is not what {source} gives")
    print(f"{target}: {len(data)} bytes, FNV-1a {data[-8:][::-1].hex()}")


if __name__ == "__main__":
    main(sys.argv[1:])
