//! Numbers and layouts of our side of the interface, compared with OpenSSL's headers.

use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::process::Command;

use ibc_provider::abi::{
    self, Algorithm, Dispatch, Item, Param, cipher_function as cipher, core_function as core,
    data_type, evp_mode, provider_function as provider,
};

#[test]
fn constants_are_those_of_the_headers() {
    let numbers = [
        ("OSSL_PARAM_INTEGER", data_type::INTEGER),
        ("OSSL_PARAM_UNSIGNED_INTEGER", data_type::UNSIGNED_INTEGER),
        ("OSSL_PARAM_OCTET_STRING", data_type::OCTET_STRING),
        ("OSSL_PARAM_UTF8_PTR", data_type::UTF8_PTR),
        ("OSSL_PARAM_OCTET_PTR", data_type::OCTET_PTR),
        ("EVP_CIPH_ECB_MODE", evp_mode::ECB),
        ("EVP_CIPH_CBC_MODE", evp_mode::CBC),
        ("EVP_CIPH_OFB_MODE", evp_mode::OFB),
        ("EVP_CIPH_CTR_MODE", evp_mode::CTR),
    ]
    .map(|(name, value)| (name, u64::from(value)));
    let functions = [
        ("OSSL_FUNC_CORE_GET_PARAMS", core::GET_PARAMS),
        ("OSSL_FUNC_CORE_NEW_ERROR", core::NEW_ERROR),
        ("OSSL_FUNC_CORE_SET_ERROR_DEBUG", core::SET_ERROR_DEBUG),
        ("OSSL_FUNC_CORE_VSET_ERROR", core::VSET_ERROR),
        ("OSSL_FUNC_PROVIDER_TEARDOWN", provider::TEARDOWN),
        (
            "OSSL_FUNC_PROVIDER_GETTABLE_PARAMS",
            provider::GETTABLE_PARAMS,
        ),
        ("OSSL_FUNC_PROVIDER_GET_PARAMS", provider::GET_PARAMS),
        (
            "OSSL_FUNC_PROVIDER_QUERY_OPERATION",
            provider::QUERY_OPERATION,
        ),
        (
            "OSSL_FUNC_PROVIDER_GET_REASON_STRINGS",
            provider::GET_REASON_STRINGS,
        ),
        ("OSSL_OP_CIPHER", abi::OPERATION_CIPHER),
        ("OSSL_FUNC_CIPHER_NEWCTX", cipher::NEWCTX),
        ("OSSL_FUNC_CIPHER_ENCRYPT_INIT", cipher::ENCRYPT_INIT),
        ("OSSL_FUNC_CIPHER_DECRYPT_INIT", cipher::DECRYPT_INIT),
        ("OSSL_FUNC_CIPHER_UPDATE", cipher::UPDATE),
        ("OSSL_FUNC_CIPHER_FINAL", cipher::FINAL),
        ("OSSL_FUNC_CIPHER_CIPHER", cipher::CIPHER),
        ("OSSL_FUNC_CIPHER_FREECTX", cipher::FREECTX),
        ("OSSL_FUNC_CIPHER_DUPCTX", cipher::DUPCTX),
        ("OSSL_FUNC_CIPHER_GET_PARAMS", cipher::GET_PARAMS),
        ("OSSL_FUNC_CIPHER_GET_CTX_PARAMS", cipher::GET_CTX_PARAMS),
        ("OSSL_FUNC_CIPHER_SET_CTX_PARAMS", cipher::SET_CTX_PARAMS),
        ("OSSL_FUNC_CIPHER_GETTABLE_PARAMS", cipher::GETTABLE_PARAMS),
        (
            "OSSL_FUNC_CIPHER_GETTABLE_CTX_PARAMS",
            cipher::GETTABLE_CTX_PARAMS,
        ),
        (
            "OSSL_FUNC_CIPHER_SETTABLE_CTX_PARAMS",
            cipher::SETTABLE_CTX_PARAMS,
        ),
    ]
    .map(|(name, value)| (name, u64::try_from(value).unwrap()));
    let layouts = [
        ("sizeof(OSSL_PARAM)", size_of::<Param>()),
        (
            "offsetof(OSSL_PARAM, data_type)",
            offset_of!(Param, data_type),
        ),
        ("offsetof(OSSL_PARAM, data)", offset_of!(Param, data)),
        (
            "offsetof(OSSL_PARAM, data_size)",
            offset_of!(Param, data_size),
        ),
        (
            "offsetof(OSSL_PARAM, return_size)",
            offset_of!(Param, return_size),
        ),
        ("OSSL_PARAM_UNMODIFIED", data_type::UNMODIFIED),
        ("sizeof(OSSL_DISPATCH)", size_of::<Dispatch>()),
        (
            "offsetof(OSSL_DISPATCH, function)",
            offset_of!(Dispatch, function),
        ),
        ("sizeof(OSSL_ITEM)", size_of::<Item>()),
        ("offsetof(OSSL_ITEM, ptr)", offset_of!(Item, text)),
        ("sizeof(OSSL_ALGORITHM)", size_of::<Algorithm>()),
        (
            "offsetof(OSSL_ALGORITHM, property_definition)",
            offset_of!(Algorithm, properties),
        ),
        (
            "offsetof(OSSL_ALGORITHM, implementation)",
            offset_of!(Algorithm, implementation),
        ),
        (
            "offsetof(OSSL_ALGORITHM, algorithm_description)",
            offset_of!(Algorithm, description),
        ),
    ]
    .map(|(name, value)| (name, value as u64));

    let mut source = String::from(
        "#include <stddef.h>\n#include <openssl/core_dispatch.h>\n#include <openssl/core_names.h>\n\
         #include <openssl/evp.h>\n#include <openssl/params.h>\n",
    );
    for (name, value) in numbers.into_iter().chain(functions).chain(layouts) {
        writeln!(
            source,
            "_Static_assert((size_t)({name}) == {value}u, \"{name}\");"
        )
        .unwrap();
    }
    // The types of the functions: each pointer of ours must be one that OpenSSL would call.
    source.push_str(
        "OSSL_FUNC_cipher_update_fn *update; int (*ours)(void *, unsigned char *, size_t *, size_t,\n\
         const unsigned char *, size_t);\n\
         void check(void) { update = ours; }\n",
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("constants.c");
    std::fs::write(&file, source).unwrap();
    let cc = Command::new("cc")
        .args(["-Werror", "-fsyntax-only"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(
        cc.status.success(),
        "{}",
        String::from_utf8_lossy(&cc.stderr)
    );
}
