"""Builds the wheel of the package `lockstep` for pip: its Python files and their description. pip needs no other package
for that, and no network."""
import base64
import hashlib
import io
import re
import tarfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
VERSION = re.search(r'^VERSION = "(.*)"$', (HERE / "lockstep/capi.py").read_text(), re.M).group(1)
NAME = f"lockstep-{VERSION}"
METADATA = f"""Metadata-Version: 2.1
Name: lockstep
Version: {VERSION}
Summary: Neural networks trained to the same bits in every layout: liblockstep in Python
License: MIT
Requires-Python: >=3.9
Requires-Dist: numpy
"""
WHEEL = "Wheel-Version: 1.0\nGenerator: lockstep\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
# Of every file: a wheel of the same sources has the same bytes.
DATE = (1980, 1, 1, 0, 0, 0)


def _sources():
    return {f"lockstep/{path.name}": path.read_bytes() for path in sorted((HERE / "lockstep").glob("*.py"))}


def _record(files, name):
    lines = []
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(content)}\n")
    return "".join([*lines, f"{name},,\n"]).encode()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    files = {**_sources(), f"{NAME}.dist-info/METADATA": METADATA.encode(), f"{NAME}.dist-info/WHEEL": WHEEL.encode()}
    files[f"{NAME}.dist-info/RECORD"] = _record(files, f"{NAME}.dist-info/RECORD")
    name = f"{NAME}-py3-none-any.whl"
    with zipfile.ZipFile(Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(zipfile.ZipInfo(path, DATE), content, zipfile.ZIP_DEFLATED)
    return name


def build_sdist(sdist_directory, config_settings=None):
    files = {**_sources(), "PKG-INFO": METADATA.encode()}
    for path in (HERE / "pyproject.toml", HERE / "wheel_backend.py"):
        files[path.name] = path.read_bytes()
    name = f"{NAME}.tar.gz"
    with tarfile.open(Path(sdist_directory) / name, "w:gz") as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(f"{NAME}/{path}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return name
