//! The `unisono` program: see the library beside it.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    unisono_cli::main()
}
