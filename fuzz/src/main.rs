//! libFuzzer around the targets of `crates/fuzz`: one program for all, so that one build serves all.
//! `FUZZ_TARGET` names the target.
#![no_main]

use std::sync::LazyLock;

static TARGET: LazyLock<fuzz::Target> = LazyLock::new(|| {
    let wanted = std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET names the target");
    let found = fuzz::TARGETS.iter().find(|(name, _)| *name == wanted);
    found
        .unwrap_or_else(|| panic!("there is no target {wanted}"))
        .1
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| TARGET(data));
