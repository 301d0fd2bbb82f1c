//! The entries of a site, sorted by name.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::content::{Content, Member, entry_uuid};
use crate::name::{Name, SEPARATOR, escaped, prepared};
use crate::schema::{self, Attribute, Class, View};
use crate::sync::SYNC;

/// Name of the subschema subentry.
const SUBSCHEMA: &str = "cn=schema";
/// Paged results (RFC 2696) and ManageDsaIT (RFC 3296).
pub(crate) const PAGED: &str = "1.2.840.113556.1.4.319";
pub(crate) const MANAGE_DSA_IT: &str = "2.16.840.1.113730.3.4.2";
/// "Who am I?" (RFC 4532).
pub(crate) const WHO_AM_I: &str = "1.3.6.1.4.1.4203.1.11.3";
/// All operational attributes (RFC 3673), and absolute true and false filters (RFC 4526).
const FEATURES: [&str; 2] = ["1.3.6.1.4.1.4203.1.5.1", "1.3.6.1.4.1.4203.1.5.3"];

/// A value with the form in which it is compared.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) text: String,
    pub(crate) prepared: String,
}

/// What belongs to an entry and is fetched when it is asked for, as it changes by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Late {
    /// Certificates of the person with this user id.
    Certificates(String),
    /// Certificates and revocation lists of the authority of this name.
    Authority(String),
}

/// An entry.
#[derive(Clone, Debug)]
pub struct Entry {
    dn: String,
    pub(crate) key: String,
    /// Who may know that the entry exists.
    pub(crate) class: Class,
    attributes: Vec<(&'static Attribute, Vec<Value>)>,
    late: Option<Late>,
}

impl Entry {
    fn new(name: &Name, class: Class) -> Self {
        Self {
            dn: name.text(),
            key: name.key(),
            class,
            attributes: Vec::new(),
            late: None,
        }
    }

    /// Adds values; those without a form for comparing, and attributes without values, are left out.
    fn with<T: Into<String>>(
        mut self,
        attribute: &'static Attribute,
        values: impl IntoIterator<Item = T>,
    ) -> Self {
        let values = values.into_iter().filter_map(|text| {
            let text = text.into();
            let prepared = attribute.syntax.prepared(&text)?;
            (!text.is_empty()).then_some(Value { text, prepared })
        });
        let values: Vec<_> = values.collect();
        if !values.is_empty() {
            self.attributes.push((attribute, values));
        }
        self
    }

    /// Adds the object classes, the structural one last but for auxiliary ones, and what every entry has.
    fn of_classes(self, classes: &[&str], structural: &str, uuid: String) -> Self {
        let dn = self.dn.clone();
        self.with(&schema::OBJECT_CLASS, classes.iter().copied())
            .with(&schema::STRUCTURAL_CLASS, [structural])
            .with(&schema::ENTRY_UUID, [uuid])
            .with(&schema::ENTRY_DN, [dn])
            .with(&schema::SUBSCHEMA_SUBENTRY, [SUBSCHEMA])
    }

    /// Distinguished name.
    #[must_use]
    pub fn dn(&self) -> &str {
        &self.dn
    }

    /// What is fetched when it is asked for.
    #[must_use]
    pub const fn late(&self) -> Option<&Late> {
        self.late.as_ref()
    }

    /// Whether `view` may know of the entry.
    pub(crate) fn is_visible(&self, view: View) -> bool {
        view.has(self.class)
    }

    /// Attributes that `view` may see. What everybody may see of an entry that everybody may see includes its name.
    pub(crate) fn visible(
        &self,
        view: View,
    ) -> impl Iterator<Item = (&'static Attribute, &[Value])> {
        let all = self.class == Class::Public;
        let attributes = self.attributes.iter();
        let attributes = attributes.filter(move |(attribute, _)| all || view.has(attribute.class));
        attributes.map(|(attribute, values)| (*attribute, values.as_slice()))
    }

    /// Values of `attribute` that `view` may see. `None`: it sees none.
    pub(crate) fn values(&self, attribute: &'static Attribute, view: View) -> Option<&[Value]> {
        // There is one of each attribute. A search asks this of every entry.
        let known = self.attributes.iter();
        let mut known = known.filter(|(known, _)| std::ptr::eq(*known, attribute));
        let (_, values) = known.next()?;
        let is_visible = self.class == Class::Public || view.has(attribute.class);
        is_visible.then_some(values.as_slice())
    }
}

/// All entries, sorted by key.
#[derive(Debug)]
pub struct Tree {
    base: Name,
    base_key: String,
    entries: Vec<Entry>,
    by_key: HashMap<String, usize>,
    /// Positions of entries by attributes that searches name most.
    index: HashMap<(&'static str, String), Vec<usize>>,
    uids: HashMap<String, String>,
    /// User ids that differ from another one in case only, and so have no entry.
    hidden: Vec<String>,
}

/// Attributes with an index.
static INDEXED: [&Attribute; 3] = [&schema::UID, &schema::MAIL, &schema::ENTRY_UUID];

impl Tree {
    /// Makes the entries of `content`.
    #[must_use]
    pub fn new(content: &Content) -> Self {
        let mut sorted: BTreeMap<String, Entry> = BTreeMap::new();
        let (mut uids, mut hidden) = (HashMap::new(), Vec::new());
        for entry in frame_entries(content) {
            sorted.insert(entry.key.clone(), entry);
        }
        for member in &content.members {
            let entry = person(content, member);
            if sorted.contains_key(&entry.key) {
                hidden.push(member.uid.clone());
                continue;
            }
            uids.insert(entry.key.clone(), member.uid.clone());
            sorted.insert(entry.key.clone(), entry);
        }
        let entries: Vec<Entry> = sorted.into_values().collect();
        let mut index: HashMap<_, Vec<usize>> = HashMap::new();
        for (position, entry) in entries.iter().enumerate() {
            for (attribute, values) in &entry.attributes {
                if INDEXED.iter().any(|indexed| indexed.name == attribute.name) {
                    for value in values {
                        let key = (attribute.name, value.prepared.clone());
                        index.entry(key).or_default().push(position);
                    }
                }
            }
        }
        let by_key = entries.iter().enumerate();
        let by_key = by_key.map(|(position, entry)| (entry.key.clone(), position));
        Self {
            base: content.base.clone(),
            base_key: content.base.key(),
            by_key: by_key.collect(),
            entries,
            index,
            uids,
            hidden,
        }
    }

    /// User ids without an entry, as they differ from another one in case only.
    #[must_use]
    pub fn hidden(&self) -> &[String] {
        &self.hidden
    }

    /// The user id of the person whose entry has this name.
    #[must_use]
    pub fn uid_of(&self, name: &Name) -> Option<&str> {
        self.uids.get(&name.key()).map(String::as_str)
    }

    /// The name of a person's entry.
    #[must_use]
    pub fn dn_of(&self, uid: &str) -> Option<&str> {
        let prepared = schema::UID.syntax.prepared(uid)?;
        let positions = self.indexed(&schema::UID, &prepared)?;
        let mut entries = positions
            .into_iter()
            .filter_map(|position| self.get(position));
        let entry = entries.find(|entry| self.uids.get(&entry.key).is_some_and(|of| of == uid))?;
        Some(entry.dn())
    }

    /// Whether `name` is where entries of people are, whether or not there is one.
    #[must_use]
    pub fn is_for_people(&self, name: &Name) -> bool {
        let people = below(&self.base, &[("ou", "people")]).key();
        let parent = name.key();
        let parent = parent.rsplit_once(SEPARATOR).map(|(parent, _)| parent);
        parent == Some(people.as_str()) && name.first("uid").is_some()
    }

    /// Key of the entry above all others.
    pub(crate) fn base_key(&self) -> &str {
        &self.base_key
    }

    pub(crate) fn get(&self, position: usize) -> Option<&Entry> {
        self.entries.get(position)
    }

    pub(crate) fn find(&self, key: &str) -> Option<(usize, &Entry)> {
        let position = *self.by_key.get(key)?;
        Some((position, self.entries.get(position)?))
    }

    /// Position of the first entry with a key from `key` on.
    pub(crate) fn lower_bound(&self, key: &str) -> usize {
        self.entries
            .partition_point(|entry| entry.key.as_str() < key)
    }

    /// The position after the last entry at or below `key`.
    pub(crate) fn end_of(&self, key: &str) -> usize {
        let start = self.lower_bound(key);
        let rest = self.entries.get(start..).unwrap_or_default();
        start + rest.partition_point(|entry| is_at_or_below(&entry.key, key))
    }

    /// Positions of the entries with a value, if the attribute has an index.
    pub(crate) fn indexed(&self, attribute: &Attribute, prepared: &str) -> Option<Vec<usize>> {
        let indexed = INDEXED.iter().find(|known| known.name == attribute.name)?;
        let key = (indexed.name, prepared.to_owned());
        Some(self.index.get(&key).cloned().unwrap_or_default())
    }
}

/// Whether the entry with the first key is that of `base` or below it. Root DSE and subschema are below nothing.
pub(crate) fn is_at_or_below(key: &str, base: &str) -> bool {
    match key.strip_prefix(base) {
        Some(rest) => rest.is_empty() || rest.starts_with(SEPARATOR),
        None => false,
    }
}

fn below(base: &Name, components: &[(&str, &str)]) -> Name {
    let components = components.iter();
    let components = components.map(|(kind, value)| format!("{kind}={}", escaped(value)));
    let text = components.collect::<Vec<_>>().join(",");
    // Values were checked when people were added; what cannot be a name is below the base without one.
    Name::parse(&format!("{text},{}", base.text())).unwrap_or_else(|_| base.clone())
}

/// All but the people.
fn frame_entries(content: &Content) -> Vec<Entry> {
    let mut entries = vec![root_dse(content), subschema(), base(content)];
    for ou in ["people", "units", "groups", "roles", "authorities"] {
        let class = match ou {
            "roles" => Class::Rights,
            _ => Class::Contact,
        };
        let entry = Entry::new(&below(&content.base, &[("ou", ou)]), class);
        let uuid = entry_uuid(&content.namespace, "container", ou);
        entries.push(
            entry
                .of_classes(&["top", "organizationalUnit"], "organizationalUnit", uuid)
                .with(&schema::OU, [ou]),
        );
    }
    entries.extend(groups(content));
    for authority in &content.authorities {
        let name = below(
            &content.base,
            &[("cn", &authority.name), ("ou", "authorities")],
        );
        let uuid = entry_uuid(&content.namespace, "authority", &authority.name);
        let classes = ["top", "applicationProcess", "pkiCA"];
        let mut entry = Entry::new(&name, Class::Contact)
            .of_classes(&classes, "applicationProcess", uuid)
            .with(&schema::CN, [authority.name.as_str()]);
        entry.late = Some(Late::Authority(authority.name.clone()));
        entries.push(entry);
    }
    entries
}

fn root_dse(content: &Content) -> Entry {
    Entry::new(&Name::default(), Class::Public)
        .with(&schema::OBJECT_CLASS, ["top"])
        .with(&schema::NAMING_CONTEXTS, [content.base.text()])
        .with(&schema::SUBSCHEMA_SUBENTRY, [SUBSCHEMA])
        .with(&schema::SUPPORTED_VERSION, ["3"])
        .with(&schema::SUPPORTED_CONTROL, [PAGED, MANAGE_DSA_IT, SYNC])
        .with(&schema::SUPPORTED_EXTENSION, [WHO_AM_I])
        .with(&schema::SUPPORTED_FEATURES, FEATURES)
        .with(&schema::SUPPORTED_SASL, ["EXTERNAL"])
        .with(&schema::VENDOR_NAME, ["Cordon"])
}

fn subschema() -> Entry {
    let (attributes, classes) = &*schema::DESCRIPTIONS;
    let name = Name::parse(SUBSCHEMA).unwrap_or_default();
    Entry::new(&name, Class::Public)
        .with(&schema::OBJECT_CLASS, ["top", "subentry", "subschema"])
        .with(&schema::CN, ["schema"])
        .with(
            &schema::ATTRIBUTE_TYPES,
            attributes.iter().map(String::as_str),
        )
        .with(&schema::OBJECT_CLASSES, classes.iter().map(String::as_str))
}

fn base(content: &Content) -> Entry {
    let uuid = entry_uuid(&content.namespace, "container", "");
    let entry = Entry::new(&content.base, Class::Contact);
    let value = |kind: &str| content.base.first(kind).map(str::to_owned);
    let entry = match value("dc") {
        Some(dc) => entry
            .of_classes(&["top", "organization", "dcObject"], "organization", uuid)
            .with(&schema::DC, [dc]),
        None => entry.of_classes(&["top", "organization"], "organization", uuid),
    };
    let organisation = value("o").unwrap_or_else(|| content.organisation.clone());
    entry.with(&schema::O, [organisation])
}

/// A group's name as it was first written, and the names of its members' entries.
type Groups = BTreeMap<String, (String, BTreeSet<String>)>;

/// Units, their members, and those of roles. Names of units that differ in upper and lower case are one unit, as they are one
/// name for LDAP.
fn groups(content: &Content) -> Vec<Entry> {
    let (mut units, mut roles) = (Groups::new(), Groups::new());
    for member in &content.members {
        let dn = person_name(content, &member.uid).text();
        for (groups, names) in [(&mut units, &member.units), (&mut roles, &member.roles)] {
            for name in names {
                let group = groups.entry(prepared(name));
                let (_, members) = group.or_insert_with(|| (name.clone(), BTreeSet::new()));
                members.insert(dn.clone());
            }
        }
    }
    let mut entries = Vec::new();
    for (unit, _) in units.values() {
        let name = below(&content.base, &[("ou", unit), ("ou", "units")]);
        let uuid = entry_uuid(&content.namespace, "unit", &prepared(unit));
        let classes = ["top", "organizationalUnit"];
        let entry =
            Entry::new(&name, Class::Contact).of_classes(&classes, "organizationalUnit", uuid);
        entries.push(entry.with(&schema::OU, [unit.as_str()]));
    }
    let of_units = units.into_values();
    let of_units = of_units.map(|group| (group, "groups", Class::Contact));
    let of_roles = roles.into_values();
    let of_roles = of_roles.map(|group| (group, "roles", Class::Rights));
    for ((group, members), container, class) in of_units.chain(of_roles) {
        let name = below(&content.base, &[("cn", &group), ("ou", container)]);
        let uuid = entry_uuid(&content.namespace, container, &prepared(&group));
        let entry =
            Entry::new(&name, class).of_classes(&["top", "groupOfNames"], "groupOfNames", uuid);
        entries.push(
            entry
                .with(&schema::CN, [group])
                .with(&schema::MEMBER, members),
        );
    }
    entries
}

fn person_name(content: &Content, uid: &str) -> Name {
    below(&content.base, &[("uid", uid), ("ou", "people")])
}

fn person(content: &Content, member: &Member) -> Entry {
    // `person` demands a surname (RFC 4519, section 3.12).
    let surname = match member.surname.as_str() {
        "" => &member.name,
        surname => surname,
    };
    let groups = member
        .units
        .iter()
        .map(|unit| below(&content.base, &[("cn", unit), ("ou", "groups")]).text());
    let classes = [
        "top",
        "person",
        "organizationalPerson",
        "inetOrgPerson",
        "cordonPerson",
    ];
    let uuid = entry_uuid(&content.namespace, "person", &member.uid);
    let mut entry = Entry::new(&person_name(content, &member.uid), Class::Contact)
        .of_classes(&classes, "inetOrgPerson", uuid)
        .with(&schema::UID, [member.uid.as_str()])
        .with(&schema::CN, [member.name.as_str()])
        .with(&schema::DISPLAY_NAME, [member.name.as_str()])
        .with(&schema::SN, [surname])
        .with(&schema::GIVEN_NAME, [member.given_name.as_str()])
        .with(&schema::EMPLOYEE_NUMBER, [member.uid.as_str()])
        .with(&schema::MAIL, [member.mail.as_str()])
        .with(&schema::O, [member.organisation.as_str()])
        .with(&schema::OU, member.units.iter().map(String::as_str))
        .with(&schema::MEMBER_OF, groups)
        .with(&schema::CLEARANCE, [member.clearance.to_string()])
        .with(&schema::ROLE, member.roles.iter().map(String::as_str));
    entry.late = Some(Late::Certificates(member.uid.clone()));
    entry
}
