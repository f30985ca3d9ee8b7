#!/usr/bin/env python3
"""api.py WHAT [ROOT]: the public functions, as the headers in ROOT/include/lockstep declare them.

names   prints their names, sorted.
stub    prints a C source that defines each of them without content: compiled with debug information, it has the
        ABI of the library (tools/check_abi).
nulls   prints the cases of tests/project/nulls.c: one for each pointer of each function."""
import re
import sys
from pathlib import Path

FUNCTION = re.compile(r"([\w\s*]+?[\s*])(lk_\w+)\s*\(((?:[^();]|\([^()]*\))*)\)\s*(LK_CHECKED|LK_PRINTF)?\s*;")
POINTER_TO_FUNCTION = re.compile(r"\(\*(\w+)\)")


class Argument:
    """One argument: its text, its name, and a key for its type, as lk_engine_1 for lk_engine *."""

    def __init__(self, text):
        self.text = text
        pointer = POINTER_TO_FUNCTION.search(text)
        self.name = pointer.group(1) if pointer else re.search(r"(\w+)$", text).group(1)
        words = re.sub(r"\bconst\b", "", text[: -len(self.name)])
        stars = words.count("*")
        self.is_pointer = bool(pointer) or stars > 0 or words.strip().endswith("_fn")
        self.key = "function" if pointer else f"{words.replace('*', '').strip().replace(' ', '_')}_{stars}"


class Function:
    def __init__(self, match):
        self.result = " ".join(match.group(1).split())
        self.name = match.group(2)
        texts = re.split(r",(?![^()]*\))", match.group(3))
        texts = [" ".join(text.split()) for text in texts]
        self.more = ", ..." if texts[-1] == "..." else ""
        self.arguments = [Argument(text) for text in texts if text not in ("void", "...")]


def declarations(text):
    """The text of a header without comments, directives, and the bodies of types."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"^\s*#.*?(?<!\\)$", "", text, flags=re.M | re.S)
    text = re.sub(r"\bLK_API_(BEGIN|END)\b", "", text)
    while "{" in text:
        text = re.sub(r"\{[^{}]*\}", "", text)
    return re.sub(r"\btypedef\b[^;]*;", "", text)


def functions(root):
    found = []
    for header in sorted((root / "include/lockstep").glob("*.h")):
        for part in declarations(header.read_text()).split(";"):
            match = FUNCTION.fullmatch(part.strip() + ";")
            if match:
                found.append(Function(match))
            elif "(" in part:
                sys.exit(f"api.py: {header}: this declaration is not understood: {' '.join(part.split())}")
    return found


def print_names(found):
    print("\n".join(sorted(function.name for function in found)))


def print_stub(found):
    print("#include <lockstep/lockstep.h>")
    for function in found:
        arguments = ", ".join(argument.text for argument in function.arguments) or "void"
        print(f"{function.result} {function.name}({arguments}{function.more})\n{{\n    __builtin_trap();\n}}")


def print_null(function, null):
    values = [("NULL" if argument is null else f"value_{argument.key}()") for argument in function.arguments]
    call = f"{function.name}({', '.join(values)})"
    kind = "builder" if function.result == "lk_node" else function.result if function.result == "lk_status" else "other"
    body = {"lk_status": f"return {call};", "builder": f"(void){call};\n    return builder_mistake();"}
    print(f"static lk_status case_{function.name}_{null.name}(void)\n{{\n    "
          f"{body.get(kind, f'(void){call};' + chr(10) + '    return LK_OK;')}\n}}")
    return f'    {{"{function.name}", "{null.name}", KIND_{kind.upper()}, case_{function.name}_{null.name}}},'


def print_nulls(found):
    rows = [print_null(function, argument)
            for function in found for argument in function.arguments if argument.is_pointer]
    print("static const null_case null_cases[] = {\n" + "\n".join(rows) + "\n};")


def main():
    prints = {"names": print_names, "stub": print_stub, "nulls": print_nulls}
    if len(sys.argv) not in (2, 3) or sys.argv[1] not in prints:
        sys.exit(__doc__)
    root = Path(sys.argv[2]) if len(sys.argv) == 3 else Path(__file__).resolve().parent.parent
    prints[sys.argv[1]](functions(root))


if __name__ == "__main__":
    main()
