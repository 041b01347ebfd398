//! The Rust examples run, and print what they should.

use std::path::PathBuf;
use std::process::Command;

#[test]
fn the_digits_are_learnt() {
    // Cargo puts examples next to the tests, one folder up.
    let mut path =
        PathBuf::from(std::env::current_exe().expect("has a path").parent().expect("is in a folder"));
    path.pop();
    let done = Command::new(path.join("examples/digits")).output().expect("cargo has built it");
    let text = String::from_utf8_lossy(&done.stdout);
    let accuracy = text.lines().find_map(|line| line.strip_prefix("accuracy "));
    let accuracy: f64 = accuracy.and_then(|v| v.parse().ok()).unwrap_or(0.0);
    assert!(done.status.success() && accuracy > 0.95, "{text}\n{}", String::from_utf8_lossy(&done.stderr));
}
