//! Constant time by the uninitialised-memory method: valgrind is told that keys and data are
//! undefined and reports every branch and every address that depends on them.
//!
//! The work is done by the example `undefined_secrets`. Valgrind's processor has AVX2 but neither
//! AVX-512 nor GFNI; for that back end see [`crate::machine_code`].

use std::path::PathBuf;
use std::process::{Command, Output};

/// The example, built beside the tests, with the compiler's optimisations in either profile.
pub(crate) fn program() -> PathBuf {
    let cargo = std::env::var("CARGO").unwrap_or("cargo".to_owned());
    let mut build = Command::new(cargo);
    build.args([
        "build",
        "--quiet",
        "--package",
        "ibc",
        "--example",
        "undefined_secrets",
    ]);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success());
    let tests = std::env::current_exe().unwrap();
    tests
        .ancestors()
        .nth(2)
        .unwrap()
        .join("examples/undefined_secrets")
}

/// Lets two branches pass: those on the verdicts of padding and fault check, which are results.
const VERDICTS: &str = concat!(
    "--suppressions=",
    env!("CARGO_MANIFEST_DIR"),
    "/tests/data/verdicts.supp"
);

fn under_valgrind(argument: &str) -> Output {
    Command::new("valgrind")
        .args(["--error-exitcode=9", "--quiet", VERDICTS])
        .arg(program())
        .arg(argument)
        .output()
        .expect("valgrind is installed (Debian package valgrind)")
}

#[test]
fn no_branch_and_no_address_depends_on_keys_or_data() {
    let output = under_valgrind("all");
    let talk = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{talk}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("under valgrind"), "{said}");
    for done in ["portable: done", "checked: done"] {
        assert!(said.contains(done), "{said}");
    }
}

#[test]
fn the_method_sees_a_branch_and_an_address() {
    // Without this the test above could not fail.
    for leak in ["leak-branch", "leak-address"] {
        let output = under_valgrind(leak);
        assert_eq!(output.status.code(), Some(9), "{leak} went unnoticed");
    }
}
