//! Recognizes Python programs that use MPI through mpi4py: `python -m mpi4py a.py`, or a script, a text
//! behind `-c` or a module in the working directory with a statement `import mpi4py` or `from mpi4py`.
//!
//! Nothing is imported, and no other file is searched. So a program is not recognized if only a module that
//! it imports uses mpi4py.
//!
//! Reference: python(1).

use crate::command_line::behind_prefixes;
use crate::program_file::read_program;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use unisono_linux::programs::executable;

const PACKAGE: &str = "mpi4py";
/// The bytes of a script's first line that the kernel reads (`BINPRM_BUF_SIZE`).
const FIRST_LINE_BYTES: u64 = 256;

/// Returns whether a command is a Python program with mpi4py, also behind `env` and the like.
#[must_use]
pub fn uses_mpi4py(command: &[OsString]) -> bool {
    uses_mpi4py_in(command, Path::new(""))
}

fn uses_mpi4py_in(command: &[OsString], directory: &Path) -> bool {
    let words = command.get(behind_prefixes(command)..).and_then(|words| words.split_first());
    let Some((program, arguments)) = words else { return false };
    let name = Path::new(program).file_name().unwrap_or_default();
    if !name.to_string_lossy().starts_with("python") {
        let script = executable(&directory.join(program)).ok().filter(|file| is_python_script(file));
        return script.is_some_and(|file| imports_package(&read_program(&file)));
    }
    let mut words = arguments.iter().map(|word| word.to_string_lossy());
    while let Some(word) = words.next() {
        let letters = match word.strip_prefix('-') {
            Some("") => return false, // the script comes from standard input
            Some("-check-hash-based-pycs") => {
                words.next();
                continue;
            }
            Some(letters) => letters,
            None => return imports_package(&read_program(&directory.join(&*word))),
        };
        // letters without a value may stand before one with a value in the same word: `-um solver`
        let with_value = letters.find(|letter: char| "mcWX".contains(letter));
        let Some(at) = with_value.filter(|_| !letters.starts_with('-')) else { continue };
        let (option, joined) = letters[at..].split_at(1);
        let value = if joined.is_empty() { words.next() } else { Some(joined.into()) };
        match option {
            "c" => return value.is_some_and(|text| imports_package(text.as_bytes())),
            "m" => return value.is_some_and(|module| module_uses_mpi4py(&module, directory)),
            _ => {}
        }
    }
    false
}

/// Returns whether the first line of a file makes the kernel start Python.
fn is_python_script(file: &Path) -> bool {
    let mut begin = Vec::new();
    let read = File::open(file).and_then(|file| file.take(FIRST_LINE_BYTES).read_to_end(&mut begin));
    let line = begin.split(|byte| *byte == b'\n').next().unwrap_or_default();
    read.is_ok() && line.starts_with(b"#!") && String::from_utf8_lossy(line).contains("python")
}

/// Returns whether a module is of mpi4py, or its file in the directory, or that of a package around it,
/// imports mpi4py.
fn module_uses_mpi4py(module: &str, directory: &Path) -> bool {
    if module.split('.').next() == Some(PACKAGE) {
        return true;
    }
    let is_name = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_');
    if !module.split('.').all(is_name) {
        return false;
    }
    let mut package = directory.to_path_buf();
    module.split('.').any(|part| {
        let file = package.join(format!("{part}.py"));
        package.push(part);
        let files = [file, package.join("__init__.py"), package.join("__main__.py")];
        files.iter().any(|file| imports_package(&read_program(file)))
    })
}

/// Returns whether a text has a statement that imports mpi4py: on a line of its own, or behind `;` or `:`.
fn imports_package(text: &[u8]) -> bool {
    text.split(|byte| b"\n;:".contains(byte)).any(|statement| {
        let statement = String::from_utf8_lossy(statement.trim_ascii());
        let mut words = statement.split_whitespace();
        let is_import = matches!(words.next(), Some("import" | "from"));
        let module = words.next().and_then(|module| module.split(['.', ',']).next());
        is_import && module == Some(PACKAGE)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn python_with_mpi4py_is_recognized_by_its_module_or_the_text_of_its_script() {
        let place = tempfile::tempdir().expect("a directory");
        let files = [
            ("ranks.py", "from mpi4py import MPI\n"),
            ("alone.py", "pass  # no mpi4py\n"),
            ("nested.py", "def ranks():\n\tfrom  mpi4py  import MPI\n"),
            ("other.py", "import mpi4pyx, mpi4pyy\n# import mpi4py\nmpi4py = 1\n"),
            ("started.py", "#!/usr/bin/env python3\nimport mpi4py\n"),
            ("shell.sh", "#!/bin/sh\nexec python3 -m mpi4py a.py\n"),
            ("solver/__init__.py", ""),
            ("solver/main.py", "import mpi4py.MPI\n"),
            ("solver/plain.py", "pass\n"),
            ("flow/__init__.py", ""),
            ("flow/__main__.py", "from mpi4py import MPI\n"),
        ];
        for (name, text) in files {
            let file = place.path().join(name);
            fs::create_dir_all(file.parent().expect("a directory")).expect("a directory");
            fs::write(&file, text).expect("a file");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("a file of ours");
        }
        for (words, expected) in [
            (&["python3", "-m", "mpi4py", "alone.py"][..], true),
            (&["/usr/bin/python3.11", "-u", "-W", "error", "-m", "mpi4py.futures", "alone.py"], true),
            (&["python", "ranks.py", "-m"], true),
            (&["python", "nested.py"], true),
            (&["python3.12", "-u", "-Xdev", "ranks.py"], true),
            (&["/usr/bin/env", "python3", "ranks.py"], true),
            (&["env", "X=1", "nice", "python3", "ranks.py"], true),
            (&["./started.py"], true),
            (&["python", "-c", "from mpi4py import MPI"], true),
            (&["python", "-c", "import os; import mpi4py"], true),
            (&["python", "-Bcimport mpi4py"], true),
            (&["python", "-m", "ranks"], true),
            (&["python", "-um", "solver.main", "alone.py"], true),
            (&["python", "-msolver.main"], true),
            (&["python", "--check-hash-based-pycs", "always", "-m", "flow"], true),
            (&["python", "-m", "solver.plain"], false),
            (&["python", "-m", "../ranks"], false),
            (&["python", "-m", "nowhere.ranks"], false),
            (&["python", "alone.py", "mpi4py"], false),
            (&["python", "other.py"], false),
            (&["python", "-c", "print('mpi4py')"], false),
            (&["python", "-", "ranks.py"], false),
            (&["python", "-m", "mpi4pyx"], false),
            (&["python", "-m"], false),
            (&["./shell.sh", "-m", "mpi4py"], false),
            (&["./nothere", "-m", "mpi4py"], false),
            (&["python"], false),
            (&[], false),
        ] {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            assert_eq!(uses_mpi4py_in(&words, place.path()), expected, "{words:?}");
        }
    }
}
