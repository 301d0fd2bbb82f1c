//! The options of `cordon ibc` and of `ibcipher`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use ibc::container::Mode;
use ibc::{Backend, Variant};

/// `cordon ibc …`.
#[derive(Debug, Subcommand)]
pub(crate) enum IbcCommand {
    /// Encrypt a file or standard input.
    #[command(after_help = "Examples:
  cordon ibc encrypt --key-file key.hex --level low --mode cbc -i plain -o secret.ibc
  tar c folder | cordon ibc encrypt --key-file key.hex --variant INDECT-320 --mode ctr -i - -o folder.ibc
The output is not authenticated: whoever can write to it can change it unnoticed.
IBC is broken: research only. Protect real data with something else.")]
    Encrypt(Encrypt),
    /// Decrypt a file or standard input.
    #[command(after_help = "Examples:
  cordon ibc decrypt --key-file key.hex -i secret.ibc -o plain
  cordon ibc decrypt --key-file key.hex --raw --level low --mode ecb -i raw -o -
Variant, mode and IV are in the file unless it is raw; options that contradict it are refused.
With `-o -` blocks leave before the padding at the end is checked.")]
    Decrypt(Decrypt),
    /// The same with the published option letters; also runs when the program is called `ibcipher`.
    #[command(after_help = crate::ibc::args::CIPHER_EXAMPLES)]
    Cipher(Cipher),
    /// List key sizes, rounds, levels and the CPU's back ends.
    #[command(after_help = "Example:\n  cordon ibc variants --json")]
    Variants,
    /// Test vectors.
    #[command(subcommand)]
    Vectors(Vectors),
    /// Insert errors and count what each detection method finds (published figures 3 and 4).
    #[command(after_help = "Examples:
  cordon ibc faults --errors 5 --blocks 3000 --plot figure-3.svg
  cordon ibc faults --errors 10 --blocks 3000 --spread --json
Without --seed the faults are those of the specification's table (section 5.5).")]
    Faults(Faults),
    /// Attack the cipher: see why not to trust it.
    #[command(after_help = "Examples:
  cordon ibc analyse                        everything that takes seconds
  cordon ibc analyse differential --rounds 5-8
  cordon ibc analyse recovery --rounds 8    recover a 128-bit key
  cordon ibc analyse all --plot-dir docs/ibc")]
    Analyse(Analyse),
    /// Install the OpenSSL provider where programs find it, under both of its names.
    #[command(after_help = "Example:
  cordon ibc provider --module-dir /usr/local/lib/ossl-modules
Prints the lines for openssl.cnf. Nothing uses the cipher unless it is told to.")]
    Provider(super::provider::Provider),
}

/// Examples of the published command line.
pub(crate) const CIPHER_EXAMPLES: &str = "Examples:
  cordon ibc cipher -i plain -o secret.ibc -k key.hex -e low -m cbc --encrypt
  ibcipher -i plain -o secret.ibc -k key.hex -e low -m cbc --encrypt
  ibcipher -i secret.ibc -o plain -k key.hex -e low -m cbc --decrypt
  ibcipher -i plain -o faulty.ibc -k key.hex -e low -m ecb --encrypt --cedtype 1 --paritybits 8 --errortesting 5 --debug
The output is not authenticated: whoever can write to it can change it unnoticed.
IBC is broken: research only. Protect real data with something else.";

/// Where the data comes from and goes to.
#[derive(Debug, Args)]
pub(crate) struct Files {
    /// The file to read; `-` is standard input.
    #[arg(short, long, value_name = "IN")]
    pub(crate) input: PathBuf,
    /// The file to write, complete or not at all; `-` is standard output.
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// Do not warn that the cipher is broken, and say nothing on success.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// What encryption and decryption have in common.
#[derive(Debug, Args)]
pub(crate) struct Common {
    #[command(flatten)]
    pub(crate) files: Files,
    /// The key: a file of exactly the key's size, or hexadecimal text with `#` comments.
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: PathBuf,
    /// No header in the file; CBC and CTR need --iv.
    #[arg(long)]
    pub(crate) raw: bool,
    /// With --raw: the length is a multiple of 32 and nothing is added.
    #[arg(long, requires = "raw")]
    pub(crate) no_padding: bool,
    /// Concurrent error detection: stop with exit code 3 when a computation goes wrong.
    #[arg(long, value_name = "METHOD", default_value = "none")]
    pub(crate) ced: CedMethod,
    /// Parity bits of a block for `--ced parity`.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = parity_bits)]
    pub(crate) parity_bits: u8,
    /// The implementation: portable, avx2, avx512, neon; by default the fastest of this CPU. Checked
    /// encryption (--ced) has its own.
    #[arg(long, value_name = "NAME", value_parser = backend)]
    pub(crate) backend: Option<Backend>,
}

/// `cordon ibc encrypt`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true))]
pub(crate) struct Encrypt {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Key size and rounds by name: INDECT-128, -192, -256, -320, -128-VH.
    #[arg(long, value_name = "NAME", value_parser = variant, group = "which")]
    pub(crate) variant: Option<Variant>,
    /// Key size and rounds by published level: low, medium, high, veryhigh.
    #[arg(long, value_name = "LEVEL", value_parser = level, group = "which")]
    pub(crate) level: Option<Variant>,
    /// ecb, cbc or ctr.
    #[arg(long, default_value = "cbc", value_parser = mode)]
    pub(crate) mode: Mode,
    /// IV of 16 or 32 bytes; by default random. Never use one twice with a key.
    #[arg(long, value_name = "HEX", value_parser = iv)]
    pub(crate) iv: Option<GivenIv>,
}

/// `cordon ibc decrypt`.
#[derive(Debug, Args)]
pub(crate) struct Decrypt {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Key size and rounds by name, if the file must have them.
    #[arg(long, value_name = "NAME", value_parser = variant, conflicts_with = "level")]
    pub(crate) variant: Option<Variant>,
    /// Key size and rounds by published level, if the file must have them.
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    pub(crate) level: Option<Variant>,
    /// ecb, cbc or ctr, if the file must have it.
    #[arg(long, value_parser = mode)]
    pub(crate) mode: Option<Mode>,
    /// IV of 16 or 32 bytes, if the file must have it.
    #[arg(long, value_name = "HEX", value_parser = iv)]
    pub(crate) iv: Option<GivenIv>,
}

/// The published options, and ours for what they lack.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("direction").required(true))]
pub(crate) struct Cipher {
    /// The file to read; `-` is standard input.
    #[arg(short = 'i', value_name = "IN")]
    pub(crate) input: PathBuf,
    /// The file to write, complete or not at all; `-` is standard output.
    #[arg(short = 'o', value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// The key: a file of exactly the key's size, or hexadecimal text with `#` comments.
    #[arg(short = 'k', value_name = "KEYFILE")]
    pub(crate) key_file: PathBuf,
    /// Level: low, medium, high, veryhigh.
    #[arg(short = 'e', value_name = "LEVEL", value_parser = level, conflicts_with = "rounds_name")]
    pub(crate) level: Option<Variant>,
    /// Key size and rounds that no level has, such as INDECT-192.
    #[arg(long, value_name = "NAME", value_parser = variant)]
    pub(crate) rounds_name: Option<Variant>,
    /// Mode: ecb, cbc, ctr.
    #[arg(short = 'm', value_name = "MODE", value_parser = mode)]
    pub(crate) mode: Option<Mode>,
    /// Encrypt.
    #[arg(long, group = "direction")]
    pub(crate) encrypt: bool,
    /// Decrypt.
    #[arg(long, group = "direction")]
    pub(crate) decrypt: bool,
    /// Error detection: 0 none, 1 parity, 2 Berger, 3 CRC-16.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=3))]
    pub(crate) cedtype: u8,
    /// Parity bits of a block for `--cedtype 1`.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = parity_bits)]
    pub(crate) paritybits: u8,
    /// Insert N errors into the encryption of every block and count what is detected; the output
    /// is useless.
    #[arg(long, value_name = "N", conflicts_with = "decrypt", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) errortesting: Option<u16>,
    /// Say what is done, block by block when testing errors.
    #[arg(long)]
    pub(crate) debug: bool,
    /// IV of 16 or 32 bytes; by default random.
    #[arg(long, value_name = "HEX", value_parser = iv)]
    pub(crate) iv: Option<GivenIv>,
    /// No header in the file; CBC and CTR need --iv.
    #[arg(long)]
    pub(crate) raw: bool,
    /// Seed of the inserted errors.
    #[arg(long, value_name = "N", requires = "errortesting", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Spread the errors of a block over its rounds instead of putting them into one stage.
    #[arg(long, requires = "errortesting")]
    pub(crate) spread: bool,
    /// Do not warn that the cipher is broken, and say nothing on success.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// `cordon ibc vectors …`.
#[derive(Debug, Subcommand)]
pub(crate) enum Vectors {
    /// Check a vector file on every back end and print the first mismatch.
    #[command(
        after_help = "Example:\n  cordon ibc vectors check crates/ibc/tests/data/ibc_vectors.json"
    )]
    Check {
        /// Vectors in the format of docs/ibc.md.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Only this back end: portable, avx2, avx512, neon.
        #[arg(long, value_name = "NAME", value_parser = backend)]
        backend: Option<Backend>,
    },
}

/// `cordon ibc faults`.
#[derive(Debug, Args)]
pub(crate) struct Faults {
    /// Errors in every block: 5 in the published figure 3, 10 in figure 4.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) errors: u16,
    /// How many random blocks.
    #[arg(long, value_name = "M", default_value_t = 3000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) blocks: u64,
    /// Seed of the errors; by default the one of the specification's table.
    #[arg(long, value_name = "S")]
    pub(crate) seed: Option<u64>,
    /// Spread the errors of a block over its rounds instead of putting them into one stage.
    #[arg(long)]
    pub(crate) spread: bool,
    /// Draw a bar chart.
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
}

/// What `cordon ibc analyse` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Topic {
    /// How far one changed input bit spreads.
    Avalanche,
    /// Sparse output differences that a random permutation would never show.
    Differential,
    /// Trails with one active bit and one-bit correlations.
    Linear,
    /// Sums over 256 plaintexts.
    Integral,
    /// The whole cipher from a few dozen plaintexts, had the roles of the S-boxes not rotated.
    Slide,
    /// A key from chosen plaintexts.
    Recovery,
    /// All of them.
    All,
}

/// `cordon ibc analyse`.
#[derive(Debug, Args)]
pub(crate) struct Analyse {
    /// What to show.
    #[arg(value_enum, default_value = "all")]
    pub(crate) topic: Topic,
    /// Only these rounds, as `8` or `5-8`.
    #[arg(long, value_name = "FROM-TO", value_parser = rounds)]
    pub(crate) rounds: Option<Rounds>,
    /// Seed of keys and plaintexts: the same seed gives the same figures.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Key size in bits: 128, 192, 256 or 320.
    #[arg(long, value_name = "BITS", default_value_t = 128, value_parser = key_bits)]
    pub(crate) key_bits: u16,
    /// Use 2^N chosen plaintexts at most in `differential` and `recovery`.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(8..=36))]
    pub(crate) log2_plaintexts: Option<u32>,
    /// Draw the figures as SVG files into this folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) plot_dir: Option<PathBuf>,
}

/// A range of rounds, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rounds {
    pub(crate) first: usize,
    pub(crate) last: usize,
}

/// Detection methods on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CedMethod {
    /// No detection.
    None,
    /// Parity of interleaved groups of bits.
    Parity,
    /// The number of zero bits.
    Berger,
    /// CRC-16-CCITT.
    Crc,
}

/// An IV as given: 16 or 32 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GivenIv(pub(crate) Vec<u8>);

fn variant(text: &str) -> Result<Variant, String> {
    text.parse().map_err(|e: ibc::UnknownVariant| e.to_string())
}

fn level(text: &str) -> Result<Variant, String> {
    Variant::from_level(text).ok_or_else(|| "levels are low, medium, high, veryhigh".to_owned())
}

fn mode(text: &str) -> Result<Mode, String> {
    text.parse()
        .map_err(|e: ibc::container::UnknownMode| e.to_string())
}

fn backend(text: &str) -> Result<Backend, String> {
    text.parse()
        .map_err(|_| "back ends are portable, avx2, avx512, neon".to_owned())
}

fn parity_bits(text: &str) -> Result<u8, String> {
    match text {
        "1" => Ok(1),
        "2" => Ok(2),
        "4" => Ok(4),
        "8" => Ok(8),
        _ => Err("parity bits are 1, 2, 4 or 8".to_owned()),
    }
}

fn key_bits(text: &str) -> Result<u16, String> {
    match text {
        "128" => Ok(128),
        "192" => Ok(192),
        "256" => Ok(256),
        "320" => Ok(320),
        _ => Err("key sizes are 128, 192, 256 and 320 bits".to_owned()),
    }
}

fn iv(text: &str) -> Result<GivenIv, String> {
    match hex::decode(text) {
        Ok(bytes) if matches!(bytes.len(), 16 | 32) => Ok(GivenIv(bytes)),
        Ok(bytes) => Err(format!("an IV has 16 or 32 bytes, not {}", bytes.len())),
        Err(_) => Err("an IV is written in hexadecimal digits".to_owned()),
    }
}

fn rounds(text: &str) -> Result<Rounds, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if 1 <= first && first <= last && last <= 32 => {
            Ok(Rounds { first, last })
        }
        _ => Err("rounds are written as 8 or 5-8, from 1 to 32".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked() {
        assert_eq!(rounds("8"), Ok(Rounds { first: 8, last: 8 }));
        assert_eq!(rounds("5-8"), Ok(Rounds { first: 5, last: 8 }));
        for wrong in ["", "0", "8-5", "1-33", "-3", "a"] {
            assert!(rounds(wrong).is_err(), "{wrong}");
        }
        assert_eq!(iv(&"ab".repeat(16)), Ok(GivenIv(vec![0xab; 16])));
        assert_eq!(iv(&"ab".repeat(32)), Ok(GivenIv(vec![0xab; 32])));
        for wrong in ["", "ab", "xy", &"ab".repeat(17), &"ab".repeat(33)] {
            assert!(iv(wrong).is_err(), "{wrong}");
        }
        assert_eq!(level("medium"), Ok(Variant::Indect256));
        assert_eq!(variant("indect-128-vh"), Ok(Variant::Indect128Vh));
        assert!(level("Low").is_err() && variant("INDECT-512").is_err());
    }
}
