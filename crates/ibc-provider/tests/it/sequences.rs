//! Sequences of EVP calls, as different programs make them.

use ibc::{Ibc, Iv, Variant};

use crate::evp::{Cipher, Context, Library, errors};
use crate::setup::{IV, MODES, encrypt, expected, key, message};

const ENCRYPT: Option<bool> = Some(true);
const DECRYPT: Option<bool> = Some(false);

fn library() -> Library {
    Library::with("cordon_ibc")
}

fn begun(cipher: &Cipher, variant: Variant, direction: Option<bool>) -> Context {
    let mut context = Context::new();
    context
        .init(Some(cipher), Some(&key(variant)), Some(&IV), direction)
        .unwrap();
    context
}

fn reasons(outcome: Result<impl std::fmt::Debug, Vec<String>>) -> String {
    outcome.unwrap_err().join("; ")
}

/// Encrypts with what `context` has.
fn process(context: &mut Context, input: &[u8]) -> Result<Vec<u8>, Vec<String>> {
    let mut output = Vec::new();
    context.update(input, &mut output)?;
    context.finish(&mut output)?;
    Ok(output)
}

#[test]
fn properties_are_as_specified() {
    for (module, cbc_mode) in [("cordon_ibc", 2), ("cordon_ibc_openvpn", 4)] {
        let library = Library::with(module);
        for variant in Variant::ALL {
            let key_len = i32::try_from(variant.key_size()).unwrap();
            for (mode, block, iv_len, number) in [
                ("ECB", 32, 0, 1),
                ("CBC", 32, 16, cbc_mode),
                ("CTR", 1, 16, 5),
            ] {
                let found = library.fetch(&format!("{variant}-{mode}")).properties();
                // OpenSSL's own provided ciphers have this flag, too: EVP_Cipher returns lengths.
                let custom_cipher = 0x10_0000;
                let wanted = (block, key_len, iv_len, number, custom_cipher);
                assert_eq!(found, wanted, "{variant}-{mode}");
            }
        }
    }
}

#[test]
fn every_length_agrees_with_the_library_both_ways() {
    let library = library();
    for variant in Variant::ALL {
        for mode in MODES {
            let cipher = library.fetch(&format!("{variant}-{mode}"));
            let schedule = Ibc::new(variant, &key(variant)).unwrap();
            let mut encrypting = begun(&cipher, variant, ENCRYPT);
            let mut decrypting = begun(&cipher, variant, DECRYPT);
            for len in 0..=1024 {
                let message = message(len);
                // Only the IV: key and contexts stay, as for OpenVPN's packets.
                encrypting.init(None, None, Some(&IV), None).unwrap();
                decrypting.init(None, None, Some(&IV), None).unwrap();
                let encrypted = process(&mut encrypting, &message).unwrap();
                let right = encrypt(schedule.clone(), mode, Iv::Short(IV), &message, true);
                assert!(encrypted == right, "{variant}-{mode} {len}");
                assert!(process(&mut decrypting, &encrypted).unwrap() == message);
            }
        }
    }
}

#[test]
fn a_message_may_be_cut_at_every_place() {
    let library = library();
    let variant = Variant::Indect128;
    for mode in MODES {
        let cipher = library.fetch(&format!("{variant}-{mode}"));
        let message = message(133);
        let encrypted = expected(variant, mode, &message);
        for (direction, from, to) in [
            (ENCRYPT, &message, &encrypted),
            (DECRYPT, &encrypted, &message),
        ] {
            let mut context = begun(&cipher, variant, direction);
            for cut in 0..=from.len() {
                context.init(None, None, None, None).unwrap();
                let mut output = Vec::new();
                context.update(&from[..cut], &mut output).unwrap();
                output.extend(process(&mut context, &from[cut..]).unwrap());
                assert!(output == *to, "{mode} {direction:?} {cut}");
            }
            // One byte at a time.
            context.init(None, None, None, None).unwrap();
            let mut output = Vec::new();
            for byte in from.chunks(1) {
                context.update(byte, &mut output).unwrap();
            }
            context.finish(&mut output).unwrap();
            assert!(output == *to, "{mode} {direction:?} bytewise");
        }
    }
}

#[test]
fn copies_go_their_own_way_from_the_middle() {
    let library = library();
    let variant = Variant::Indect320;
    for mode in MODES {
        let cipher = library.fetch(&format!("{variant}-{mode}"));
        let message = message(200);
        let encrypted = expected(variant, mode, &message);
        for (direction, from, to) in [
            (ENCRYPT, &message, &encrypted),
            (DECRYPT, &encrypted, &message),
        ] {
            for cut in [0, 1, 31, 32, 33, 64, 100] {
                let mut first = begun(&cipher, variant, direction);
                let mut output = Vec::new();
                first.update(&from[..cut], &mut output).unwrap();
                let mut second = first.copy();
                let mut other = output.clone();
                // What one does next must not reach the other.
                first.update(b"something else", &mut Vec::new()).unwrap();
                drop(first);
                other.extend(process(&mut second, &from[cut..]).unwrap());
                assert!(other == *to, "{mode} {cut}");
            }
        }
    }
}

#[test]
fn in_place_works_whatever_is_held_back() {
    let library = library();
    let variant = Variant::Indect128;
    for mode in MODES {
        let cipher = library.fetch(&format!("{variant}-{mode}"));
        let message = message(5000);
        let encrypted = expected(variant, mode, &message);
        for (direction, from, to) in [
            (ENCRYPT, &message, &encrypted),
            (DECRYPT, &encrypted, &message),
        ] {
            for cut in [0, 1, 32, 45] {
                let mut context = begun(&cipher, variant, direction);
                let mut output = Vec::new();
                context.update(&from[..cut], &mut output).unwrap();
                let mut memory = from[cut..].to_vec();
                let len = memory.len();
                memory.resize(len + 64, 0);
                let written = context.update_in_place(&mut memory, len).unwrap();
                output.extend_from_slice(&memory[..written]);
                context.finish(&mut output).unwrap();
                assert!(output == *to, "{mode} {direction:?} {cut}");
            }
        }
    }
}

#[test]
fn key_and_iv_may_come_one_after_the_other() {
    let library = library();
    let variant = Variant::Indect192;
    let key = key(variant);
    let right = expected(variant, "CBC", &message(77));
    let cipher = library.fetch("INDECT-192-CBC");
    type Step<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);
    let orders: [&[Step<'_>]; 4] = [
        &[(Some(&key), Some(&IV))],
        &[(Some(&key), None), (None, Some(&IV))],
        &[(None, Some(&IV)), (Some(&key), None)],
        &[
            (None, None),
            (None, Some(&IV)),
            (Some(&key), None),
            (None, None),
        ],
    ];
    for order in orders {
        let mut context = Context::new();
        context.init(Some(&cipher), None, None, ENCRYPT).unwrap();
        for (key, iv) in order {
            context.init(None, *key, *iv, None).unwrap();
        }
        assert!(process(&mut context, &message(77)).unwrap() == right);
    }
}

#[test]
fn calls_out_of_order_are_refused_with_a_reason() {
    let library = library();
    let variant = Variant::Indect128;
    let cipher = library.fetch("INDECT-128-CBC");
    drop(Context::new());
    let mut context = Context::new();
    assert!(context.update(b"x", &mut Vec::new()).is_err());
    context.init(Some(&cipher), None, None, ENCRYPT).unwrap();
    assert!(reasons(process(&mut context, b"x")).contains("no key set"));
    context.init(None, Some(&key(variant)), None, None).unwrap();
    assert!(reasons(process(&mut context, b"x")).contains("no iv set"));
    context.init(None, None, Some(&IV), None).unwrap();
    process(&mut context, b"x").unwrap();
    let twice = context.finish(&mut Vec::new());
    assert!(reasons(twice).contains("already finished"));
    assert!(reasons(context.update(b"x", &mut Vec::new())).contains("already finished"));
    context.init(None, None, None, None).unwrap();
    assert!(process(&mut context, b"x").unwrap() == expected(variant, "CBC", b"x"));
    assert!(reasons(context.set_key_length(17)).contains("invalid key length"));
    assert!(reasons(context.set_iv_length(17)).contains("invalid parameter"));
    assert!(errors().is_empty());
}

#[test]
fn padding_can_be_switched_off_and_evp_cipher_has_none() {
    let library = library();
    let variant = Variant::Indect256;
    for mode in ["ECB", "CBC"] {
        let cipher = library.fetch(&format!("{variant}-{mode}"));
        let whole = &expected(variant, mode, &message(96))[..96];
        let mut context = begun(&cipher, variant, ENCRYPT);
        assert!(context.cipher(&message(96)).unwrap() == whole);
        assert!(reasons(context.cipher(&message(33))).contains("not multiple of block length"));
        context.init(None, None, Some(&IV), None).unwrap();
        context.set_padding(false);
        assert!(process(&mut context, &message(96)).unwrap() == whole);
        context.init(None, None, Some(&IV), DECRYPT).unwrap();
        assert!(process(&mut context, whole).unwrap() == message(96));
        context.init(None, None, Some(&IV), None).unwrap();
        let partial = process(&mut context, &whole[..95]);
        assert!(reasons(partial).contains("31 are left over"));
    }
}

#[test]
fn the_native_iv_can_be_chosen_and_ivs_can_be_asked_for() {
    let library = library();
    let variant = Variant::Indect128;
    for mode in ["CBC", "CTR"] {
        let cipher = library.fetch(&format!("{variant}-{mode}"));
        let mut context = begun(&cipher, variant, ENCRYPT);
        assert_eq!(context.ivs(16).unwrap(), (IV.to_vec(), IV.to_vec()));
        let mut output = Vec::new();
        context.update(&message(64), &mut output).unwrap();
        assert!(context.ivs(16).is_err(), "the chaining value has 32 bytes");
        let (_, updated) = context.ivs(32).unwrap();
        assert_eq!(context.num(), 0);

        let mut next = Context::new();
        next.init(Some(&cipher), None, None, ENCRYPT).unwrap();
        next.set_iv_length(32).unwrap();
        next.init(None, Some(&key(variant)), Some(&updated), None)
            .unwrap();
        output.extend(process(&mut next, &message(200)[64..]).unwrap());
        assert!(output == expected(variant, mode, &message(200)), "{mode}");
    }
}

#[test]
fn threads_share_a_cipher() {
    let library = library();
    let variant = Variant::Indect128;
    let cipher = library.fetch("INDECT-128-CBC");
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let cipher = &cipher;
            scope.spawn(move || {
                for turn in 0..200 {
                    let message = message(thread * 37 + turn);
                    let mut context = begun(cipher, variant, ENCRYPT);
                    let encrypted = process(&mut context, &message).unwrap();
                    assert!(encrypted == expected(variant, "CBC", &message));
                    let mut context = begun(cipher, variant, DECRYPT);
                    assert!(process(&mut context, &encrypted).unwrap() == message);
                    let wrong = process(&mut begun(cipher, variant, DECRYPT), &encrypted[1..]);
                    assert!(reasons(wrong).contains("bad decrypt"));
                }
            });
        }
    });
}

#[test]
fn the_provider_can_be_loaded_and_unloaded_again_and_again() {
    for _ in 0..20 {
        for module in ["cordon_ibc", "cordon_ibc_openvpn"] {
            let library = Library::with(module);
            let cipher = library.fetch("INDECT-128-CBC");
            let mut context = begun(&cipher, Variant::Indect128, ENCRYPT);
            assert_eq!(process(&mut context, b"").unwrap().len(), 32);
        }
    }
}
