"""Writes the wheel. Arguments: VERSION TAG BUILT LICENCES SBOM README OUT; run in the root of the source tree.

unisono/                             the Python package
unisono-VERSION.data/scripts/        the program, which pip puts beside python3
unisono-VERSION.data/data/lib/       the library, which pip puts into the lib beside that directory
unisono-VERSION.dist-info/           metadata, licences, SBOM, and the list of all files with their hashes
"""

import base64
import hashlib
import os
import sys
import time
import tomllib
import zipfile
from pathlib import Path

version, tag, built, licences, sbom, readme, out = sys.argv[1:]
project = tomllib.loads(Path("python/pyproject.toml").read_text())["project"]
if project["version"] != version:
    sys.exit(f"python/pyproject.toml has version {project['version']}, the program {version}")

metadata = f"""\
Metadata-Version: 2.4
Name: {project["name"]}
Version: {version}
Summary: {project["description"]}
License-Expression: {project["license"]["text"]}
License-File: LICENSE-APACHE
License-File: LICENSE-MIT
License-File: LICENCES-OF-PARTS.txt
Requires-Python: {project["requires-python"]}
Provides-Extra: numpy
Requires-Dist: numpy; extra == "numpy"
Description-Content-Type: text/markdown

{Path(readme).read_text()}"""

# pip puts the package beside the library's directory: it is pure Python, which finds the library when it runs
wheel = f"Wheel-Version: 1.0\nGenerator: unisono\nRoot-Is-Purelib: true\nTag: {tag}\n"

info, data = f"unisono-{version}.dist-info", f"unisono-{version}.data"
files = {f"unisono/{path.name}": path.read_bytes() for path in Path("python/unisono").iterdir() if path.is_file()}
files |= {
    f"{data}/scripts/unisono": Path(built, "unisono").read_bytes(),
    f"{data}/data/lib/libunisono.so": Path(built, "libunisono.so").read_bytes(),
    f"{info}/METADATA": metadata.encode(),
    f"{info}/WHEEL": wheel.encode(),
    f"{info}/licenses/LICENSE-APACHE": Path("LICENSE-APACHE").read_bytes(),
    f"{info}/licenses/LICENSE-MIT": Path("LICENSE-MIT").read_bytes(),
    f"{info}/licenses/LICENCES-OF-PARTS.txt": Path(licences).read_bytes(),
    f"{info}/sboms/unisono.cdx.json": Path(sbom).read_bytes(),
}
record = ""
for name in sorted(files):
    digest = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
    record += f"{name},sha256={digest},{len(files[name])}\n"
files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()

path = Path(out, f"unisono-{version}-{tag}.whl")
moment = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
    # the list and the metadata last, as the format recommends
    for name in sorted(files, key=lambda name: (name.startswith(info), name)):
        entry = zipfile.ZipInfo(name, moment)
        entry.external_attr = (0o100755 if "/scripts/" in name else 0o100644) << 16
        archive.writestr(entry, files[name], zipfile.ZIP_DEFLATED, 9)
print(path)
