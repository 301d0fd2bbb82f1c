//! Numbers of the IANA registry "Internet Key Exchange Version 2 (IKEv2) Parameters".
//!
//! Each is a newtype, so a value that we do not know survives decoding and prints as a number.

use std::fmt;

macro_rules! registry {
    ($(#[$doc:meta])* $name:ident($int:ty) { $($value:ident $(($shown:literal))? = $number:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $int);

        impl $name {
            $(
                #[doc = concat!("Registered as ", $number, ".")]
                pub const $value: Self = Self($number);
            )*

            /// The registered name, if we know it.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(registry!(@name $value $($shown)?)),)*
                    _ => None,
                }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "{}({})", stringify!($name), self.0),
                }
            }
        }
    };
    (@name $value:ident) => {
        stringify!($value)
    };
    // Registered names may begin with a digit.
    (@name $value:ident $shown:literal) => {
        $shown
    };
}

registry! {
    /// Exchange types (RFC 7296 §3.1, RFC 5723, RFC 9242, RFC 9370).
    ExchangeType(u8) {
        IKE_SA_INIT = 34,
        IKE_AUTH = 35,
        CREATE_CHILD_SA = 36,
        INFORMATIONAL = 37,
        IKE_SESSION_RESUME = 38,
        IKE_INTERMEDIATE = 43,
        IKE_FOLLOWUP_KE = 44,
    }
}

registry! {
    /// Payload types (RFC 7296 §3.2, RFC 7383 for SKF, RFC 8019 for puzzles).
    PayloadType(u8) {
        NONE = 0,
        SA = 33,
        KE = 34,
        IDI = 35,
        IDR = 36,
        CERT = 37,
        CERTREQ = 38,
        AUTH = 39,
        NONCE = 40,
        NOTIFY = 41,
        DELETE = 42,
        VENDOR = 43,
        TSI = 44,
        TSR = 45,
        SK = 46,
        CP = 47,
        EAP = 48,
        SKF = 53,
        PUZZLE_SOLUTION = 54,
    }
}

registry! {
    /// Security protocols (RFC 7296 §3.3.1).
    Protocol(u8) {
        NONE = 0,
        IKE = 1,
        AH = 2,
        ESP = 3,
    }
}

registry! {
    /// Transform types (RFC 7296 §3.3.2, RFC 9370 §2.2.3 for the additional key exchanges).
    TransformType(u8) {
        ENCR = 1,
        PRF = 2,
        INTEG = 3,
        KE = 4,
        ESN = 5,
        ADDKE1 = 6,
        ADDKE2 = 7,
        ADDKE3 = 8,
        ADDKE4 = 9,
        ADDKE5 = 10,
        ADDKE6 = 11,
        ADDKE7 = 12,
    }
}

registry! {
    /// Encryption algorithms that we know by name.
    EncrId(u16) {
        DES_IV64 = 1,
        DES = 2,
        DES_3("3DES") = 3,
        RC5 = 4,
        IDEA = 5,
        CAST = 6,
        BLOWFISH = 7,
        NULL = 11,
        AES_CBC = 12,
        AES_CTR = 13,
        AES_CCM_8 = 14,
        AES_CCM_12 = 15,
        AES_CCM_16 = 16,
        AES_GCM_8 = 18,
        AES_GCM_12 = 19,
        AES_GCM_16 = 20,
        NULL_AUTH_AES_GMAC = 21,
        CAMELLIA_CBC = 23,
        CAMELLIA_CTR = 24,
        CAMELLIA_CCM_8 = 25,
        CAMELLIA_CCM_12 = 26,
        CAMELLIA_CCM_16 = 27,
        CHACHA20_POLY1305 = 28,
        AES_CCM_8_IIV = 29,
        AES_GCM_16_IIV = 30,
        CHACHA20_POLY1305_IIV = 31,
    }
}

registry! {
    /// Pseudorandom functions.
    PrfId(u16) {
        HMAC_MD5 = 1,
        HMAC_SHA1 = 2,
        HMAC_TIGER = 3,
        AES128_XCBC = 4,
        HMAC_SHA2_256 = 5,
        HMAC_SHA2_384 = 6,
        HMAC_SHA2_512 = 7,
        AES128_CMAC = 8,
    }
}

registry! {
    /// Integrity algorithms.
    IntegId(u16) {
        NONE = 0,
        HMAC_MD5_96 = 1,
        HMAC_SHA1_96 = 2,
        DES_MAC = 3,
        KPDK_MD5 = 4,
        AES_XCBC_96 = 5,
        HMAC_MD5_128 = 6,
        HMAC_SHA1_160 = 7,
        AES_CMAC_96 = 8,
        AES_128_GMAC = 9,
        AES_192_GMAC = 10,
        AES_256_GMAC = 11,
        HMAC_SHA2_256_128 = 12,
        HMAC_SHA2_384_192 = 13,
        HMAC_SHA2_512_256 = 14,
    }
}

registry! {
    /// Key exchange methods, also of the additional key exchanges.
    KeyExchangeId(u16) {
        NONE = 0,
        MODP_768 = 1,
        MODP_1024 = 2,
        MODP_1536 = 5,
        MODP_2048 = 14,
        MODP_3072 = 15,
        MODP_4096 = 16,
        MODP_6144 = 17,
        MODP_8192 = 18,
        ECP_256 = 19,
        ECP_384 = 20,
        ECP_521 = 21,
        MODP_1024_S160 = 22,
        MODP_2048_S224 = 23,
        MODP_2048_S256 = 24,
        ECP_192 = 25,
        ECP_224 = 26,
        BRAINPOOL_P224R1 = 27,
        BRAINPOOL_P256R1 = 28,
        BRAINPOOL_P384R1 = 29,
        BRAINPOOL_P512R1 = 30,
        CURVE25519 = 31,
        CURVE448 = 32,
        ML_KEM_512 = 35,
        ML_KEM_768 = 36,
        ML_KEM_1024 = 37,
    }
}

registry! {
    /// Identification types (RFC 7296 §3.5).
    IdType(u8) {
        IPV4_ADDR = 1,
        FQDN = 2,
        RFC822_ADDR = 3,
        IPV6_ADDR = 5,
        DER_ASN1_DN = 9,
        DER_ASN1_GN = 10,
        KEY_ID = 11,
    }
}

registry! {
    /// Certificate encodings (RFC 7296 §3.6).
    CertEncoding(u8) {
        X509_SIGNATURE = 4,
        CRL = 7,
        X509_HASH_AND_URL = 12,
        OCSP_CONTENT = 14,
    }
}

registry! {
    /// Authentication methods (RFC 7296 §3.8, RFC 4754, RFC 7427).
    AuthMethod(u8) {
        RSA_SIGNATURE = 1,
        SHARED_KEY = 2,
        ECDSA_P256_SHA256 = 9,
        ECDSA_P384_SHA384 = 10,
        ECDSA_P521_SHA512 = 11,
        DIGITAL_SIGNATURE = 14,
    }
}

registry! {
    /// Hash algorithms of signatures (RFC 7427 §7, RFC 8420 for "Identity").
    HashId(u16) {
        SHA1 = 1,
        SHA2_256 = 2,
        SHA2_384 = 3,
        SHA2_512 = 4,
        IDENTITY = 5,
    }
}

registry! {
    /// Configuration types (RFC 7296 §3.15).
    CfgType(u8) {
        REQUEST = 1,
        REPLY = 2,
        SET = 3,
        ACK = 4,
    }
}

registry! {
    /// Configuration attributes (RFC 7296 §3.15.1).
    AttributeType(u16) {
        INTERNAL_IP4_ADDRESS = 1,
        INTERNAL_IP4_NETMASK = 2,
        INTERNAL_IP4_DNS = 3,
        APPLICATION_VERSION = 7,
        INTERNAL_IP6_ADDRESS = 8,
        INTERNAL_IP6_DNS = 10,
        INTERNAL_IP4_SUBNET = 13,
        INTERNAL_IP6_SUBNET = 15,
    }
}

registry! {
    /// Notify message types: errors below 16384, status above (RFC 7296 §3.10.1).
    NotifyType(u16) {
        UNSUPPORTED_CRITICAL_PAYLOAD = 1,
        INVALID_IKE_SPI = 4,
        INVALID_MAJOR_VERSION = 5,
        INVALID_SYNTAX = 7,
        INVALID_MESSAGE_ID = 9,
        INVALID_SPI = 11,
        NO_PROPOSAL_CHOSEN = 14,
        INVALID_KE_PAYLOAD = 17,
        AUTHENTICATION_FAILED = 24,
        SINGLE_PAIR_REQUIRED = 34,
        NO_ADDITIONAL_SAS = 35,
        INTERNAL_ADDRESS_FAILURE = 36,
        FAILED_CP_REQUIRED = 37,
        TS_UNACCEPTABLE = 38,
        INVALID_SELECTORS = 39,
        UNACCEPTABLE_ADDRESSES = 40,
        UNEXPECTED_NAT_DETECTED = 41,
        TEMPORARY_FAILURE = 43,
        CHILD_SA_NOT_FOUND = 44,
        STATE_NOT_FOUND = 47,
        TS_MAX_QUEUE = 48,
        INITIAL_CONTACT = 16384,
        SET_WINDOW_SIZE = 16385,
        ADDITIONAL_TS_POSSIBLE = 16386,
        IPCOMP_SUPPORTED = 16387,
        NAT_DETECTION_SOURCE_IP = 16388,
        NAT_DETECTION_DESTINATION_IP = 16389,
        COOKIE = 16390,
        USE_TRANSPORT_MODE = 16391,
        HTTP_CERT_LOOKUP_SUPPORTED = 16392,
        REKEY_SA = 16393,
        ESP_TFC_PADDING_NOT_SUPPORTED = 16394,
        NON_FIRST_FRAGMENTS_ALSO = 16395,
        MOBIKE_SUPPORTED = 16396,
        ADDITIONAL_IP4_ADDRESS = 16397,
        ADDITIONAL_IP6_ADDRESS = 16398,
        NO_ADDITIONAL_ADDRESSES = 16399,
        UPDATE_SA_ADDRESSES = 16400,
        COOKIE2 = 16401,
        NO_NATS_ALLOWED = 16402,
        MULTIPLE_AUTH_SUPPORTED = 16404,
        TICKET_LT_OPAQUE = 16409,
        TICKET_REQUEST = 16410,
        TICKET_ACK = 16411,
        TICKET_NACK = 16412,
        TICKET_OPAQUE = 16413,
        EAP_ONLY_AUTHENTICATION = 16417,
        CHILDLESS_IKEV2_SUPPORTED = 16418,
        QUICK_CRASH_DETECTION = 16419,
        IKEV2_FRAGMENTATION_SUPPORTED = 16430,
        SIGNATURE_HASH_ALGORITHMS = 16431,
        PUZZLE = 16434,
        USE_PPK = 16435,
        PPK_IDENTITY = 16436,
        NO_PPK_AUTH = 16437,
        INTERMEDIATE_EXCHANGE_SUPPORTED = 16438,
        ADDITIONAL_KEY_EXCHANGE = 16441,
        SA_RESOURCE_INFO = 16444,
    }
}

impl ExchangeType {
    /// Whether the exchange makes an IKE SA out of nothing (RFC 7296 §1.2, RFC 5723 §4.3).
    pub const fn is_first(self) -> bool {
        matches!(self, Self::IKE_SA_INIT | Self::IKE_SESSION_RESUME)
    }
}

impl NotifyType {
    /// Whether the type reports an error (RFC 7296 §3.10.1).
    pub const fn is_error(self) -> bool {
        self.0 < 16384
    }
}
