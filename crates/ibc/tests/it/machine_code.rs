//! Constant time of the AVX-512 back end, read off the machine code.
//!
//! Valgrind does not know these instructions. But this back end holds keys and data in vector
//! registers only, so it is enough that nothing leads from vector registers to branches and
//! addresses: no gathers and scatters, no vector tests that set flags, and from vectors to general
//! registers only masks that are made from the (secret) byte permutations, which go back to mask
//! registers. The test disassembles the example `undefined_secrets` and looks for all of these.

use std::process::Command;

/// Instructions that make addresses or flags of vector contents, or move parts of these.
const FORBIDDEN: [&str; 10] = [
    "vpgather",
    "vgather",
    "vpscatter",
    "vscatter",
    "vptest ",
    "vtest",
    "vcomis",
    "vucomis",
    "vpextr",
    "vpmovmskb",
];

/// Tells whether the instruction copies a vector or mask register to a general one.
fn leaves_vectors(line: &str) -> bool {
    let Some((name, operands)) = line.trim().split_once(char::is_whitespace) else {
        return false;
    };
    let (from, to) = operands.split_once(',').unwrap_or(("", ""));
    let vector = from.trim().starts_with("%xmm") || from.trim().starts_with("%k");
    let general = to.starts_with("%r") || to.starts_with("%e");
    (name.starts_with("vmov") || name.starts_with("kmov")) && vector && general
}

/// The functions of the AVX-512 back end: name and instructions.
fn functions() -> Vec<(String, Vec<String>)> {
    let output = Command::new("objdump")
        .args(["--disassemble", "--no-show-raw-insn", "--demangle"])
        .arg(crate::secrecy::program())
        .output()
        .expect("objdump is installed (Debian package binutils)");
    let listing = String::from_utf8(output.stdout).unwrap();
    let mut functions = Vec::new();
    for part in listing.split("\n\n") {
        let Some((head, body)) = part.trim().split_once('\n') else {
            continue;
        };
        let back_end = ["avx512::serial", "avx512::parallel", "avx512::tables"];
        if back_end.iter().any(|module| head.contains(module)) {
            let code = body
                .lines()
                .filter_map(|l| l.split_once('\t'))
                .map(|(_, i)| i.to_owned());
            functions.push((head.to_owned(), code.collect()));
        }
    }
    functions
}

#[test]
fn nothing_leads_from_vectors_to_branches_or_addresses() {
    let functions = functions();
    let mut products = 0;
    for (name, code) in &functions {
        for line in code {
            assert!(
                !FORBIDDEN.iter().any(|f| line.contains(f)),
                "{name}: {line}"
            );
            // Key set-up prepares nothing from vectors; rounds keep masks in mask registers.
            assert!(!leaves_vectors(line), "{name}: {line}");
        }
        products += code
            .iter()
            .filter(|line| line.contains("gf2p8affine"))
            .count();
    }
    assert!(
        products > 100,
        "these are not the rounds: {products} GFNI instructions"
    );
}

#[test]
fn the_search_knows_what_it_looks_for() {
    for line in [
        "vmovq  %xmm0,%rax",
        "kmovq  %k1,%rax",
        "vmovd  %xmm9,%ecx",
        "kmovd  %k2,%r8d",
    ] {
        assert!(leaves_vectors(line), "{line}");
    }
    for line in [
        "vmovq  %rax,%xmm0",
        "kmovq  %k1,0x20(%rsp)",
        "vmovdqu %ymm0,(%rax)",
        "ret",
    ] {
        assert!(!leaves_vectors(line), "{line}");
    }
}
