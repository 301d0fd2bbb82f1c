//! Everything that is wrong with a file, at once.

use super::*;

#[test]
fn all_mistakes_of_a_file_are_found_at_once() {
    let folder = folder();
    let second = FILE[FILE.find("[[connection]]").unwrap()..]
        .replace("10.5.2.0/24", "10.5.3.0/24")
        .replace("\"headquarters\"", "\"branch\"")
        .replace("psk_file = \"psk\"", "psk_file = \"missing\"\nlifetime = 0")
        .replace("local_id = \"camera-17.example.org\"", "local_id = \"a b\"");
    let third = second
        .replace("\"branch\"", "\"camera\"")
        .replace("psk_file = \"missing\"\nlifetime = 0", "psk_file = \"psk\"")
        .replace("\"a b\"", "\"camera-18.example.org\"")
        .replace("10.5.3.0/24", "10.5.2.0/25")
        .replace("remote_id = \"gateway", "remote_id = \"elsewhere");
    let text = format!("{FILE}{second}{third}").replace(
        "[interface]",
        "path = { encapsulation = \"native\" }\n[interface]\nworkers = 2",
    );
    let found = ResolvedConfig::read_all(&text, folder.path(), &KeyHost::in_thread().unwrap());
    let Err(found) = found else {
        panic!("it was taken");
    };
    let found: Vec<_> = found.iter().map(|one| one.parts(&text)).collect();
    let has = |place: &str, what: &str| {
        let fits = |(p, w): &&(String, String)| p.contains(place) && w.contains(what);
        assert_eq!(
            found.iter().filter(fits).count(),
            1,
            "{place}: {what}: {found:?}"
        );
    };
    has("the file", "encapsulation");
    has("branch", "`lifetime` is below one second");
    has("branch", "a b");
    has("the file", "10.5.2.0/2");
    assert_eq!(found.len(), 4, "{found:?}");
}

#[test]
fn unreadable_trust_is_one_mistake() {
    let folder = folder();
    let text = FILE.replace("psk_file = \"psk\"", "certificate = \"c\"\nkey = \"c\"")
        + "[trust]\nanchors = [\"missing.pem\"]\n";
    let found = ResolvedConfig::read_all(&text, folder.path(), &KeyHost::in_thread().unwrap());
    let found: Vec<_> = found
        .err()
        .unwrap()
        .iter()
        .map(|one| one.parts(&text))
        .collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, "[trust]");
    let text = FILE.replace("[interface]", "[interface]\nnam = 1");
    let found = ResolvedConfig::read_all(&text, folder.path(), &KeyHost::in_thread().unwrap());
    let found: Vec<_> = found
        .err()
        .unwrap()
        .iter()
        .map(|one| one.parts(&text))
        .collect();
    assert_eq!(found[0].0, "line 4", "{found:?}");
    assert!(!found[0].1.contains('\n'), "{found:?}");
}
