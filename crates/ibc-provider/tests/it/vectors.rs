//! The `mode` vectors of the project's IBC specification, through EVP.

use ibc::{Backend, Variant};
use serde::Deserialize;

use crate::evp::{Context, Library};
use crate::setup::{IV, MODES, expected, key, message};

#[derive(Deserialize)]
struct File {
    vectors: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Mode {
    mode: String,
    key: String,
    rounds: usize,
    padding: String,
    #[serde(default)]
    iv: Option<String>,
    pt: String,
    ct: String,
}

/// The project's vectors, or those in the file that `IBC_VECTORS` names.
fn text() -> String {
    match std::env::var("IBC_VECTORS") {
        Ok(path) => std::fs::read_to_string(path).unwrap(),
        Err(_) => include_str!("../../../ibc/tests/data/ibc_vectors.json").to_owned(),
    }
}

#[test]
fn mode_vectors_pass_both_ways() {
    for backend in Backend::available() {
        pass(&Library::configured(&backend.to_string()));
    }
}

#[test]
fn all_lengths_pass_on_every_back_end() {
    for backend in Backend::available() {
        let library = Library::configured(&backend.to_string());
        for variant in Variant::ALL {
            for mode in MODES {
                let cipher = library.fetch(&format!("{variant}-{mode}"));
                for len in 0..=1024 {
                    let message = message(len);
                    let mut output = Vec::new();
                    let mut context = Context::new();
                    let iv = (mode != "ECB").then_some(&IV[..]);
                    context
                        .init(Some(&cipher), Some(&key(variant)), iv, Some(true))
                        .unwrap();
                    // In two pieces, the second of which begins anywhere.
                    let (head, tail) = message.split_at(len * 3 / 7);
                    context.update(head, &mut output).unwrap();
                    context.update(tail, &mut output).unwrap();
                    context.finish(&mut output).unwrap();
                    assert!(
                        output == expected(variant, mode, &message),
                        "{backend}: {variant}-{mode} of {len} bytes"
                    );
                }
            }
        }
    }
}

#[test]
fn an_unknown_back_end_is_refused() {
    assert!(
        Library::configured("portable")
            .find("INDECT-128-CBC")
            .is_some()
    );
    assert!(
        Library::configured("abacus")
            .find("INDECT-128-CBC")
            .is_none()
    );
}

fn pass(library: &Library) {
    let file: File = serde_json::from_str(&text()).unwrap();
    let mut seen = 0;
    for vector in file.vectors.into_iter().filter(|v| v["type"] == "mode") {
        let vector: Mode = serde_json::from_value(vector).unwrap();
        let bytes = |text: &str| hex::decode(text).unwrap();
        let key = bytes(&vector.key);
        let variant = Variant::from_parts(key.len(), vector.rounds).unwrap();
        let with_iv = vector.iv.as_deref().filter(|_| vector.mode != "ecb");
        let iv = with_iv.map(bytes);
        let cipher = library.fetch(&format!("{variant}-{}", vector.mode.to_uppercase()));
        for (encrypt, from, to) in [
            (true, &vector.pt, &vector.ct),
            (false, &vector.ct, &vector.pt),
        ] {
            let mut context = Context::new();
            context
                .init(Some(&cipher), None, None, Some(encrypt))
                .unwrap();
            if let Some(iv) = &iv {
                context.set_iv_length(iv.len()).unwrap();
            }
            context.init(None, Some(&key), iv.as_deref(), None).unwrap();
            let padded = vector.padding == "pkcs7";
            context.set_padding(padded);
            let mut output = Vec::new();
            context.update(&bytes(from), &mut output).unwrap();
            context.finish(&mut output).unwrap();
            assert_eq!(
                hex::encode(output),
                *to,
                "{variant}-{} {:?}",
                vector.mode,
                vector.iv
            );
        }
        seen += 1;
    }
    assert!(seen > 10, "{seen} vectors");
}
