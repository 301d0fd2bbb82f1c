//! Prints the C header or the register manual: `cargo run --example print header`.
#![expect(clippy::print_stdout, reason = "it is what this program is for")]

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("header") => print!("{}", accel_abi::print::c_header()),
        Some("manual") => print!("{}", accel_abi::print::manual()),
        _ => {
            eprintln!("usage: print header|manual");
            std::process::exit(2);
        }
    }
}
