//! Numbers of keys and signatures on our side of the interface, compared with OpenSSL's headers. Those of ciphers
//! are compared by `ibc-provider`.

use std::fmt::Write as _;
use std::process::Command;

use provider_abi::abi::{
    self, data_type, evp_mode, key_selection, keymgmt_function as keymgmt, mac_function as mac,
    signature_function as signature,
};

#[test]
fn constants_are_those_of_the_headers() {
    let functions = [
        ("OSSL_OP_KEYMGMT", abi::OPERATION_KEYMGMT),
        ("OSSL_OP_SIGNATURE", abi::OPERATION_SIGNATURE),
        ("OSSL_OP_MAC", abi::OPERATION_MAC),
        ("OSSL_FUNC_MAC_NEWCTX", mac::NEWCTX),
        ("OSSL_FUNC_MAC_DUPCTX", mac::DUPCTX),
        ("OSSL_FUNC_MAC_FREECTX", mac::FREECTX),
        ("OSSL_FUNC_MAC_INIT", mac::INIT),
        ("OSSL_FUNC_MAC_UPDATE", mac::UPDATE),
        ("OSSL_FUNC_MAC_FINAL", mac::FINAL),
        ("OSSL_FUNC_MAC_GET_CTX_PARAMS", mac::GET_CTX_PARAMS),
        ("OSSL_FUNC_MAC_SET_CTX_PARAMS", mac::SET_CTX_PARAMS),
        (
            "OSSL_FUNC_MAC_GETTABLE_CTX_PARAMS",
            mac::GETTABLE_CTX_PARAMS,
        ),
        (
            "OSSL_FUNC_MAC_SETTABLE_CTX_PARAMS",
            mac::SETTABLE_CTX_PARAMS,
        ),
        ("OSSL_FUNC_KEYMGMT_NEW", keymgmt::NEW),
        ("OSSL_FUNC_KEYMGMT_FREE", keymgmt::FREE),
        ("OSSL_FUNC_KEYMGMT_GET_PARAMS", keymgmt::GET_PARAMS),
        (
            "OSSL_FUNC_KEYMGMT_GETTABLE_PARAMS",
            keymgmt::GETTABLE_PARAMS,
        ),
        (
            "OSSL_FUNC_KEYMGMT_QUERY_OPERATION_NAME",
            keymgmt::QUERY_OPERATION_NAME,
        ),
        ("OSSL_FUNC_KEYMGMT_HAS", keymgmt::HAS),
        ("OSSL_FUNC_KEYMGMT_MATCH", keymgmt::MATCH),
        ("OSSL_FUNC_KEYMGMT_IMPORT", keymgmt::IMPORT),
        ("OSSL_FUNC_KEYMGMT_IMPORT_TYPES", keymgmt::IMPORT_TYPES),
        (
            "OSSL_KEYMGMT_SELECT_PRIVATE_KEY",
            key_selection::PRIVATE_KEY,
        ),
        ("OSSL_KEYMGMT_SELECT_PUBLIC_KEY", key_selection::PUBLIC_KEY),
        ("OSSL_FUNC_SIGNATURE_NEWCTX", signature::NEWCTX),
        ("OSSL_FUNC_SIGNATURE_SIGN_INIT", signature::SIGN_INIT),
        ("OSSL_FUNC_SIGNATURE_SIGN", signature::SIGN),
        ("OSSL_FUNC_SIGNATURE_VERIFY_INIT", signature::VERIFY_INIT),
        ("OSSL_FUNC_SIGNATURE_VERIFY", signature::VERIFY),
        (
            "OSSL_FUNC_SIGNATURE_DIGEST_SIGN_INIT",
            signature::DIGEST_SIGN_INIT,
        ),
        (
            "OSSL_FUNC_SIGNATURE_DIGEST_SIGN_UPDATE",
            signature::DIGEST_SIGN_UPDATE,
        ),
        (
            "OSSL_FUNC_SIGNATURE_DIGEST_SIGN_FINAL",
            signature::DIGEST_SIGN_FINAL,
        ),
        (
            "OSSL_FUNC_SIGNATURE_DIGEST_VERIFY_INIT",
            signature::DIGEST_VERIFY_INIT,
        ),
        (
            "OSSL_FUNC_SIGNATURE_DIGEST_VERIFY_UPDATE",
            signature::DIGEST_VERIFY_UPDATE,
        ),
        (
            "OSSL_FUNC_SIGNATURE_DIGEST_VERIFY_FINAL",
            signature::DIGEST_VERIFY_FINAL,
        ),
        ("OSSL_FUNC_SIGNATURE_FREECTX", signature::FREECTX),
        ("OSSL_FUNC_SIGNATURE_DUPCTX", signature::DUPCTX),
        (
            "OSSL_FUNC_SIGNATURE_GET_CTX_PARAMS",
            signature::GET_CTX_PARAMS,
        ),
        (
            "OSSL_FUNC_SIGNATURE_GETTABLE_CTX_PARAMS",
            signature::GETTABLE_CTX_PARAMS,
        ),
        (
            "OSSL_FUNC_SIGNATURE_SET_CTX_PARAMS",
            signature::SET_CTX_PARAMS,
        ),
        (
            "OSSL_FUNC_SIGNATURE_SETTABLE_CTX_PARAMS",
            signature::SETTABLE_CTX_PARAMS,
        ),
    ]
    .map(|(name, value)| (name, u64::try_from(value).unwrap()));
    let numbers = [
        ("OSSL_PARAM_UTF8_STRING", data_type::UTF8_STRING),
        ("EVP_CIPH_GCM_MODE", evp_mode::GCM),
    ]
    .map(|(name, value)| (name, u64::from(value)));
    // The types of the functions: each pointer of ours must be one that OpenSSL would call.
    let types = [
        ("mac_newctx", "void *(*)(void *)"),
        (
            "mac_init",
            "int (*)(void *, const unsigned char *, size_t, const OSSL_PARAM *)",
        ),
        (
            "mac_update",
            "int (*)(void *, const unsigned char *, size_t)",
        ),
        (
            "mac_final",
            "int (*)(void *, unsigned char *, size_t *, size_t)",
        ),
        ("keymgmt_has", "int (*)(const void *, int)"),
        ("keymgmt_match", "int (*)(const void *, const void *, int)"),
        ("keymgmt_import", "int (*)(void *, int, const OSSL_PARAM *)"),
        ("keymgmt_import_types", "const OSSL_PARAM *(*)(int)"),
        ("keymgmt_query_operation_name", "const char *(*)(int)"),
        ("signature_newctx", "void *(*)(void *, const char *)"),
        (
            "signature_sign_init",
            "int (*)(void *, void *, const OSSL_PARAM *)",
        ),
        (
            "signature_digest_sign_init",
            "int (*)(void *, const char *, void *, const OSSL_PARAM *)",
        ),
        (
            "signature_digest_sign_update",
            "int (*)(void *, const unsigned char *, size_t)",
        ),
        (
            "signature_digest_sign_final",
            "int (*)(void *, unsigned char *, size_t *, size_t)",
        ),
        (
            "signature_digest_verify_final",
            "int (*)(void *, const unsigned char *, size_t)",
        ),
        (
            "signature_sign",
            "int (*)(void *, unsigned char *, size_t *, size_t, const unsigned char *, size_t)",
        ),
        (
            "signature_verify",
            "int (*)(void *, const unsigned char *, size_t, const unsigned char *, size_t)",
        ),
    ];
    let mut source = String::from(
        "#include <openssl/core_dispatch.h>\n#include <openssl/evp.h>\n#include <openssl/params.h>\n",
    );
    for (name, value) in functions.into_iter().chain(numbers) {
        writeln!(
            source,
            "_Static_assert((size_t)({name}) == {value}u, \"{name}\");"
        )
        .unwrap();
    }
    for (name, ours) in types {
        writeln!(
            source,
            "_Static_assert(_Generic((OSSL_FUNC_{name}_fn *)0, {ours}: 1, default: 0), \"{name}\");"
        )
        .unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("constants.c");
    std::fs::write(&file, source).unwrap();
    let cc = Command::new("cc")
        .args(["-std=c11", "-Werror", "-fsyntax-only"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(
        cc.status.success(),
        "{}",
        String::from_utf8_lossy(&cc.stderr)
    );
}
