//! The program: a library that can be compiled beside the last of its dependencies, and this.

fn main() -> std::process::ExitCode {
    xtask::main()
}
