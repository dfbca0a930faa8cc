//! Every public function of the libraries that gives numbers says whether they are finite: by
//! `# Errors`, if it refuses what would not be, or in words. (That `Result`s and panics have their
//! sections is clippy's to see.)

use std::fs;
use std::path::{Path, PathBuf};

const CRATES: [&str; 5] = [
    "mpf-core",
    "mpf-ising",
    "mpf-samplers",
    "mpf-baselines",
    "mpf-ica",
];

/// Types that hold floating-point numbers.
const NUMBERS: [&str; 4] = ["f64", "Couplings", "Moments", "Mean"];

/// Words of which one must be there.
const WORDS: [&str; 5] = ["# Errors", "finite", "Finite", "∞", "NaN"];

#[test]
fn functions_that_give_numbers_say_whether_they_are_finite() {
    let mut seen = 0;
    let mut silent = Vec::new();
    for name in CRATES {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        for file in sources(&folder.join(name).join("src")) {
            let text = fs::read_to_string(&file).unwrap();
            for (line, function) in functions(&text) {
                if !function.gives_numbers() {
                    continue;
                }
                seen += 1;
                if !WORDS.iter().any(|word| function.docs.contains(word)) {
                    silent.push(format!("{}:{line}: {}", file.display(), function.signature));
                }
            }
        }
    }
    assert!(seen > 100, "only {seen} functions were found");
    assert!(silent.is_empty(), "\n{}", silent.join("\n"));
}

/// All `.rs` files of a folder that are not tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

struct Function {
    docs: String,
    signature: String,
}

impl Function {
    fn gives_numbers(&self) -> bool {
        let Some((_, returned)) = self.signature.rsplit_once("->") else {
            return false;
        };
        // The last arrow may be that of a closure among the arguments.
        let open = returned.matches('(').count();
        let inside_arguments = returned.matches(')').count() > open;
        !inside_arguments && NUMBERS.iter().any(|number| returned.contains(number))
    }
}

/// The public functions of a source, and the methods of its public traits, with their lines.
fn functions(source: &str) -> Vec<(usize, Function)> {
    let mut found = Vec::new();
    let mut docs = String::new();
    let mut in_trait = false;
    let mut lines = source.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        if line == "#[cfg(test)]" {
            // Tests are at the end, unless they are in a file of their own.
            match lines.next() {
                Some((_, next)) if next.starts_with("mod ") && next.ends_with(';') => continue,
                _ => break,
            }
        }
        in_trait = (in_trait || line.starts_with("pub trait")) && line != "}";
        let code = line.trim_start();
        if let Some(text) = code.strip_prefix("///") {
            docs.push_str(text);
            docs.push('\n');
        } else if code.starts_with("pub fn")
            || code.starts_with("pub const fn")
            || (in_trait && line.starts_with("    fn"))
        {
            let mut signature = code.to_owned();
            while !signature.ends_with(['{', ';', '}']) {
                let (_, more) = lines.next().expect("a signature ends");
                signature.push(' ');
                signature.push_str(more.trim());
            }
            let signature = signature.split(" where ").next().unwrap_or_default();
            let signature = signature.trim_end_matches(['{', ';', ' ']).to_owned();
            let docs = std::mem::take(&mut docs);
            found.push((at + 1, Function { docs, signature }));
        } else if !code.starts_with('#') {
            docs.clear();
        }
    }
    found
}

#[test]
fn a_silent_function_would_be_found() {
    let source = "\
#[cfg(test)]
mod tests;
/// Doc of the trait.
pub trait T {
    /// Says nothing.
    fn value(&self) -> f64;
}
/// Is +∞ where nothing is.
pub fn f<F: Fn(f64) -> f64>(g: F) -> Vec<f64> {
}
/// The arrow is an argument's.
#[must_use]
pub fn visit(
    f: impl FnMut(usize) -> f64,
) {
}
#[cfg(test)]
pub fn g() -> f64 {}
";
    let found = functions(source);
    let numbers: Vec<bool> = found.iter().map(|(_, f)| f.gives_numbers()).collect();
    assert_eq!(numbers, [true, true, false]);
    assert_eq!(found[0].0, 6);
    let silent = |f: &Function| !WORDS.iter().any(|word| f.docs.contains(word));
    assert!(silent(&found[0].1) && !silent(&found[1].1));
    assert!(found[2].1.docs.contains("argument"));
}
