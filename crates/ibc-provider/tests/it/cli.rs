//! The `openssl` command, unmodified.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use ibc::Variant;

use crate::setup::{IV, MODES, expected, key, message, modules};

fn openssl(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new("openssl")
        .args(arguments)
        .env("OPENSSL_MODULES", modules())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl is installed");
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

const PROVIDERS: [&str; 4] = ["-provider", "default", "-provider", "cordon_ibc"];

/// `openssl enc` with raw key and IV; the ciphertext, or what it complains about.
fn enc(variant: Variant, mode: &str, more: &[&str], input: &[u8]) -> Result<Vec<u8>, String> {
    let name = format!("-{variant}-{mode}");
    let (key, iv) = (hex::encode(key(variant)), hex::encode(IV));
    let mut arguments = vec!["enc", &name, "-K", &key];
    if mode != "ECB" {
        arguments.extend(["-iv", &iv]);
    }
    arguments.extend(PROVIDERS);
    arguments.extend(more);
    let output = openssl(&arguments, input);
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn text(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn all_ciphers_are_listed() {
    for module in ["cordon_ibc", "cordon_ibc_openvpn"] {
        let list = text(&openssl(
            &["list", "-cipher-algorithms", "-provider", module],
            b"",
        ));
        for variant in Variant::ALL {
            for mode in MODES {
                let line = format!("{variant}-{mode} @ {module}");
                assert!(list.lines().any(|l| l.trim() == line), "{line} in {list}");
            }
        }
        let about = text(&openssl(&["list", "-providers", "-provider", module], b""));
        assert!(about.contains("research cipher, not secure"), "{about}");
        assert!(about.contains("status: active"), "{about}");
    }
}

#[test]
fn enc_agrees_with_the_library_both_ways() {
    let lengths = [
        0, 1, 15, 16, 31, 32, 33, 63, 64, 65, 255, 1000, 1024, 8191, 8192, 70_001,
    ];
    for variant in Variant::ALL {
        for mode in MODES {
            // All lengths for one variant, a turn of them for the others.
            let every = variant == Variant::Indect128;
            for len in lengths
                .into_iter()
                .filter(|len| every || len % 5 == variant.rounds() % 5)
            {
                let message = message(len);
                let encrypted = enc(variant, mode, &[], &message).unwrap();
                assert!(
                    encrypted == expected(variant, mode, &message),
                    "{variant} {mode} {len}"
                );
                let decrypted = enc(variant, mode, &["-d"], &encrypted).unwrap();
                assert!(decrypted == message, "{variant} {mode} {len}");
            }
        }
    }
}

#[test]
fn enc_may_cut_its_input_anywhere() {
    let message = message(3000);
    for mode in MODES {
        let whole = expected(Variant::Indect320, mode, &message);
        for size in ["1", "7", "31", "32", "33", "100", "1023"] {
            let encrypted = enc(Variant::Indect320, mode, &["-bufsize", size], &message).unwrap();
            assert!(encrypted == whole, "{mode} {size}");
            let back = enc(Variant::Indect320, mode, &["-d", "-bufsize", size], &whole).unwrap();
            assert!(back == message, "{mode} {size}");
        }
    }
}

#[test]
fn enc_takes_passwords_and_base64() {
    let mut arguments = vec![
        "enc",
        "-INDECT-192-CBC",
        "-pbkdf2",
        "-a",
        "-pass",
        "pass:test",
    ];
    arguments.extend(PROVIDERS);
    let encrypted = openssl(&arguments, &message(500));
    assert!(text(&encrypted).starts_with("U2FsdGVkX1"));
    arguments.push("-d");
    let decrypted = openssl(&arguments, &encrypted.stdout);
    assert!(decrypted.status.success() && decrypted.stdout == message(500));
}

#[test]
fn both_modules_compute_the_same() {
    let plain = enc(Variant::Indect128, "CBC", &[], &message(100)).unwrap();
    let (key, iv) = (hex::encode(key(Variant::Indect128)), hex::encode(IV));
    let arguments = ["enc", "-INDECT-128-CBC", "-K", &key, "-iv", &iv];
    let arguments = [&arguments[..], &["-provider", "cordon_ibc_openvpn"]].concat();
    let output = openssl(
        &[&arguments[..], &["-provider", "default"]].concat(),
        &message(100),
    );
    assert!(output.stdout == plain);
}

#[test]
fn damage_and_mistakes_are_told() {
    let variant = Variant::Indect128;
    let encrypted = expected(variant, "CBC", &message(100));
    let refused = |more: &[&str], input: &[u8]| enc(variant, "CBC", more, input).unwrap_err();
    for cut in [0, 1, 31, 32, 33, 96, 127] {
        let said = refused(&["-d"], &encrypted[..cut]);
        assert!(said.contains("bad decrypt"), "{cut}: {said}");
    }
    let mut damaged = encrypted.clone();
    damaged[70] ^= 1;
    damaged[120] ^= 1;
    assert!(refused(&["-d"], &damaged).contains("wrong key, or the ciphertext is cut or damaged"));
    let said = refused(&["-nopad"], &message(100));
    assert!(said.contains("4 are left over"), "{said}");
    let whole = enc(variant, "CBC", &["-nopad"], &message(96)).unwrap();
    assert_eq!(whole, expected(variant, "CBC", &message(96))[..96]);
    assert_eq!(
        enc(variant, "CBC", &["-nopad", "-d"], &whole).unwrap(),
        message(96)
    );
}

#[test]
fn speed_measures_both_directions() {
    for more in [&[][..], &["-decrypt"][..]] {
        for (cipher, bytes) in [
            ("INDECT-128-CBC", "16384"),
            ("INDECT-320-ECB", "48"),
            ("INDECT-256-CTR", "100"),
        ] {
            let mut arguments = vec!["speed", "-seconds", "1", "-bytes", bytes];
            arguments.extend(PROVIDERS);
            arguments.extend(["-evp", cipher]);
            arguments.extend(more);
            let table = text(&openssl(&arguments, b""));
            assert!(table.contains(cipher), "{table}");
            let rate = table.trim_end().rsplit(' ').next().unwrap();
            let rate: f64 = rate.trim_end_matches('k').parse().unwrap();
            assert!(rate > 0.0, "{table}");
        }
    }
}

#[test]
fn a_configuration_file_loads_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("openssl.cnf");
    let module = modules().join("cordon_ibc.so");
    let config = format!(
        "openssl_conf = init\n[init]\nproviders = list\n[list]\ndefault = one\nibc = two\n\
         [one]\nactivate = 1\n[two]\nmodule = {}\nactivate = 1\n",
        module.display()
    );
    std::fs::write(&file, config).unwrap();
    let (key, iv) = (hex::encode(key(Variant::Indect128)), hex::encode(IV));
    let output = Command::new("openssl")
        .args([
            "enc",
            "-INDECT-128-CTR",
            "-K",
            &key,
            "-iv",
            &iv,
            "-in",
            "/dev/null",
        ])
        .env("OPENSSL_CONF", &file)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
