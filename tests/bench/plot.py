"""Pictures of what tools/bench measured: time over bytes, both logarithmic, a picture per operation, topology and link.

    tests/bench/plot.py FOLDER FILE...      draws them into FOLDER from what tools/bench --json wrote
"""
import collections
import json
import pathlib
import sys

Point = collections.namedtuple("Point", "bytes median low high wide")  # microseconds


def pictures_of(rows):
    """{(operation, topology, link): {what a line is of: [Point, ...] by bytes}}; alloc is its own line."""
    pictures = {}
    for cell in (cell for row in rows for cell in row):
        picture = pictures.setdefault((cell["operation"], cell["topology"], cell["link"]), {})
        name = cell["competitor"] + (", nexar_alloc" if cell["memory"] == "alloc" else "")
        picture.setdefault(name, []).append(
            Point(cell["bytes"], cell["median_us"], cell["q1_us"], cell["q3_us"], cell["wide"]))
    return {key: {name: sorted(points) for name, points in picture.items()} for key, picture in pictures.items()}


def file_name(operation, topology, link):
    return f"{operation}-{topology}{'-' + link if link else ''}.png"


def style_of(name, limits):
    """Limits are dashed and grey, what is nexar's thick."""
    if name in limits:
        return {"linestyle": "--", "color": "0.45", "linewidth": 1}
    return {"linewidth": 2.2 if name.startswith("nexar") else 1.2}


def draw(pyplot, key, picture, limits, file):
    operation, topology, link = key
    figure, axes = pyplot.subplots(figsize=(8, 5.5), dpi=80)
    for name, points in picture.items():
        sizes = [point.bytes for point in points]
        line = axes.plot(sizes, [point.median for point in points], marker="o", markersize=3.5, label=name,
                         **style_of(name, limits))[0]
        axes.fill_between(sizes, [point.low for point in points], [point.high for point in points], alpha=0.15,
                          color=line.get_color())
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("bytes")
    axes.set_ylabel("microseconds (median, and quartiles)")
    axes.set_title(f"{operation}, {topology.replace('x', ' hosts x ')} ranks, {link or 'links not shaped'}")
    axes.grid(True, which="major", alpha=0.4)
    axes.legend()
    figure.savefig(file, bbox_inches="tight", metadata={"Software": None})
    pyplot.close(figure)


def plot(rows, limits, folder):
    """Writes the pictures; their files, or None without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for key, picture in pictures_of(rows).items():
        files.append(folder / file_name(*key))
        draw(pyplot, key, picture, limits, files[-1])
    return files


def main(folder, *names):
    for name in names:
        kept = json.loads(pathlib.Path(name).read_text())
        limits = {each["name"] for each in kept["competitors"] if each["kind"] == "limit"}
        if not (files := plot(kept["clusters"], limits, pathlib.Path(folder))):
            sys.exit("plot: no matplotlib (Debian: python3-matplotlib)")
        print(*files, sep="\n")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
