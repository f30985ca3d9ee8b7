"""test_layout.py CC - python/lockstep/capi.py is what tools/api_ctypes.py makes of the headers, and its structs and enums
are laid out as the C compiler CC lays them out."""
import contextlib
import ctypes
import importlib
import io
import os
import re
import subprocess
import sys
import tempfile
import types
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
api_ctypes = importlib.import_module("api_ctypes")
CC = sys.argv.pop()


def load_capi():
    """capi.py alone: the package itself needs numpy and the library."""
    package = types.ModuleType("lockstep")
    package.__path__ = [str(ROOT / "python/lockstep")]
    sys.modules["lockstep"] = package
    return importlib.import_module("lockstep.capi")


def printed(function):
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        function(api_ctypes.Api(ROOT))
    return text.getvalue()


def c_layout():
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "layout.c"), os.path.join(folder, "layout")
        Path(source).write_text(printed(api_ctypes.print_layout))
        subprocess.run([CC, "-std=c17", "-I", ROOT / "include", source, "-o", program], check=True)
        return subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


def layout(kind):
    """The lines of one type, as the C program prints them."""
    yield f"{kind.__name__} {ctypes.sizeof(kind)}"
    if issubclass(kind, ctypes.Structure):
        for name, *_ in kind._fields_:
            member = getattr(kind, name)
            yield f"{kind.__name__}.{name} {member.offset} {member.size}"
    else:
        yield from (f"{kind.__name__}.{word} {value}" for word, value in kind.values.items())


class Layout(unittest.TestCase):
    def test_module_is_up_to_date(self):
        self.assertEqual((ROOT / "python/lockstep/capi.py").read_text(), printed(api_ctypes.print_module),
                         "run tools/api_ctypes.py record")

    def test_layout_is_that_of_c(self):
        capi = load_capi()
        kinds = [kind for kind in vars(capi).values() if isinstance(kind, type) and kind.__name__.startswith("lk_")
                 and issubclass(kind, (ctypes.Structure, ctypes.c_int))]
        mirrored = [line for kind in kinds for line in layout(kind)]
        self.assertGreater(len(mirrored), 100)
        self.assertEqual(sorted(mirrored), sorted(c_layout()))

    def test_no_type_is_overlooked(self):
        """Every typedef of the headers is a struct, an enum, a callback or an opaque type."""
        api = api_ctypes.Api(ROOT)
        opaque = re.findall(r"typedef struct (lk_\w+) \1;", api.text)
        self.assertEqual(api.text.count("typedef "), len({*api.structs, *api.enums, *api.callbacks}) + len(opaque))


if __name__ == "__main__":
    unittest.main()
