#!/usr/bin/env python3
"""api_ctypes.py WHAT [ROOT]: the public types and functions of ROOT/include/lockstep for Python's ctypes.

module  prints python/lockstep/capi.py.
layout  prints a C program that prints the size of each struct and the offset and size of each of its members, as
        tests/python/test_layout.py compares them with the module.
record  writes python/lockstep/capi.py; run it after every change of a public header."""
import contextlib
import ctypes
import io
import re
import sys
from pathlib import Path

from api import functions

SCALARS = {"void": None, "bool": "c_bool", "char": "c_char", "int": "c_int", "unsigned": "c_uint", "float": "c_float",
           "double": "c_double", "size_t": "c_size_t", "int32_t": "c_int32", "uint32_t": "c_uint32",
           "int64_t": "c_int64", "uint64_t": "c_uint64", "uint8_t": "c_uint8", "int8_t": "c_int8",
           "uint16_t": "c_uint16", "int16_t": "c_int16"}
COMMENT = re.compile(r"/\*.*?\*/", re.S)
ENUM = re.compile(r"typedef enum (lk_\w+) \{([^}]*)\} \1;")
STRUCT = re.compile(r"typedef struct (lk_\w+) \{([^}]*)\} \1;")
CALLBACK = re.compile(r"typedef ([\w\s*]+?)\(\*(lk_\w+)\)\(([^;]*)\);")
# Constants: macros, and enums without a name.
MACRO = re.compile(r"^#define (LK_\w+) (\d+|\(-?[\d.]+\)|SIZE_MAX)$", re.M)
NAMELESS = re.compile(r"^enum \{([^}]*)\};", re.M)


class Type:
    """The type of a declarator, as "const float *": its name, its stars, and its spelling in ctypes."""

    def __init__(self, text):
        self.const = "const" in text.split("*")[0].split()
        self.stars = text.count("*")
        self.name = " ".join(word for word in text.replace("*", " ").split() if word != "const")

    def spelled(self, known):
        if self.stars == 0:
            return SCALARS[self.name] if self.name in SCALARS else self.name
        if self.stars == 1 and self.name == "char" and self.const:
            return "c_char_p"
        if self.stars == 1 and self.name in known:
            return f"POINTER({self.name})"
        return "c_void_p"

    def argument(self, known):
        """As spelled, but arrays of floats that a function reads are known as such: builders take sequences for them."""
        return "POINTER(c_float)" if self.const and self.stars == 1 and self.name == "float" else self.spelled(known)


class Callback:
    """The type of a function that a program gives. Functions of Python get and return plain numbers and addresses."""

    def __init__(self, result, arguments):
        self.name, self.stars, self.kinds, self.arguments = "", 0, [result, *arguments], arguments

    def spelled(self, _):
        kinds = [kind.spelled(()) for kind in self.kinds]
        return f"CFUNCTYPE({', '.join('c_int' if str(kind).startswith('lk_') else str(kind) for kind in kinds)})"


class Api:
    def __init__(self, root):
        self.root = root
        self.headers = [path.read_text() for path in sorted((root / "include/lockstep").glob("*.h"))]
        self.text = "\n".join(COMMENT.sub("", header) for header in self.headers)
        self.numbers = self.constants()
        self.enums = {name: self.values(name, body) for name, body in ENUM.findall(self.text)}
        self.enums["lk_status"] = self.statuses()
        self.structs = {name: self.members(body) for name, body in STRUCT.findall(self.text)}
        self.callbacks = {name: Callback(Type(result), self.types(arguments))
                          for result, name, arguments in CALLBACK.findall(self.text)}
        self.functions = functions(root)

    def constants(self):
        found = {}
        for name, value in MACRO.findall(self.text):
            value = value.strip("()")
            found[name] = 2 ** 64 - 1 if value == "SIZE_MAX" else float(value) if "." in value else int(value)
        for body in NAMELESS.findall(self.text):
            found.update((name, int(value)) for name, value in re.findall(r"(LK_\w+) = (\d+)", body))
        return found

    def statuses(self):
        listed = re.search(r"#define LK_STATUS_LIST\(X\)(.*?[^\\])\n", self.text, re.S).group(1)
        return {name: value for value, name in enumerate(re.findall(r"X\((\w+),", listed))}

    def values(self, enum, body):
        """The values of an enum without their prefix; those that count the others are left out."""
        found, value = {}, 0
        for item in filter(None, (" ".join(item.split()) for item in body.split(","))):
            match = re.fullmatch(r"(\w+)(?: = (\w+))?", item)
            if not match or match.group(1).endswith("_COUNT"):
                continue
            value = int(match.group(2), 0) if match.group(2) else value
            found[match.group(1).removeprefix(enum.upper() + "_")] = value
            value += 1
        return found

    def members(self, body):
        """(name, type, length of an array or None) of each member."""
        found = []
        for line in filter(None, (" ".join(line.split()) for line in body.split(";"))):
            pointer = re.fullmatch(r"([\w\s*]+?)\(\*(\w+)\)\((.*)\)", line)
            if pointer:
                callback = pointer.group(1), pointer.group(3)
                found.append((pointer.group(2), Callback(Type(callback[0]), self.types(callback[1])), None))
                continue
            base = re.match(r"(?:const )?\w+(?: const)?", line).group(0)
            for declarator in line[len(base):].split(","):
                match = re.fullmatch(r"([\s*]*(?:const)?[\s*]*)(\w+)(?:\[(\w+)\])?", declarator.strip())
                if not match:
                    sys.exit(f"api_ctypes.py: this member is not understood: {line}")
                length = match.group(3)
                length = length and (self.numbers[length] if length in self.numbers else int(length))
                found.append((match.group(2), Type(base + " " + match.group(1)), length))
        return found

    def types(self, arguments):
        texts = [" ".join(text.split()) for text in arguments.split(",")]
        return [Type(re.sub(r"\w+$", "", text)) for text in texts if text != "void"]

    def ordered(self):
        """Structs and callbacks, each after those that it contains."""
        done = []

        def add(name):
            if name in done or name not in {**self.structs, **self.callbacks}:
                return
            inner = ([kind for _, kind, _ in self.structs[name]] if name in self.structs else
                     [kind for kind in self.callbacks[name].arguments if kind.stars == 0])
            for kind in inner:
                add(kind.name)
            done.append(name)

        for name in [*self.callbacks, *self.structs]:
            add(name)
        return done

    def comments(self):
        """The comment above each function; it is that of all declarations up to an empty line or the next comment."""
        found = {}
        for header in self.headers:
            for match in re.finditer(r"^/\*((?:(?!\*/).)*)\*/\n((?:(?!\n\n|/\*).)*)", header, re.S | re.M):
                text = " ".join(line.strip().removeprefix("*").strip() for line in match.group(1).split("\n"))
                for name in re.findall(r"\b(lk_\w+)\(", match.group(2)):
                    found.setdefault(name, " ".join(text.split()))
        return found


def print_struct(api, name, known):
    print(f"\n\nclass {name}(Structure):\n    _fields_ = [")
    for member, kind, length in api.structs[name]:
        print(f'        ("{member}", {kind.spelled(known)}{f" * {length}" if length else ""}),')
    print("    ]")


def print_callback(api, name):
    print(f"\n\n{name} = {api.callbacks[name].spelled(())}")


def print_function(api, function, known, comments):
    result = Type(function.result).spelled(known)
    arguments = []
    for argument in function.arguments:
        kind = Type("void *" if "(" in argument.text else argument.text[: -len(argument.name)])
        arguments.append(f'("{argument.name}", {kind.argument(known)})')
    listed = ", ".join(arguments) + ("," if len(arguments) == 1 else "")
    print(f'    "{function.name}": ({result}, ({listed}),\n        {comments.get(function.name, "")!r}),')


def print_content(api):
    version = ".".join(str(api.numbers[f"LK_VERSION_{part}"]) for part in ("MAJOR", "MINOR", "PATCH"))
    print(f'VERSION = "{version}"')
    for name, value in api.numbers.items():
        if not name.startswith("LK_VERSION"):
            print(f"{name} = {value}")
    for name, values in api.enums.items():
        print(f"\n\nclass {name}(Enum):\n    values = {values}")
    known = set()
    for name in api.ordered():
        if name in api.structs:
            print_struct(api, name, known)
            known.add(name)
        else:
            print_callback(api, name)
    comments = api.comments()
    print("\n\nFUNCTIONS = {")
    for function in api.functions:
        print_function(api, function, known, comments)
    print("}")


def print_module(api):
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        print_content(api)
    used = sorted(set(re.findall(r"\b(?:c_\w+|CFUNCTYPE|POINTER|Structure)\b", text.getvalue())) & set(dir(ctypes)))
    print('"""The C headers of Lockstep as ctypes. Written by tools/api_ctypes.py; do not edit.\n\n'
          'FUNCTIONS has for each function its result, its arguments (name and type) and the comment of its header."""')
    print(f"from ctypes import {', '.join(used)}\n\nfrom .enums import Enum\n")
    print(text.getvalue(), end="")


def print_layout(api):
    print("#include <lockstep/lockstep.h>\n#include <stddef.h>\n#include <stdio.h>\n\nint main(void)\n{")
    for name, members in api.structs.items():
        print(f'    printf("{name} %zu\\n", sizeof({name}));')
        for member, _, _ in members:
            print(f'    printf("{name}.{member} %zu %zu\\n", offsetof({name}, {member}), '
                  f"sizeof((({name} *)0)->{member}));")
    for name, values in api.enums.items():
        print(f'    printf("{name} %zu\\n", sizeof({name}));')
        for value in values:
            print(f'    printf("{name}.{value} %d\\n", (int){name.upper()}_{value});')
    print("    return 0;\n}")


def record(api):
    path = api.root / "python/lockstep/capi.py"
    with open(path, "w", encoding="utf-8") as file, contextlib.redirect_stdout(file):
        print_module(api)


def main():
    prints = {"module": print_module, "layout": print_layout, "record": record}
    if len(sys.argv) not in (2, 3) or sys.argv[1] not in prints:
        sys.exit(__doc__)
    root = Path(sys.argv[2]) if len(sys.argv) == 3 else Path(__file__).resolve().parent.parent
    prints[sys.argv[1]](Api(root))


if __name__ == "__main__":
    main()
