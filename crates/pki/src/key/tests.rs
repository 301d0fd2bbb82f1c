use proptest::prelude::*;

use const_oid::db::rfc8410::ID_ED_25519;

use super::*;

fn keys() -> Vec<PrivateKey> {
    // RSA 3072 and 4096 differ from 2048 in nothing but time; the integration tests make them.
    [
        KeyAlgorithm::EcdsaP256,
        KeyAlgorithm::EcdsaP384,
        KeyAlgorithm::Rsa2048,
        KeyAlgorithm::Ed25519,
    ]
    .into_iter()
    .map(|a| PrivateKey::generate(a).unwrap())
    .collect()
}

#[test]
fn names_round_trip_and_unknown_is_refused() {
    for algorithm in KeyAlgorithm::ALL {
        assert_eq!(algorithm.name().parse::<KeyAlgorithm>().unwrap(), algorithm);
    }
    assert_eq!(
        "rsa-1024".parse::<KeyAlgorithm>(),
        Err(UnknownKeyAlgorithm("rsa-1024".to_owned()))
    );
}

#[test]
fn signature_verifies_only_over_its_message_and_key() {
    let keys = keys();
    for (i, key) in keys.iter().enumerate() {
        let algorithm = key.signature_algorithm();
        let mut signature = key.sign(b"order 66").unwrap();
        verify(key.public_spki_der(), &algorithm, b"order 66", &signature).unwrap();
        assert!(matches!(
            verify(key.public_spki_der(), &algorithm, b"order 67", &signature),
            Err(VerifyError::Mismatch)
        ));
        let other = &keys[(i + 1) % keys.len()];
        assert!(matches!(
            verify(other.public_spki_der(), &algorithm, b"order 66", &signature),
            Err(VerifyError::Algorithm { .. } | VerifyError::Mismatch)
        ));
        *signature.last_mut().unwrap() ^= 1;
        assert!(verify(key.public_spki_der(), &algorithm, b"order 66", &signature).is_err());
    }
}

#[test]
fn pkcs8_round_trip_keeps_the_public_half() {
    for key in keys() {
        let again = PrivateKey::from_pkcs8_der(&key.to_pkcs8_der()).unwrap();
        assert_eq!(again.algorithm(), key.algorithm());
        assert_eq!(again.public_spki_der(), key.public_spki_der());
        assert_eq!(KeyAlgorithm::of_spki(&key.spki()).unwrap(), key.algorithm());
    }
}

#[test]
fn other_encodings_of_a_public_key_are_refused() {
    use const_oid::ObjectIdentifier;
    use der::asn1::{Any, BitString};
    use spki::SubjectPublicKeyInfoOwned;

    let refused = |spki: &SubjectPublicKeyInfoOwned, what: &str| {
        let found = KeyAlgorithm::of_spki(spki);
        assert!(
            matches!(found, Err(KeyError::Encoding)),
            "{what}: {found:?}"
        );
    };
    let with_bits = |spki: &SubjectPublicKeyInfoOwned, unused: u8, bits: Vec<u8>| {
        let mut changed = spki.clone();
        changed.subject_public_key = BitString::new(unused, bits).unwrap();
        changed
    };
    for key in keys() {
        let spki = key.spki();
        let name = key.algorithm().name();
        let bits = spki.subject_public_key.raw_bytes().to_vec();
        // DER demands that unused bits are zero.
        let mut shorter = bits.clone();
        *shorter.last_mut().unwrap() &= 0xfe;
        refused(&with_bits(&spki, 1, shorter), name);
        let mut changed = spki.clone();
        if key.algorithm().is_ecdh() {
            let half = bits.len() / 2;
            let sign = 2 + (bits[bits.len() - 1] & 1);
            let point = |first: u8, rest: &[u8]| [&[first], rest].concat();
            for (what, other) in [
                ("compressed", point(sign, &bits[1..=half])),
                ("hybrid", point(4 + sign, &bits[1..])),
                ("short", bits[..bits.len() - 1].to_vec()),
                ("long", [bits.as_slice(), &[0]].concat()),
                ("shorter by two", bits[..bits.len() - 2].to_vec()),
                ("infinity", vec![0]),
                ("empty", Vec::new()),
            ] {
                refused(&with_bits(&spki, 0, other), what);
            }
        } else {
            let oid = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
            changed.algorithm.parameters = Some(Any::from(&oid));
            refused(&changed, name);
            let other = key.algorithm() == KeyAlgorithm::Ed25519;
            changed.algorithm.parameters = other.then(Any::null);
            refused(&changed, name);
        }
        assert_eq!(KeyAlgorithm::of_spki(&spki).unwrap(), key.algorithm());
    }
    let ed25519 = PrivateKey::generate(KeyAlgorithm::Ed25519).unwrap().spki();
    for length in [0, 31, 33] {
        refused(&with_bits(&ed25519, 0, vec![7; length]), "length");
    }
}

#[test]
fn encrypted_pem_needs_the_passphrase() {
    let key = PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
    let pem = key.to_encrypted_pem(&"correct horse".into()).unwrap();
    assert!(pem.starts_with("-----BEGIN ENCRYPTED PRIVATE KEY-----"));
    let again = PrivateKey::from_encrypted_pem(&pem, &"correct horse".into()).unwrap();
    assert_eq!(again.public_spki_der(), key.public_spki_der());
    assert!(matches!(
        PrivateKey::from_encrypted_pem(&pem, &"battery staple".into()),
        Err(KeyError::WrongPassphrase)
    ));
    assert!(matches!(
        PrivateKey::from_encrypted_pem("-----BEGIN NOTHING-----", &"".into()),
        Err(KeyError::NotEncryptedPkcs8)
    ));
}

#[test]
fn excessive_key_derivation_is_refused_before_it_starts() {
    use der::EncodePem;
    use pkcs8::pkcs5::pbes2::Parameters;
    let salt = [7; 16];
    let iv = [8; 16];
    let pem = pkcs8::EncryptedPrivateKeyInfo {
        encryption_algorithm: Parameters::pbkdf2_sha256_aes256cbc(99_000_000, &salt, &iv)
            .unwrap()
            .into(),
        encrypted_data: &[0; 32],
    }
    .to_pem(der::pem::LineEnding::LF)
    .unwrap();
    assert!(matches!(
        PrivateKey::from_encrypted_pem(&pem, &"x".into()),
        Err(KeyError::KdfTooExpensive)
    ));
}

#[test]
fn ecdh_agrees_on_both_sides_and_refuses_bad_points() {
    for algorithm in [KeyAlgorithm::EcdsaP256, KeyAlgorithm::EcdsaP384] {
        let a = PrivateKey::generate(algorithm).unwrap();
        let b = PrivateKey::generate(algorithm).unwrap();
        let ab = a.ecdh(b.spki().subject_public_key.raw_bytes()).unwrap();
        let ba = b.ecdh(a.spki().subject_public_key.raw_bytes()).unwrap();
        assert_eq!(*ab, *ba);
        let mut off_curve = b.spki().subject_public_key.raw_bytes().to_vec();
        *off_curve.last_mut().unwrap() ^= 1;
        assert!(matches!(a.ecdh(&off_curve), Err(KeyError::BadPeerPoint)));
        assert!(matches!(a.ecdh(&[]), Err(KeyError::BadPeerPoint)));
    }
    let ed = PrivateKey::generate(KeyAlgorithm::Ed25519).unwrap();
    assert!(matches!(
        ed.ecdh(&[4; 65]),
        Err(KeyError::WrongKeyType { .. })
    ));
}

#[test]
fn oaep_decrypts_what_was_encrypted_and_nothing_else() {
    let key = PrivateKey::generate(KeyAlgorithm::Rsa2048).unwrap();
    let public = rsa::PublicEncryptingKey::from_der(key.public_spki_der()).unwrap();
    let public = rsa::OaepPublicEncryptingKey::new(public).unwrap();
    let mut ciphertext = vec![0; public.ciphertext_size()];
    let len = public
        .encrypt(
            &rsa::OAEP_SHA256_MGF1SHA256,
            b"media key",
            &mut ciphertext,
            None,
        )
        .unwrap()
        .len();
    ciphertext.truncate(len);
    assert_eq!(
        &**key.rsa_oaep_sha256_decrypt(&ciphertext).unwrap(),
        b"media key"
    );
    ciphertext[9] ^= 1;
    assert!(matches!(
        key.rsa_oaep_sha256_decrypt(&ciphertext),
        Err(KeyError::Decrypt)
    ));
    assert!(matches!(
        key.rsa_oaep_sha256_decrypt(&[]),
        Err(KeyError::Decrypt)
    ));
}

#[test]
fn pkcs1_unwraps_keys_of_the_wanted_length_and_gives_random_ones_for_the_rest() {
    let key = PrivateKey::generate(KeyAlgorithm::Rsa2048).unwrap();
    let public = rsa::PublicEncryptingKey::from_der(key.public_spki_der()).unwrap();
    let public = rsa::Pkcs1PublicEncryptingKey::new(public).unwrap();
    let wrapped = |content: &[u8]| {
        let mut ciphertext = vec![0; public.ciphertext_size()];
        public.encrypt(content, &mut ciphertext).unwrap().to_vec()
    };
    let right = wrapped(&[7; 32]);
    assert_eq!(&**key.rsa_pkcs1_unwrap(&right, 32).unwrap(), [7; 32]);
    let mut changed = right.clone();
    changed[9] ^= 1;
    for (ciphertext, len) in [
        (&right, 16),
        (&changed, 32),
        (&wrapped(&[7; 31]), 32),
        (&wrapped(&[]), 32),
        (&vec![0; 256], 32),
        (&vec![0xff; 256], 32),
        (&vec![1; 255], 32),
        (&Vec::new(), 32),
    ] {
        let one = key.rsa_pkcs1_unwrap(ciphertext, len).unwrap();
        let two = key.rsa_pkcs1_unwrap(ciphertext, len).unwrap();
        assert_eq!((one.len(), two.len()), (len, len));
        assert_ne!(one, two);
    }
    let other = PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
    let refused = other.rsa_pkcs1_unwrap(&right, 32);
    assert!(matches!(refused, Err(KeyError::WrongKeyType { .. })));
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = PrivateKey::from_pkcs8_der(&bytes);
        let _ = verify(&bytes, &AlgorithmIdentifierOwned { oid: ID_ED_25519, parameters: None }, &bytes, &bytes);
        let _ = PrivateKey::from_encrypted_pem(&String::from_utf8_lossy(&bytes), &"x".into());
    }

    #[test]
    fn a_damaged_key_never_panics(at in 0_usize..138, bit in 0_u8..8) {
        let mut der = PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap().to_pkcs8_der();
        if let Some(byte) = der.get_mut(at) {
            *byte ^= 1 << bit;
        }
        let _ = PrivateKey::from_pkcs8_der(&der);
    }
}
