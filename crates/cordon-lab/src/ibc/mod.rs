//! `cordon ibc` and `ibcipher`: the INDECT Block Cipher on files, its vectors, its error
//! detection, and the attacks on it.

mod analyse;
pub(crate) mod args;
mod crypt;
mod faults;
mod files;
mod plot;
mod progress;
pub(crate) mod provider;
mod stream;
#[cfg(test)]
mod stream_tests;
mod testing;
mod transform;
mod variants;
mod vectors;
mod warning;

use clap::Parser;
use ibc::ced::Code;
use ibc::ced::inject::Placement;

use self::args::{CedMethod, Cipher, Common, Decrypt, Encrypt, IbcCommand};
use self::crypt::Plan;
use self::testing::Setting;
use self::transform::Direction;
use commandline::{Failure, Outcome};

/// The command line of the program under the name `ibcipher`.
#[derive(Debug, Parser)]
#[command(name = "ibcipher", version, about = "Encrypts with the INDECT Block Cipher: research only", after_help = args::CIPHER_EXAMPLES)]
pub(crate) struct Ibcipher {
    #[command(flatten)]
    pub(crate) cipher: Cipher,
    /// Print one JSON object for machines instead of text for people.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Whether the program was called by the name `ibcipher`.
pub(crate) fn is_ibcipher(program: Option<&std::ffi::OsStr>) -> bool {
    program.is_some_and(|path| std::path::Path::new(path).file_name() == Some("ibcipher".as_ref()))
}

pub(crate) async fn run(command: IbcCommand, json: bool) -> Outcome {
    match command {
        IbcCommand::Encrypt(args) => crypt::run(&encryption(args), json).await,
        IbcCommand::Decrypt(args) => crypt::run(&decryption(args), json).await,
        IbcCommand::Cipher(args) => crypt::run(&published(args)?, json).await,
        IbcCommand::Variants => variants::run(json),
        IbcCommand::Vectors(command) => vectors::run(command, json),
        IbcCommand::Faults(args) => faults::run(&args, json),
        IbcCommand::Analyse(args) => analyse::run(&args, json),
        IbcCommand::Provider(args) => provider::run(&args, json),
    }
}

fn encryption(args: Encrypt) -> Plan {
    Plan {
        variant: args.variant.or(args.level),
        mode: Some(args.mode),
        iv: args.iv,
        ..common(args.common, Direction::Encrypt)
    }
}

fn decryption(args: Decrypt) -> Plan {
    Plan {
        variant: args.variant.or(args.level),
        mode: args.mode,
        iv: args.iv,
        ..common(args.common, Direction::Decrypt)
    }
}

fn common(args: Common, direction: Direction) -> Plan {
    Plan {
        direction,
        input: args.files.input,
        output: args.files.output,
        key_file: args.key_file,
        variant: None,
        mode: None,
        iv: None,
        raw: args.raw,
        padding: !args.no_padding,
        ced: code(args.ced, args.parity_bits),
        backend: args.backend,
        testing: None,
        debug: false,
        quiet: args.files.quiet,
    }
}

fn published(args: Cipher) -> Outcome<Plan> {
    let direction = if args.encrypt {
        Direction::Encrypt
    } else {
        Direction::Decrypt
    };
    let variant = args.level.or(args.rounds_name);
    if direction == Direction::Encrypt && (variant.is_none() || args.mode.is_none()) {
        return Err(Failure::usage(
            "encryption needs a level and a mode",
            "add for instance -e low -m cbc",
        ));
    }
    let method = match args.cedtype {
        0 => CedMethod::None,
        1 => CedMethod::Parity,
        2 => CedMethod::Berger,
        _ => CedMethod::Crc,
    };
    let testing = args.errortesting.map(|errors| Setting {
        errors,
        placement: placement(args.spread),
        seed: args.seed,
        debug: args.debug,
    });
    Ok(Plan {
        direction,
        input: args.input,
        output: args.output,
        key_file: args.key_file,
        variant,
        mode: args.mode,
        iv: args.iv,
        raw: args.raw,
        padding: true,
        ced: code(method, args.paritybits),
        backend: None,
        testing,
        debug: args.debug,
        quiet: args.quiet,
    })
}

const fn code(method: CedMethod, parity_bits: u8) -> Option<Code> {
    match (method, parity_bits) {
        (CedMethod::None, _) => None,
        (CedMethod::Berger, _) => Some(Code::Berger),
        (CedMethod::Crc, _) => Some(Code::Crc16),
        (CedMethod::Parity, 1) => Some(Code::Parity1),
        (CedMethod::Parity, 2) => Some(Code::Parity2),
        (CedMethod::Parity, 4) => Some(Code::Parity4),
        (CedMethod::Parity, _) => Some(Code::Parity8),
    }
}

const fn placement(spread: bool) -> Placement {
    if spread {
        Placement::Spread
    } else {
        Placement::OneStage
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_published_command_line_is_sound() {
        Ibcipher::command().debug_assert();
        let words = "ibcipher -i IN -o OUT -k KEYFILE -e veryhigh -m ecb --encrypt --cedtype 1 \
                     --paritybits 4 --errortesting 10 --debug";
        let parsed = Ibcipher::try_parse_from(words.split_whitespace()).unwrap();
        let plan = published(parsed.cipher).unwrap();
        assert_eq!(plan.variant, Some(ibc::Variant::Indect128Vh));
        assert_eq!(plan.ced, Some(Code::Parity4));
        assert_eq!(plan.testing.unwrap().errors, 10);
        for wrong in [
            "ibcipher -i IN -o OUT -k K -e low -m ecb",
            "ibcipher -i IN -o OUT -k K -e low -m ecb --encrypt --decrypt",
            "ibcipher -i IN -o OUT -k K -e low -m ofb --encrypt",
            "ibcipher -i IN -o OUT -k K -e lowest -m ecb --encrypt",
            "ibcipher -i IN -o OUT -k K -e low -m ecb --encrypt --cedtype 4",
            "ibcipher -i IN -o OUT -k K -e low -m ecb --encrypt --cedtype 1 --paritybits 3",
            "ibcipher -i IN -o OUT -k K -e low -m ecb --decrypt --errortesting 5",
            "ibcipher -i IN -o OUT -k K -e low -m ecb --encrypt --errortesting 257",
        ] {
            let parsed = Ibcipher::try_parse_from(wrong.split_whitespace());
            assert!(parsed.is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_name_decides() {
        for (name, expected) in [
            ("ibcipher", true),
            ("/usr/bin/ibcipher", true),
            ("cordon", false),
            ("./ibcipher2", false),
        ] {
            assert_eq!(is_ibcipher(Some(name.as_ref())), expected);
        }
        assert!(!is_ibcipher(None));
    }
}
