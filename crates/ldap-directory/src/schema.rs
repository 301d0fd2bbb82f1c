//! Attribute types and object classes, and which of them an asker may see.

use std::sync::LazyLock;

use pki::oid::ExtensionArc;

use crate::name::{Name, prepared};

/// What an asker may see, by the access rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Contact data of colleagues, units, certificates and revocation lists.
    pub contacts: bool,
    /// Clearance and roles.
    pub rights: bool,
}

impl View {
    pub(crate) const fn has(self, class: Class) -> bool {
        match class {
            Class::Public => true,
            Class::Contact => self.contacts,
            Class::Rights => self.rights && self.contacts,
        }
    }
}

/// Who may see an entry or attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Everybody, before a bind too.
    Public,
    /// As [`View::contacts`].
    Contact,
    /// As [`View::rights`].
    Rights,
}

/// How values of a type are compared, and what the schema calls that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syntax {
    /// Texts, without regard to case and to repeated spaces.
    Text,
    /// The same of object identifiers and their short names.
    Oid,
    Dn,
    Integer,
    Uuid,
    /// Certificates and lists, which nothing is compared with.
    Binary,
}

impl Syntax {
    /// The form in which a value is compared. `None`: it has no such form, so that nothing matches it.
    pub(crate) fn prepared(self, value: &str) -> Option<String> {
        match self {
            Self::Text | Self::Oid | Self::Uuid => Some(prepared(value)),
            Self::Dn => Name::parse(value).ok().map(|name| name.key()),
            Self::Integer => value.trim().parse::<i64>().ok().map(|n| n.to_string()),
            Self::Binary => None,
        }
    }

    const fn definition(self) -> &'static str {
        match self {
            Self::Text => {
                "EQUALITY caseIgnoreMatch SUBSTR caseIgnoreSubstringsMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.15"
            }
            Self::Oid => "EQUALITY objectIdentifierMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.38",
            Self::Dn => "EQUALITY distinguishedNameMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.12",
            Self::Integer => {
                "EQUALITY integerMatch ORDERING integerOrderingMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.27"
            }
            Self::Uuid => "EQUALITY UUIDMatch SYNTAX 1.3.6.1.1.16.1",
            Self::Binary => "SYNTAX 1.3.6.1.4.1.1466.115.121.1.8",
        }
    }
}

/// An attribute type.
#[derive(Debug)]
pub(crate) struct Attribute {
    pub(crate) name: &'static str,
    /// Other names.
    aliases: &'static [&'static str],
    oid: Oid,
    pub(crate) syntax: Syntax,
    pub(crate) class: Class,
    /// Returned only if it is requested by name or with `+` (RFC 3673).
    pub(crate) operational: bool,
}

/// An identifier: of a standard, or a number under the installation's arc.
#[derive(Clone, Copy, Debug)]
enum Oid {
    Standard(&'static str),
    Own(u32),
}

/// Number of LDAP attribute types under the installation's arc, and of object classes.
const ATTRIBUTES: u32 = 5;
const CLASSES: u32 = 6;

impl Oid {
    fn text(self, branch: u32) -> String {
        match self {
            Self::Standard(text) => text.to_owned(),
            Self::Own(number) => {
                let policy = ExtensionArc::default().security_policy.to_string();
                let arc = policy
                    .rsplit_once('.')
                    .map_or(policy.as_str(), |(arc, _)| arc);
                format!("{arc}.{branch}.{number}")
            }
        }
    }
}

impl Attribute {
    pub(crate) fn oid(&self) -> String {
        self.oid.text(ATTRIBUTES)
    }

    /// The name under which values are sent: binary ones with their option (RFC 4523, section 2).
    pub(crate) fn sent_name(&self) -> String {
        match self.syntax {
            Syntax::Binary => format!("{};binary", self.name),
            _ => self.name.to_owned(),
        }
    }

    /// The description for the subschema (RFC 4512, section 4.1.2).
    fn description(&self) -> String {
        let names = std::iter::once(&self.name).chain(self.aliases);
        let names = names.map(|name| format!("'{name}'")).collect::<Vec<_>>();
        let names = match names.as_slice() {
            [one] => one.clone(),
            several => format!("( {} )", several.join(" ")),
        };
        let usage = match self.operational {
            true => " NO-USER-MODIFICATION USAGE directoryOperation",
            false => "",
        };
        let (oid, syntax) = (self.oid(), self.syntax.definition());
        format!("( {oid} NAME {names} {syntax}{usage} )")
    }
}

macro_rules! attributes {
    ($($constant:ident = $name:literal $aliases:expr, $oid:expr, $syntax:ident, $class:ident, $operational:literal;)+) => {
        $(pub(crate) static $constant: Attribute = Attribute {
            name: $name,
            aliases: &$aliases,
            oid: $oid,
            syntax: Syntax::$syntax,
            class: Class::$class,
            operational: $operational,
        };)+
        static ALL: &[&Attribute] = &[$(&$constant),+];
    };
}

// RFC 4512 (operational), 4519, 2798, 4523, 4530, 5020; memberOf as OpenLDAP and others have it.
attributes! {
    OBJECT_CLASS = "objectClass" [], Oid::Standard("2.5.4.0"), Oid, Public, false;
    CN = "cn" ["commonName"], Oid::Standard("2.5.4.3"), Text, Contact, false;
    SN = "sn" ["surname"], Oid::Standard("2.5.4.4"), Text, Contact, false;
    GIVEN_NAME = "givenName" ["gn"], Oid::Standard("2.5.4.42"), Text, Contact, false;
    DISPLAY_NAME = "displayName" [], Oid::Standard("2.16.840.1.113730.3.1.241"), Text, Contact, false;
    UID = "uid" ["userid"], Oid::Standard("0.9.2342.19200300.100.1.1"), Text, Contact, false;
    EMPLOYEE_NUMBER = "employeeNumber" [], Oid::Standard("2.16.840.1.113730.3.1.3"), Text, Contact, false;
    MAIL = "mail" ["rfc822Mailbox"], Oid::Standard("0.9.2342.19200300.100.1.3"), Text, Contact, false;
    O = "o" ["organizationName"], Oid::Standard("2.5.4.10"), Text, Contact, false;
    OU = "ou" ["organizationalUnitName"], Oid::Standard("2.5.4.11"), Text, Contact, false;
    DC = "dc" ["domainComponent"], Oid::Standard("0.9.2342.19200300.100.1.25"), Text, Contact, false;
    MEMBER = "member" [], Oid::Standard("2.5.4.31"), Dn, Contact, false;
    MEMBER_OF = "memberOf" [], Oid::Standard("1.2.840.113556.1.2.102"), Dn, Contact, false;
    USER_CERTIFICATE = "userCertificate" [], Oid::Standard("2.5.4.36"), Binary, Contact, false;
    CA_CERTIFICATE = "cACertificate" [], Oid::Standard("2.5.4.37"), Binary, Contact, false;
    REVOCATION_LIST = "certificateRevocationList" [], Oid::Standard("2.5.4.39"), Binary, Contact, false;
    CLEARANCE = "cordonClearance" [], Oid::Own(1), Integer, Rights, false;
    ROLE = "cordonRole" [], Oid::Own(2), Text, Rights, false;
    ENTRY_UUID = "entryUUID" [], Oid::Standard("1.3.6.1.1.16.4"), Uuid, Public, true;
    ENTRY_DN = "entryDN" [], Oid::Standard("1.3.6.1.1.20"), Dn, Public, true;
    STRUCTURAL_CLASS = "structuralObjectClass" [], Oid::Standard("2.5.21.9"), Oid, Public, true;
    SUBSCHEMA_SUBENTRY = "subschemaSubentry" [], Oid::Standard("2.5.18.10"), Dn, Public, true;
    NAMING_CONTEXTS = "namingContexts" [], Oid::Standard("1.3.6.1.4.1.1466.101.120.5"), Dn, Public, true;
    SUPPORTED_VERSION = "supportedLDAPVersion" [], Oid::Standard("1.3.6.1.4.1.1466.101.120.15"), Integer, Public, true;
    SUPPORTED_CONTROL = "supportedControl" [], Oid::Standard("1.3.6.1.4.1.1466.101.120.13"), Oid, Public, true;
    SUPPORTED_EXTENSION = "supportedExtension" [], Oid::Standard("1.3.6.1.4.1.1466.101.120.7"), Oid, Public, true;
    SUPPORTED_FEATURES = "supportedFeatures" [], Oid::Standard("1.3.6.1.4.1.4203.1.3.5"), Oid, Public, true;
    SUPPORTED_SASL = "supportedSASLMechanisms" [], Oid::Standard("1.3.6.1.4.1.1466.101.120.14"), Text, Public, true;
    VENDOR_NAME = "vendorName" [], Oid::Standard("1.3.6.1.1.4"), Text, Public, true;
    ATTRIBUTE_TYPES = "attributeTypes" [], Oid::Standard("2.5.21.5"), Text, Public, true;
    OBJECT_CLASSES = "objectClasses" [], Oid::Standard("2.5.21.6"), Text, Public, true;
}

/// The attribute type of a name, an alias or an object identifier. Options other than `;binary` name nothing that is here.
pub(crate) fn by_name(name: &str) -> Option<&'static Attribute> {
    let (name, is_binary) = match name.split_once(';') {
        Some((name, option)) if option.eq_ignore_ascii_case("binary") => (name, true),
        Some(_) => return None,
        None => (name, false),
    };
    let is = |known: &&&Attribute| {
        known.name.eq_ignore_ascii_case(name)
            || known
                .aliases
                .iter()
                .any(|alias| alias.eq_ignore_ascii_case(name))
            || name.starts_with(|c: char| c.is_ascii_digit()) && known.oid() == name
    };
    let known = ALL.iter().find(is).copied()?;
    (!is_binary || known.syntax == Syntax::Binary).then_some(known)
}

/// Object classes: identifier, name, superior, kind, attributes that must and may be there.
type ObjectClass = (
    Oid,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
);

#[rustfmt::skip]
const CLASSES_SHOWN: &[ObjectClass] = &[
    (Oid::Standard("2.5.6.0"), "top", "", "ABSTRACT", "objectClass", ""),
    (Oid::Standard("2.5.6.4"), "organization", "top", "STRUCTURAL", "o", ""),
    (Oid::Standard("1.3.6.1.4.1.1466.344"), "dcObject", "top", "AUXILIARY", "dc", ""),
    (Oid::Standard("2.5.6.5"), "organizationalUnit", "top", "STRUCTURAL", "ou", ""),
    (Oid::Standard("2.5.6.6"), "person", "top", "STRUCTURAL", "sn $ cn", ""),
    (Oid::Standard("2.5.6.7"), "organizationalPerson", "person", "STRUCTURAL", "", "ou"),
    (Oid::Standard("2.16.840.1.113730.3.2.2"), "inetOrgPerson", "organizationalPerson", "STRUCTURAL", "",
        "displayName $ employeeNumber $ givenName $ mail $ o $ uid $ userCertificate"),
    (Oid::Standard("2.5.6.9"), "groupOfNames", "top", "STRUCTURAL", "member $ cn", "o $ ou"),
    (Oid::Standard("2.5.6.11"), "applicationProcess", "top", "STRUCTURAL", "cn", "ou"),
    (Oid::Standard("2.5.6.22"), "pkiCA", "top", "AUXILIARY", "", "cACertificate $ certificateRevocationList"),
    (Oid::Own(1), "cordonPerson", "top", "AUXILIARY", "", "cordonClearance $ cordonRole $ memberOf"),
];

/// Values of `attributeTypes` and `objectClasses`.
pub(crate) static DESCRIPTIONS: LazyLock<(Vec<String>, Vec<String>)> = LazyLock::new(|| {
    let attributes = ALL.iter().map(|known| known.description()).collect();
    let classes = CLASSES_SHOWN.iter();
    let classes = classes.map(|(oid, name, superior, kind, must, may)| {
        let part = |word: &str, list: &str| match list.contains('$') {
            true => format!(" {word} ( {list} )"),
            false if list.is_empty() => String::new(),
            false => format!(" {word} {list}"),
        };
        let oid = oid.text(CLASSES);
        format!(
            "( {oid} NAME '{name}'{} {kind}{}{} )",
            part("SUP", superior),
            part("MUST", must),
            part("MAY", may)
        )
    });
    (attributes, classes.collect())
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_found_by_each_of_their_names() {
        for name in ["mail", "MAIL", "rfc822mailbox", "0.9.2342.19200300.100.1.3"] {
            assert_eq!(by_name(name).unwrap().name, "mail", "{name}");
        }
        for name in ["userCertificate", "usercertificate;BINARY"] {
            assert_eq!(by_name(name).unwrap().sent_name(), "userCertificate;binary");
        }
        for name in ["userPassword", "mail;lang-en", "mail;binary", "", "99"] {
            assert!(by_name(name).is_none(), "{name}");
        }
    }

    #[test]
    fn own_types_are_under_the_installations_arc() {
        assert_eq!(CLEARANCE.oid(), "1.3.6.1.4.1.99999.1.5.1");
        assert!(
            DESCRIPTIONS
                .1
                .iter()
                .any(|text| text.starts_with("( 1.3.6.1.4.1.99999.1.6.1 NAME 'cordonPerson'"))
        );
    }

    #[test]
    fn rights_are_seen_by_nobody_who_sees_no_contacts() {
        let only_rights = View {
            contacts: false,
            rights: true,
        };
        assert!(!only_rights.has(Class::Rights));
        assert!(View::default().has(Class::Public));
        assert!(!View::default().has(Class::Contact));
    }
}
