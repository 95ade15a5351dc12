"""Extracts parts of wheels: WHEELS FOLDER PREFIX=PLACE..."""

import pathlib
import shutil
import sys
import zipfile

wheels, folder, *parts = sys.argv[1:]
parts = [part.split("=") for part in parts]
found = set()
for wheel in sorted(pathlib.Path(wheels).glob("*.whl")):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            for prefix, place in parts:
                if name.startswith(prefix) and not name.endswith("/"):
                    found.add(prefix)
                    target = pathlib.Path(folder, place + name[len(prefix) :])
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with archive.open(name) as source, open(target, "wb") as copy:
                        shutil.copyfileobj(source, copy)
for prefix, _ in parts:
    if prefix not in found:
        sys.exit(f"no wheel holds {prefix}")
