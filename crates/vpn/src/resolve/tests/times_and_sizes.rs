//! Times of requests and sizes of packets.

use super::*;

#[test]
fn retransmission_and_padding_are_resolved() {
    let folder = folder();
    let usual = &read(FILE, &folder).unwrap().connections[0];
    assert_eq!(usual.connection.retransmission, None);
    assert_eq!(usual.children[0].tfc_padding, None);
    let text = FILE.replace(
        "start = ",
        "retransmission = { timeout = 2, factor = 1.5, tries = 3 }\nstart = ",
    );
    let text = format!("{text}tfc_padding = 1300\n");
    let resolved = &read(&text, &folder).unwrap().connections[0];
    let times = resolved.connection.retransmission.unwrap();
    assert_eq!((times.factor, times.transmissions), (150, 4));
    assert_eq!(
        times.total(),
        Duration::from_millis(2000 + 3000 + 4500 + 6750)
    );
    assert_eq!(resolved.children[0].tfc_padding, Some(1300));
    let text = format!("{FILE}tfc_padding = \"mtu\"\n");
    let resolved = &read(&text, &folder).unwrap().connections[0];
    assert_eq!(resolved.children[0].tfc_padding, Some(u16::MAX));
}

#[test]
fn retransmission_and_padding_beyond_their_bounds_are_refused() {
    let folder = folder();
    let networks = "local = [\"10.5.1.0/24\"]\nremote = [\"10.5.2.0/24\"]";
    for (from, to, why) in [
        (
            "start = ",
            "retransmission = { tries = 0 }\nstart = ",
            "`tries`",
        ),
        (
            "start = ",
            "retransmission = { timeout = 20 }\nstart = ",
            "`limit`",
        ),
        (
            "start = ",
            "retransmission = { wait = 20 }\nstart = ",
            "unknown field",
        ),
        (
            networks,
            "tfc_padding = 1501\nlocal = [\"10.5.1.0/24\"]",
            "`mtu` of [path]",
        ),
        (networks, "tfc_padding = 63", "64 bytes"),
    ] {
        let error = refused(&folder, from, to);
        assert!(error.contains(why), "{to}: {error}");
    }
    let transport = FILE.replace(networks, "mode = \"transport\"\ntfc_padding = 1000");
    let transport = transport.replace(
        "[interface]",
        "path = { listen = \"192.0.2.7\" }\n[interface]",
    );
    let error = read(&transport, &folder).err().unwrap().to_string();
    assert!(error.contains("tunnel mode"), "{error}");
}
