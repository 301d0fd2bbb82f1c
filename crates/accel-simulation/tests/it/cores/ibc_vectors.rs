//! The cipher IBC against the vectors of its specification.

use accel_abi::{Algorithm, Mode};
use accel_simulation::cores::Engine;

use crate::cores::support::{both_ways, functional, job};

fn algorithm(key: &[u8], rounds: u64) -> Algorithm {
    match (key.len(), rounds) {
        (16, 8) => Algorithm::IBC_128,
        (16, 14) => Algorithm::IBC_128_STRONG,
        (24, 10) => Algorithm::IBC_192,
        (32, 10) => Algorithm::IBC_256,
        (40, 12) => Algorithm::IBC_320,
        other => panic!("{other:?}"),
    }
}

/// All single blocks and messages; padding is the host's.
pub(crate) fn published(engine: &mut Engine) {
    let file = include_str!("../../../../ibc/tests/data/ibc_vectors.json");
    let vectors: serde_json::Value = serde_json::from_str(file).unwrap();
    let mut count = 0;
    for vector in vectors["vectors"].as_array().unwrap() {
        let bytes = |name: &str| hex::decode(vector[name].as_str().unwrap()).unwrap();
        let (mode, iv) = match (vector["type"].as_str().unwrap(), vector["mode"].as_str()) {
            ("block", _) | ("mode", Some("ecb")) => (Mode::ECB, Vec::new()),
            ("mode", Some("cbc")) => (Mode::CBC, bytes("iv")),
            ("mode", Some("ctr")) => (Mode::CTR, bytes("iv")),
            _ => continue,
        };
        let (key, mut data) = (bytes("key"), bytes("pt"));
        if vector["padding"].as_str() == Some("pkcs7") {
            let rest = 32 - data.len() % 32;
            data.resize(data.len() + rest, rest as u8);
        }
        if data.is_empty() {
            continue;
        }
        let algorithm = algorithm(&key, vector["rounds"].as_u64().unwrap());
        engine.load_key(0, algorithm, &key).unwrap();
        let plain = job(algorithm, mode, &iv, &data);
        both_ways(engine, &plain, &bytes("ct"), &vector["id"].to_string());
        count += 1;
    }
    assert!(count >= 130, "only {count} vectors");
}

#[test]
fn vectors_of_the_specification() {
    published(&mut functional());
}
