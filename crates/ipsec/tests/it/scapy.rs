//! Byte for byte against another implementation: scapy's ESP and AH layers (PyPI `scapy`).
//!
//! The interpreter is taken from `CORDON_PYTHON`, else `.venv/bin/python` at the root of the
//! workspace: `python3 -m venv .venv && .venv/bin/pip install scapy cryptography`.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Instant;

use ipsec::sa::{InboundOptions, InboundSa, OutboundOptions, OutboundSa, Protocol};
use offload::{Encryption, Integrity, Mode};
use serde_json::{Value, json};

use crate::support::{Case, SPI, all_cases, arrived, open, protect};

/// Upper half of the first packet's number where numbers are extended.
const UPPER: u64 = 3;
const LOWER: u64 = 7;

#[test]
fn scapy_and_we_agree_byte_for_byte() {
    let known = |case: &Case| case.integrity() != Some(Integrity::AesXcbc96);
    let cases: Vec<Case> = all_cases().into_iter().filter(known).collect();
    let sent: Vec<(Value, Vec<u8>)> = cases.iter().map(send).collect();
    let answers = ask(&Value::Array(
        sent.iter().map(|(case, _)| case.clone()).collect(),
    ));
    assert_eq!(answers.len(), cases.len());
    for ((case, (question, outer)), answer) in cases.iter().zip(&sent).zip(&answers) {
        let bytes = |value: &Value| hex::decode(value.as_str().unwrap()).unwrap();
        assert_eq!(
            answer["opened"], question["inner"],
            "{case:?}: scapy opens ours"
        );
        // What is protected is equal to the byte; the outer IP header has an identification.
        let at = arrived(outer, 0, outer.len()).start;
        assert_eq!(
            hex::encode(&bytes(&answer["equal"])[at..]),
            hex::encode(&outer[at..]),
            "{case:?}: scapy makes the same packet"
        );
        let mut receiver = receiver(case);
        let opened = open(&mut receiver, &bytes(&answer["fresh"]));
        assert_eq!(
            opened.map(hex::encode),
            Ok(question["inner"].as_str().unwrap().to_owned()),
            "{case:?}: we open scapy's"
        );
    }
}

fn first_sequence(case: &Case) -> u64 {
    LOWER + if case.esn { UPPER << 32 } else { 0 }
}

pub(crate) fn send(case: &Case) -> (Value, Vec<u8>) {
    let mut plane = case.sender();
    let policies: Vec<_> = plane.spd().iter().map(|(id, _)| id).collect();
    let options = OutboundOptions::default();
    let mut sa = OutboundSa::new(&case.parameters(), options, Instant::now()).unwrap();
    sa.advance_to(first_sequence(case) - 1);
    plane.install_outbound(sa, &policies);
    let inner = case.inner(37);
    let outer = protect(&mut plane, &inner).unwrap();
    let esp = arrived(&outer, 0, outer.len()).start;
    let (protocol, encryption, iv_len) = match case.protocol {
        Protocol::Esp(suite) => (
            "esp",
            Some(encryption_name(suite.encryption())),
            suite.encryption().iv_len(),
        ),
        Protocol::Ah(_) => ("ah", None, 0),
    };
    let (keys, (source, destination)) = (case.keys(), case.ends());
    let case = json!({
        "protocol": protocol,
        "spi": SPI,
        "encryption": encryption,
        "encryption_key": hex::encode(&*keys.encryption),
        "encryption_icv": combined_icv_len(case.protocol),
        "integrity": case.integrity().map(integrity_name),
        "integrity_key": hex::encode(&*keys.integrity),
        "tunnel": case.tunnel,
        "udp": case.udp,
        "v6": case.v6,
        "esn": case.esn,
        "upper": UPPER,
        "lower": LOWER,
        "source": source,
        "destination": destination,
        "inner": hex::encode(inner),
        "outer": hex::encode(&outer),
        "iv": hex::encode(&outer[esp + 8..][..iv_len]),
    });
    (case, outer)
}

/// Bytes of integrity value of a cipher that authenticates by itself.
const fn combined_icv_len(protocol: Protocol) -> usize {
    match protocol {
        Protocol::Esp(suite) => suite.encryption().icv_len(),
        Protocol::Ah(_) => 0,
    }
}

pub(crate) fn receiver(case: &Case) -> ipsec::dataplane::DataPlane {
    let options = InboundOptions {
        selectors: vec![case.selector()],
        ..InboundOptions::default()
    };
    let mut sa = InboundSa::new(&case.parameters(), options, Instant::now()).unwrap();
    sa.advance_to(first_sequence(case));
    let mut plane = case.receiver();
    plane.install_inbound(sa);
    plane
}

const fn encryption_name(encryption: Encryption) -> &'static str {
    match encryption.mode() {
        Mode::Null => "NULL",
        Mode::AesCbc => "AES-CBC",
        Mode::AesCtr => "AES-CTR",
        Mode::AesCcm => "AES-CCM",
        Mode::AesGcm => "AES-GCM",
        Mode::AesGmac => "AES-NULL-GMAC",
        Mode::ChaCha20Poly1305 => "CHACHA20-POLY1305",
        #[cfg(feature = "legacy-algorithms")]
        Mode::LegacyCbc if encryption.key_len() == 8 => "DES",
        #[cfg(feature = "legacy-algorithms")]
        Mode::LegacyCbc => "3DES",
    }
}

const fn integrity_name(integrity: Integrity) -> &'static str {
    match integrity {
        Integrity::HmacSha1_96 => "HMAC-SHA1-96",
        Integrity::HmacSha256_128 => "SHA2-256-128",
        Integrity::HmacSha384_192 => "SHA2-384-192",
        Integrity::HmacSha512_256 => "SHA2-512-256",
        // Of Linux alone: scapy has none.
        Integrity::AesXcbc96 => "AES-XCBC-96",
        #[cfg(feature = "legacy-algorithms")]
        Integrity::HmacMd5_96 => "HMAC-MD5-96",
    }
}

fn ask(cases: &Value) -> Vec<Value> {
    let python = std::env::var("CORDON_PYTHON").unwrap_or_else(|_| {
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../.venv/bin/python").to_owned()
    });
    let mut child = Command::new(&python)
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/it/scapy_peer.py"
        ))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{python} with scapy is needed: {error}"));
    let mut stdin = child.stdin.take().unwrap();
    let cases = cases.to_string();
    let writer = std::thread::spawn(move || stdin.write_all(cases.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success(), "scapy failed");
    serde_json::from_slice(&output.stdout).unwrap()
}
