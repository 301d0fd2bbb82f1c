//! Vectors printed in RFCs and in the paper on GCM, on each engine. RFC 7634's packet is in the
//! tests of `ipsec`.

use super::{ENGINES, aeads, cbc, hmac};
use crate::aead::Aead;
use crate::ccm::Ccm;
use crate::ctr::Ctr;
use crate::suite::{Encryption, Integrity, SuiteError};
use crate::transform::Direction;
use crate::xcbc::Xcbc;

fn bytes(text: &str) -> Vec<u8> {
    hex::decode(text).unwrap()
}

/// Bytes that count up.
fn counting(first: u8, len: usize) -> Vec<u8> {
    (first..).take(len).collect()
}

fn check_cbc(key: &str, iv: &str, plain: &[u8], cipher: &str) {
    let iv = bytes(iv).try_into().unwrap();
    for engine in ENGINES {
        let sealed = cbc(engine, Direction::Seal, &bytes(key), &iv, plain);
        assert_eq!(hex::encode(sealed), cipher, "{engine:?}");
        let opened = cbc(engine, Direction::Open, &bytes(key), &iv, &bytes(cipher));
        assert_eq!(opened, plain, "{engine:?}");
    }
}

/// RFC 3602 §4, cases 1 to 4.
#[test]
fn rfc_3602_blocks() {
    check_cbc(
        "06a9214036b8a15b512e03d534120006",
        "3dafba429d9eb430b422da802c9fac41",
        b"Single block msg",
        "e353779c1079aeb82708942dbe77181a",
    );
    check_cbc(
        "c286696d887c9aa0611bbb3e2025a45a",
        "562e17996d093d28ddb3ba695a2e6f58",
        &counting(0, 32),
        "d296cd94c2cccf8a3a863028b5e1dc0a7586602d253cfff91b8266bea6d61ab1",
    );
    check_cbc(
        "6c3ea0477630ce21a2ce334aa746c2cd",
        "c782dc4c098c66cbd9cd27d825682c81",
        b"This is a 48-byte message (exactly 3 AES blocks)",
        "d0a02b3836451753d493665d33f0e8862dea54cdb293abc7506939276772f8d5\
         021c19216bad525c8579695d83ba2684",
    );
    check_cbc(
        "56e47a38c5598974bc46903dba290349",
        "8ce82eefbea0da3c44699ed7db51b7d9",
        &counting(0xA0, 64),
        "c30e32ffedc0774e6aff6af0869f71aa0f3af07a9a31a9c684db207eb0ef8e4e\
         35907aa632c3ffdf868bb7b29d3d46ad83ce9f9a102ee99d49a53e87f4c3da55",
    );
}

/// RFC 3602 §4, cases 5 to 8: ESP packets without integrity value, which we do not make, so that only
/// their IV and text are compared: echo requests in transport mode, then IP packets in tunnel mode.
#[test]
fn rfc_3602_esp_packets() {
    let transport = "90d382b410eeba7ad938c46cec1a82bf";
    let tunnel = "0123456789abcdef0123456789abcdef";
    let counted = |start: &str, from, count| [bytes(start), counting(from, count)].concat();
    let filled = |start: &str, with, count| [bytes(start), vec![with; count]].concat();
    for (key, esp, payload, next_header) in [
        (
            transport,
            "0000432100000001e96e8c08ab465763fd098d45dd3ff893\
             f663c25d325c18c6a9453e194e120849a4870b66cc6b9965330013b4898dc856\
             a4699e523a55db080b59ec3a8e4b7e52775b07d1db34ed9c538ab50c551b874a\
             a269add047ad2d5913ac19b7cfbad4a6",
            counted("08000ebda70a00008e9c083db95b0700", 8, 48),
            1,
        ),
        (
            transport,
            "000043210000000869d08df7d203329db093fc4924e5bd80\
             f51995881ec4e0c4488987ce742e8109689bb379d2d750c0d915dca346a89f75",
            filled("0800b5e8a80a0500a69c083d0b660e00", 0x77, 12),
            1,
        ),
        (
            tunnel,
            "0000876500000002f4e765244f6407adf13dc1380f673f37\
             773b5241a4c449225e4f3ce5ed611b0c237ca96cf74a93013c1b0ea1a0cf70f8\
             e4ecaec78ac53aad7a0f022b859243c647752e94a859352b8a4d4d2decd136e5\
             c177f132ad3fbfb2201ac9904c74ee0a109e0ca1e4dfe9d5a100b842f1c22f0d",
            counted(
                "45000054090400004001f988c0a87b03c0a87bc8\
                 08009f76a90a0100b49c083d02a20400",
                8,
                48,
            ),
            4,
        ),
        (
            tunnel,
            "000087650000000585d47224b5f3dd5d2101d4ea8dffab22\
             15b92683819596a8047232cc00f7048fe45318e11f8a0f62ede3c3fc61203bb5\
             0f980a08c9843fd3a1b06d5c07ff9639b7eb7dfb3512e5de435e7207ed971ef3\
             d2726d9b5ef6affc6d17a0decbb13892",
            filled(
                "45000044090c00004001f990c0a87b03c0a87bc8\
                 0800d63caa0a0200c69c083da3de0300",
                0xFF,
                32,
            ),
            4,
        ),
    ] {
        let (_, rest) = esp.split_at(2 * 8);
        let (iv, text) = rest.split_at(2 * 16);
        let pad = (16 - (payload.len() + 2) % 16) % 16;
        let trailer = [
            counting(1, pad),
            vec![u8::try_from(pad).unwrap(), next_header],
        ]
        .concat();
        check_cbc(key, iv, &[payload, trailer].concat(), text);
    }
}

fn check_gcm(key: &str, iv: &str, aad: &str, plain: &str, cipher: &str, tag: &str) {
    let encryption = match key.len() {
        32 => Encryption::AesGcm128,
        _ => Encryption::AesGcm256,
    };
    let nonce: [u8; 12] = bytes(iv).try_into().unwrap();
    for aead in aeads(encryption, &bytes(key)) {
        let engine = aead.engine_name();
        let (mut text, mut made) = (bytes(plain), [0; 16]);
        aead.seal(nonce, &bytes(aad), &mut text, &mut made).unwrap();
        assert_eq!(hex::encode(&text), cipher, "{engine}");
        assert_eq!(hex::encode(made), tag, "{engine}");
        aead.open(nonce, &bytes(aad), &mut text, &made).unwrap();
        assert_eq!(hex::encode(&text), plain, "{engine}");
    }
}

/// The Galois/Counter Mode of Operation (McGrew, Viega), appendix B, which RFC 4106 refers to: test
/// cases 1 to 4, 13, 14 and 16.
#[test]
fn mcgrew_viega() {
    let zeros = |count| "00".repeat(count);
    let (short, long) = (zeros(16), zeros(32));
    let iv = zeros(12);
    check_gcm(&short, &iv, "", "", "", "58e2fccefa7e3061367f1d57a4e7455a");
    check_gcm(
        &short,
        &iv,
        "",
        &zeros(16),
        "0388dace60b6a392f328c2b971b2fe78",
        "ab6e47d42cec13bdf53a67b21257bddf",
    );
    check_gcm(&long, &iv, "", "", "", "530f8afbc74536b9a963b4f1c4cb738b");
    check_gcm(
        &long,
        &iv,
        "",
        &zeros(16),
        "cea7403d4d606b6e074ec5d3baf39d18",
        "d0d1c8a799996bf0265b98b5d48ab919",
    );
    let key = "feffe9928665731c6d6a8f9467308308";
    let iv = "cafebabefacedbaddecaf888";
    let aad = "feedfacedeadbeeffeedfacedeadbeefabaddad2";
    let plain = "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
                 1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255";
    let cipher = "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e\
                  21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091473f5985";
    check_gcm(
        key,
        iv,
        "",
        plain,
        cipher,
        "4d5c2af327cd64a62cf35abd2ba6fab4",
    );
    let (plain, cipher) = (&plain[..120], &cipher[..120]);
    check_gcm(
        key,
        iv,
        aad,
        plain,
        cipher,
        "5bc94fbc3221a5db94fae95ae7121a47",
    );
    check_gcm(
        &key.repeat(2),
        iv,
        aad,
        plain,
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa\
         8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662",
        "76fc6ece0f4e1768cddf8853bb2d551b",
    );
}

/// RFC 3686 §6, test vectors 1 to 9: key, nonce (which is the salt) and initialisation vector.
#[test]
fn rfc_3686() {
    let single = b"Single block msg";
    for (key, salt, iv, plain, cipher) in [
        (
            "ae6852f8121067cc4bf7a5765577f39e",
            "00000030",
            "0000000000000000",
            single.to_vec(),
            "e4095d4fb7a7b3792d6175a3261311b8",
        ),
        (
            "7e24067817fae0d743d6ce1f32539163",
            "006cb6db",
            "c0543b59da48d90b",
            counting(0, 32),
            "5104a106168a72d9790d41ee8edad388eb2e1efc46da57c8fce630df9141be28",
        ),
        (
            "7691be035e5020a8ac6e618529f9a0dc",
            "00e0017b",
            "27777f3f4a1786f0",
            counting(0, 36),
            "c1cf48a89f2ffdd9cf4652e9efdb72d74540a42bde6d7836d59a5ceaaef3105325b2072f",
        ),
        (
            "16af5b145fc9f579c175f93e3bfb0eed863d06ccfdb78515",
            "00000048",
            "36733c147d6d93cb",
            single.to_vec(),
            "4b55384fe259c9c84e7935a003cbe928",
        ),
        (
            "7c5cb2401b3dc33c19e7340819e0f69c678c3db8e6f6a91a",
            "0096b03b",
            "020c6eadc2cb500d",
            counting(0, 32),
            "453243fc609b23327edfaafa7131cd9f8490701c5ad4a79cfc1fe0ff42f4fb00",
        ),
        (
            "02bf391ee8ecb159b959617b0965279bf59b60a786d3e0fe",
            "0007bdfd",
            "5cbd60278dcc0912",
            counting(0, 36),
            "96893fc55e5c722f540b7dd1ddf7e758d288bc95c69165884536c811662f2188abee0935",
        ),
        (
            "776beff2851db06f4c8a0542c8696f6c6a81af1eec96b4d37fc1d689e6c1c104",
            "00000060",
            "db5672c97aa8f0b2",
            single.to_vec(),
            "145ad01dbf824ec7560863dc71e3e0c0",
        ),
        (
            "f6d66d6bd52d59bb0796365879eff886c66dd51a5b6a99744b50590c87a23884",
            "00faac24",
            "c1585ef15a43d875",
            counting(0, 32),
            "f05e231b3894612c49ee000b804eb2a9b8306b508f839d6a5530831d9344af1c",
        ),
        (
            "ff7a617ce69148e4f1726e2f43581de2aa62d9f805532edff1eed687fb54153d",
            "001cc5b7",
            "51a51d70a1c11148",
            counting(0, 36),
            "eb6c52821d0bbbf7ce7594462aca4faab407df866569fd07f48cc0b583d6071f1ec0e6b8",
        ),
    ] {
        let encryption = match key.len() / 2 {
            16 => Encryption::AesCtr128,
            24 => Encryption::AesCtr192,
            _ => Encryption::AesCtr256,
        };
        let ctr = Ctr::new(encryption, &bytes(&[key, salt].concat())).unwrap();
        let iv = bytes(iv).try_into().unwrap();
        let mut text = plain.clone();
        ctr.apply(iv, &mut text).unwrap();
        assert_eq!(hex::encode(&text), cipher);
        ctr.apply(iv, &mut text).unwrap();
        assert_eq!(text, plain);
    }
}

/// RFC 3610 §8, packet vectors 1 to 4: nonces of 13 bytes, integrity values of 8.
#[test]
fn rfc_3610() {
    let key = "c0c1c2c3c4c5c6c7c8c9cacbcccdcecf";
    let ccm = Ccm::new(Encryption::AesCcm128Icv8, &bytes(&[key, "000000"].concat())).unwrap();
    for (nonce, aad, len, sealed) in [
        (
            "00000003020100a0a1a2a3a4a5",
            8,
            31,
            "588c979a61c663d2f066d0c2c0f989806d5f6b61dac38417e8d12cfdf926e0",
        ),
        (
            "00000004030201a0a1a2a3a4a5",
            8,
            32,
            "72c91a36e135f8cf291ca894085c87e3cc15c439c9e43a3ba091d56e10400916",
        ),
        (
            "00000005040302a0a1a2a3a4a5",
            8,
            33,
            "51b1e5f44a197d1da46b0f8e2d282ae871e838bb64da8596574adaa76fbd9fb0c5",
        ),
        (
            "00000006050403a0a1a2a3a4a5",
            12,
            31,
            "a28c6865939a9a79faaa5c4c2a9d4a91cdac8c96c861b9c9e61ef1",
        ),
    ] {
        let message = counting(0, len);
        let (aad, plain) = message.split_at(aad);
        let (nonce, mut text, mut tag) = (bytes(nonce), plain.to_vec(), [0; 8]);
        ccm.seal_with(&nonce, aad, &mut text, &mut tag).unwrap();
        assert_eq!(hex::encode([&text[..], &tag].concat()), sealed);
        ccm.open_with(&nonce, aad, &mut text, &tag).unwrap();
        assert_eq!(text, plain);
        tag[7] ^= 1;
        assert!(ccm.open_with(&nonce, aad, &mut text, &tag).is_none());
    }
}

fn check_hmac(integrity: Integrity, key: &[u8], message: &[u8], value: &str) {
    for engine in ENGINES {
        let made = hmac(engine, integrity, key, message);
        assert_eq!(hex::encode(made), value, "{engine:?} {integrity:?}");
    }
}

const WHAT: &[u8] = b"what do ya want for nothing?";

/// RFC 2202 §3, cases 1, 2, 3 and 6.
#[test]
fn rfc_2202() {
    let check = |key: &[u8], message: &[u8], value| {
        check_hmac(Integrity::HmacSha1_96, key, message, value);
    };
    check(
        &[0x0B; 20],
        b"Hi There",
        "b617318655057264e28bc0b6fb378c8ef146be00",
    );
    check(b"Jefe", WHAT, "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
    check(
        &[0xAA; 20],
        &[0xDD; 50],
        "125d7342b9ac11cd91a39af48aa17b4f63f175d3",
    );
    check(
        &[0xAA; 80],
        b"Test Using Larger Than Block-Size Key - Hash Key First",
        "aa4ae5e15272d00e95705637ce8a3b55ed402112",
    );
}

/// RFC 3566 §4.6, all seven, and RFC 4434 §2, keys of other lengths.
#[test]
fn rfc_3566() {
    let count: Vec<u8> = (0..34).collect();
    let zeros = [0; 1000];
    let key: &[u8] = &count[..16];
    let cases: [(&[u8], &str); 7] = [
        (&[], "75f0251d528ac01c4573dfd584d79f29"),
        (&count[..3], "5b376580ae2f19afe7219ceef172756f"),
        (&count[..16], "d2a246fa349b68a79998a4394ff7a263"),
        (&count[..20], "47f51b4564966215b8985c63055ed308"),
        (&count[..32], "f54f0ec8d2b9f3d36807734bd5283fd4"),
        (&count, "becbb3bccdb518a30677d5481fb6b4d8"),
        (&zeros, "f0dafee895db30253761103b5d84528f"),
    ];
    for (message, value) in cases {
        check_hmac(Integrity::AesXcbc96, key, message, value);
        // However it is cut.
        let xcbc = Xcbc::new(key).unwrap();
        for at in 0..message.len().min(40) {
            let (head, tail) = message.split_at(at);
            assert_eq!(hex::encode(xcbc.compute(&[head, &[], tail])), value);
        }
    }
    let long = [key, &[0xED, 0xCB]].concat();
    let cases: [(&[u8], &str); 3] = [
        (key, "47f51b4564966215b8985c63055ed308"),
        (&count[..10], "0fa087af7d866e7653434e602fdde835"),
        (&long, "8cd3c93ae598a9803006ffb67c40e9e4"),
    ];
    for (key, value) in cases {
        let made = Xcbc::with_any_key(key).compute(&[&count[..20]]);
        assert_eq!(hex::encode(made), value);
    }
    assert!(matches!(
        Xcbc::new(&long),
        Err(SuiteError::KeyLength { actual: 18, .. })
    ));
}

/// RFC 4231 §4.2 and §4.3.
#[test]
fn rfc_4231() {
    let cases: [(&[u8], &[u8], [&str; 3]); 2] = [
        (
            &[0x0B; 20],
            b"Hi There",
            [
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
                "afd03944d84895626b0825f4ab46907f15f9dadbe4101ec682aa034c7cebc59c\
                 faea9ea9076ede7f4af152e8b2fa9cb6",
                "87aa7cdea5ef619d4ff0b4241a1d6cb02379f4e2ce4ec2787ad0b30545e17cde\
                 daa833b7d6b8a702038b274eaea3f4e4be9d914eeb61f1702e696c203a126854",
            ],
        ),
        (
            b"Jefe",
            WHAT,
            [
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
                "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e\
                 8e2240ca5e69e2c78b3239ecfab21649",
                "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554\
                 9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
            ],
        ),
    ];
    let hashes = [
        Integrity::HmacSha256_128,
        Integrity::HmacSha384_192,
        Integrity::HmacSha512_256,
    ];
    for (key, message, values) in cases {
        for (integrity, value) in hashes.into_iter().zip(values) {
            check_hmac(integrity, key, message, value);
        }
    }
}

#[test]
fn a_key_of_another_size_of_aes_is_refused() {
    for (encryption, right) in [
        (Encryption::AesGcm128, 16),
        (Encryption::AesGcm192, 24),
        (Encryption::AesGcm256, 32),
    ] {
        for (engine, len) in ENGINES
            .into_iter()
            .flat_map(|e| [0, 16, 24, 32].map(|len| (e, len)))
        {
            let made = Aead::new(encryption, &counting(0, len), engine);
            assert_eq!(
                made.is_ok(),
                len == right,
                "{encryption:?}, {engine:?}, {len}"
            );
        }
    }
}
