import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import unisono
from unisono import _library, client, errors, event, publisher

PACKAGE = Path(unisono.__file__).resolve().parent


def run(code, cwd=None, **environment):
    """Runs code in a new interpreter. Returns whether it succeeded, and all that it printed."""
    environment = {**os.environ, **environment}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    return done.returncode == 0, done.stdout + done.stderr


class Library(unittest.TestCase):
    def test_package_and_library_have_one_version(self):
        self.assertEqual(unisono.library_version(), unisono.__version__)
        project = (PACKAGE.parent / "pyproject.toml").read_text()
        self.assertIn(f'\nversion = "{unisono.__version__}"', project)

    def test_a_library_that_is_not_there_is_named(self):
        ok, said = run("import unisono; unisono.Client()", UNISONO_LIBRARY="/nowhere/libunisono.so")
        self.assertFalse(ok)
        self.assertIn("ImportError", said)
        self.assertIn("/nowhere/libunisono.so", said)
        self.assertIn("cargo build --release", said)

    def test_another_library_is_refused(self):
        ok, said = run("import unisono; unisono.Client()", UNISONO_LIBRARY="libc.so.6")
        self.assertFalse(ok)
        self.assertIn("without events", said)

    def test_the_library_is_found_above_an_installed_package(self):
        loaded = Path(_library.library()._name)
        with tempfile.TemporaryDirectory() as prefix:
            site = Path(prefix) / "lib/python3/site-packages"
            shutil.copytree(PACKAGE, site / "unisono")
            shutil.copy(loaded, Path(prefix) / "lib/libunisono.so.0")
            code = "import unisono._library as l; print(l.library()._name)"
            ok, said = run(f"import os; os.environ.pop('UNISONO_LIBRARY', None); {code}", cwd=prefix, PYTHONPATH=str(site))
            self.assertTrue(ok, said)
            self.assertIn(prefix, said)

    def test_declarations_are_those_of_the_header(self):
        header = (PACKAGE.parent.parent / "abi/c/include/unisono.h").read_text()
        types = {
            ctypes.c_size_t: "size_t",
            ctypes.c_uint8: "uint8_t",
            ctypes.c_uint32: "uint32_t",
            ctypes.c_uint64: "uint64_t",
            ctypes.c_int64: "int64_t",
            ctypes.c_int: "int",
            ctypes.c_double: "double",
            ctypes.c_char_p: "const char *",
            ctypes.c_void_p: "const void *",
        }
        structures = {
            "unisono_field": _library.Field,
            "unisono_topic": _library.Topic,
            "unisono_draft": _library.Draft,
            "unisono_lent": _library.Lent,
            "unisono_client_options": _library.ClientOptions,
            "unisono_published": _library.PublishedView,
            "unisono_subscription": _library.Subscription,
            "unisono_event": _library.EventView,
        }
        # ctypes has the same type for c_size_t and c_uint64, so the test compares both as uint64_t
        sizes = {"size_t": "uint64_t", "void *": "const void *"}
        for name, structure in structures.items():
            body = re.search(rf"typedef struct {name} \{{(.*?)\n\}} {name};", header, re.S).group(1)
            lines = [line.strip() for line in body.splitlines() if line.strip() and not line.strip().startswith("//")]
            declared = [re.fullmatch(r"(.*?)(\w+);", line).groups() for line in lines]
            self.assertEqual(
                [member.rstrip("_") for member, _ in structure._fields_], [member for _, member in declared], name
            )
            for (member, ours), (theirs, _) in zip(structure._fields_, declared):
                theirs = theirs.strip()
                if theirs.startswith("const struct"):
                    self.assertTrue(issubclass(ours, ctypes._Pointer), f"{name}.{member}")
                    continue
                named = types[ours]
                self.assertEqual(sizes.get(named, named), sizes.get(theirs, theirs), f"{name}.{member}")
        for function in _library._FUNCTIONS:
            arguments = re.search(rf"^\w[^;()]*\b{function}\((.*?)\);", header, re.S | re.M).group(1)
            count = 0 if arguments == "void" else arguments.count(",") + 1
            self.assertEqual(len(_library._FUNCTIONS[function][1]), count, function)

    def test_numbers_and_words_are_those_of_the_header(self):
        header = (PACKAGE.parent.parent / "abi/c/include/unisono.h").read_text()

        def declared(name):
            body = re.search(rf"typedef enum {name} \{{(.*?)\n\}} {name};", header, re.S).group(1)
            members = re.findall(rf"^\s*{name.upper()}_(\w+) = (\d+),", body, re.M)
            return {int(number): word.lower() for word, number in members}

        self.assertEqual(dict(enumerate(publisher._OUTCOMES)), declared("unisono_outcome"))
        self.assertEqual(event._KINDS, declared("unisono_reception"))
        self.assertEqual(dict(enumerate(client.WAITS)), declared("unisono_wait"))
        kinds = ("whole", "decimal", "bool", "text")
        self.assertEqual({getattr(_library, kind.upper()): kind for kind in kinds}, declared("unisono_field_kind"))
        statuses = declared("unisono_status")
        ours = {getattr(errors, word): word.lower() for word in ("OK", "ARG", "SIZE", "GONE", "TIMED_OUT", "REFUSED")}
        self.assertEqual(ours, {number: statuses.get(number) for number in ours})
        for flag in ("LATE", "RETAINED", "ACKNOWLEDGE"):
            defined = re.search(rf"#define UNISONO_EVENT_{flag} (\d+)", header).group(1)
            self.assertEqual(getattr(_library, flag), int(defined), flag)


if __name__ == "__main__":
    unittest.main()
