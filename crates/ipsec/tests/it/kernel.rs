//! Packet by packet against the IPsec of a Linux kernel, which runs in an emulator
//! (`tests/kernel/machine.py`): it opens ours, we open its.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::scapy::{receiver, send};
use crate::support::{Case, all_cases, open};

#[test]
#[ignore = "boots a kernel in an emulator, some minutes; `scripts/test` runs it"]
fn linux_and_we_agree_on_a_few() {
    // Every protocol and suite once, and each of the other properties many times.
    let few = all_cases().into_iter().step_by(7).collect();
    agree(few);
}

#[test]
#[ignore = "boots a kernel in an emulator, some minutes; `scripts/test --full` runs it"]
fn linux_and_we_agree_on_everything() {
    agree(all_cases());
}

fn agree(cases: Vec<Case>) {
    let questions: Vec<Value> = cases.iter().map(|case| send(case).0).collect();
    let answers = ask(&questions);
    assert_eq!(answers.len(), cases.len());
    let mut wrong = Vec::new();
    for ((case, question), answer) in cases.iter().zip(&questions).zip(&answers) {
        let bytes = |value: &Value| hex::decode(value.as_str().unwrap_or_default()).unwrap();
        let inner = bytes(&question["inner"]);
        if bytes(&answer["opened"]) != seen_by_linux(case, &inner) {
            wrong.push(format!("{case:?}: Linux opens ours: {answer}"));
        }
        let opened = open(&mut receiver(case), &bytes(&answer["fresh"]));
        let expected = if case.tunnel {
            forwarded(&inner)
        } else {
            inner
        };
        if opened.as_deref() != Ok(&expected) {
            let opened = opened.map(hex::encode);
            wrong.push(format!("{case:?}: we open its: {opened:?} of {answer}"));
        }
    }
    let count = (wrong.len(), cases.len());
    assert!(wrong.is_empty(), "{count:?} wrong:\n{}", wrong.join("\n"));
}

/// Expected packet behind the kernel: a tunnel's packet is forwarded; a packet for the host itself is
/// read from a raw socket, which leaves out an IPv6 header.
fn seen_by_linux(case: &Case, inner: &[u8]) -> Vec<u8> {
    match (case.tunnel, case.v6) {
        (true, _) => forwarded(inner),
        (false, true) => inner[40..].to_vec(),
        (false, false) => inner.to_vec(),
    }
}

/// An IPv4 packet after one hop.
fn forwarded(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    packet[8] -= 1;
    ipsec::ip::write_v4_checksum(&mut packet, 20).unwrap();
    packet
}

fn ask(cases: &[Value]) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let file = |name| folder.path().join(name);
    std::fs::write(file("cases.json"), serde_json::to_vec(cases).unwrap()).unwrap();
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/kernel");
    let agent = scripts.join("xfrm.py").canonicalize().unwrap();
    let done = Command::new("python3")
        .arg(scripts.join("machine.py"))
        .arg(folder.path())
        .arg("/usr/bin/python3")
        .arg(agent)
        .arg("/run/share")
        .status()
        .unwrap();
    assert!(done.success(), "the kernel's side failed: {done}");
    serde_json::from_slice(&std::fs::read(file("answers.json")).unwrap()).unwrap()
}
