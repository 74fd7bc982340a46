//! Other programs that Unisono uses: compilers, OpenMP runtimes, MPIs. Trials compile, link and run a few
//! lines, because a compiler driver is often installed without its library.

use super::TrialFinding;
use super::command::{ScratchDirectory, Trial, run};
use crate::programs::{self, on_path};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MpiTools {
    Mpich,
    OpenMpi,
}

impl MpiTools {
    /// Returns the names of the implementation's compiler and launcher, in search order; Debian adds
    /// suffixes.
    fn programs(self) -> [(&'static str, &'static str); 2] {
        match self {
            MpiTools::Mpich => [("mpicc.mpich", "mpiexec.mpich"), ("mpicc", "mpiexec")],
            MpiTools::OpenMpi => [("mpicc.openmpi", "mpiexec.openmpi"), ("mpicc", "mpiexec")],
        }
    }

    fn package(self) -> &'static str {
        match self {
            MpiTools::Mpich => {
                "apt-get install mpich libmpich-dev; programs of MPICH are compiled and started with it"
            }
            MpiTools::OpenMpi => {
                "apt-get install openmpi-bin libopenmpi-dev; programs of Open MPI are compiled and started with it"
            }
        }
    }

    /// Returns the version in the output of `mpiexec --version`, if the output is this implementation's.
    fn version(self, printed: &str) -> Option<String> {
        let line = |wanted: &str| printed.lines().find(|line| line.contains(wanted));
        match self {
            MpiTools::Mpich => line("HYDRA").and(line("Version:")),
            MpiTools::OpenMpi => line("(OpenRTE)").or(line("Open MPI")).or(line("PRRTE")),
        }
        .and_then(|line| line.split_whitespace().last())
        .map(str::to_owned)
    }
}

pub(super) fn mpi(which: MpiTools) -> TrialFinding {
    let mut finding = TrialFinding::missing("no mpiexec of it on PATH", which.package());
    for (compiler, starter) in which.programs() {
        let Some(path) = on_path(starter) else { continue };
        let printed = match run(path, &["--version"]) {
            Ok(printed) => printed,
            Err(Trial::Unfinished(reason)) => {
                finding = TrialFinding::unknown(reason);
                continue;
            }
            Err(Trial::Failed(reason) | Trial::Impossible(reason)) => {
                finding = TrialFinding::undecided(reason, which.package());
                continue;
            }
        };
        let Some(version) = which.version(&printed) else { continue };
        return match on_path(compiler) {
            Some(_) => TrialFinding::found(format!("{version}: {compiler}, {starter}")),
            None => TrialFinding::missing(
                format!("{starter} {version} is there, but no {compiler}"),
                which.package(),
            ),
        };
    }
    finding
}

const HELLO: &str = "int main(void) { return 0; }\n";
const OPENMP: &str = "#include <omp.h>\nint main(void) { int n = 0;\n\
    #pragma omp parallel reduction(+:n)\nn += 1;\nreturn n == omp_get_max_threads() ? 0 : 1; }\n";
const BARRIER: &str =
    "#include <barrier>\nint main() { std::barrier b(1); b.arrive_and_wait(); return 0; }\n";

pub(super) fn cc() -> TrialFinding {
    compile("cc", &[], "trial.c", HELLO, "apt-get install gcc; the peers in C are skipped without it")
}

pub(super) fn cxx_barrier() -> TrialFinding {
    compile(
        "c++",
        &["-std=c++20", "-pthread"],
        "trial.cc",
        BARRIER,
        "apt-get install g++ (11 or newer); the std::barrier peer is skipped without it",
    )
}

pub(super) fn libgomp() -> TrialFinding {
    compile(
        "cc",
        &["-fopenmp"],
        "trial.c",
        OPENMP,
        "apt-get install gcc; the libgomp peer is skipped without it",
    )
}

pub(super) fn clang() -> TrialFinding {
    compile(
        "clang",
        &[],
        "trial.c",
        HELLO,
        "apt-get install clang; unisono tree deploy and the LLVM OpenMP peer need it",
    )
}

pub(super) fn libomp() -> TrialFinding {
    compile(
        "clang",
        &["-fopenmp=libomp"],
        "trial.c",
        OPENMP,
        "apt-get install clang libomp-dev; the LLVM OpenMP peer is skipped without it",
    )
}

const SWITCH: &str = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n\
    SEC(\"tc\") int f(struct __sk_buff *s) { return s->len ? 0 : -1; }\n";

/// Compiles a few lines for the kernel, as `unisono tree deploy` does with its switch program.
pub(super) fn switch_program() -> TrialFinding {
    let remedy = "apt-get install clang libbpf-dev; without them there is no unisono tree deploy";
    let Some(clang) = programs::clang() else {
        return TrialFinding::missing("no clang on PATH", remedy);
    };
    let trial = || -> Result<(), Trial> {
        let scratch = ScratchDirectory::new().map_err(impossible("directory"))?;
        let source = scratch.file("trial.bpf.c", SWITCH).map_err(impossible("file"))?;
        let (source, out) = (source.display().to_string(), scratch.path("trial.o").display().to_string());
        // the directory where Debian keeps asm/types.h
        let include = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
        run(&clang, &["-target", "bpf", "-O2", "-idirafter", &include, "-c", &source, "-o", &out]).map(|_| ())
    };
    match trial() {
        Ok(()) => TrialFinding::found("clang compiles for the kernel, with the headers of libbpf"),
        Err(trial) => trial.finding(remedy),
    }
}

/// Returns a function that makes the result of a trial for which no temporary file or directory could be
/// made.
fn impossible(what: &str) -> impl Fn(std::io::Error) -> Trial {
    move |error| {
        Trial::Impossible(format!("no temporary {what} for the trial: {error}; name another place in TMPDIR"))
    }
}

/// Compiles, links and runs a few lines.
fn compile(compiler: &str, flags: &[&str], name: &str, source: &str, remedy: &str) -> TrialFinding {
    let found = if compiler == "clang" { programs::clang() } else { on_path(compiler) };
    let Some(path) = found else {
        return TrialFinding::missing(format!("no {compiler} on PATH"), remedy);
    };
    let trial = || -> Result<String, Trial> {
        let scratch = ScratchDirectory::new().map_err(impossible("directory"))?;
        let source = scratch.file(name, source).map_err(impossible("file"))?;
        let program = scratch.path("trial");
        let (source, out) = (source.display().to_string(), program.display().to_string());
        run(&path, &[flags, &[&source, "-o", &out]].concat())?;
        run(&program, &[])?;
        run(&path, &["--version"])
    };
    match trial() {
        Ok(version) => TrialFinding::found(version.lines().next().unwrap_or(compiler).trim()),
        Err(trial) => trial.finding(remedy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mpi_is_known_by_what_its_starter_prints() {
        let mpich = "HYDRA build details:\n    Version:                                 4.0.2\n";
        let open = "mpiexec (OpenRTE) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n";
        assert_eq!(MpiTools::Mpich.version(mpich).as_deref(), Some("4.0.2"));
        assert_eq!(MpiTools::Mpich.version(open), None);
        assert_eq!(MpiTools::OpenMpi.version("mpirun (Open MPI) 5.0.3\n").as_deref(), None.or(Some("5.0.3")));
        assert_eq!(MpiTools::OpenMpi.version(open).as_deref(), Some("4.1.4"));
        assert_eq!(MpiTools::OpenMpi.version(mpich), None);
    }

    #[test]
    fn a_compiler_that_does_not_exist_comes_with_a_remedy() {
        let finding = compile("unisono-no-such-compiler", &[], "x.c", HELLO, "install one");
        assert_eq!(finding.reason.as_deref(), Some("no unisono-no-such-compiler on PATH"));
        assert_eq!(finding.remedy.as_deref(), Some("install one"));
    }
}
