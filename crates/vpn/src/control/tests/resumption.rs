//! A restarted gateway: how soon its camera is back, and what is looked at again where a session is resumed.

use super::certificates::{CAMERAS, PEER, Site};
use super::*;

/// A camera with a certificate and its gateway, which gives tickets.
struct Resuming {
    world: World,
    keys: crate::tickets::TicketFile,
    text: String,
    /// A revocation list that names the camera's certificate.
    list: Vec<u8>,
}

fn keys(world: &World) -> crate::tickets::TicketFile {
    let path = world.folder.path().join("tickets");
    crate::tickets::TicketFile::open(&path, crate::tickets::wall()).unwrap()
}

impl Resuming {
    fn new() -> Self {
        let site = Site::new();
        site.camera("camera-17.cameras.example.org");
        let (text, list) = (Site::gateway(&[CAMERAS]), site.revoke_peer());
        let mut world = World::in_folder(site.folder, PEER, &text);
        let keys = keys(&world);
        let now = world.now();
        world.sides[1]
            .control
            .set_crash_secret(CrashSecret::new([7; 32]));
        world.sides[1].control.set_ticket_keys(keys.keys(now.stamp));
        world.run(Duration::from_secs(2));
        world.check_up();
        assert_eq!(world.sides[1].seen, (1, 0));
        Self {
            world,
            keys,
            text,
            list,
        }
    }

    /// The gateway forgets everything but what is on disk, and the camera notices.
    fn crash(&mut self) -> &mut Side {
        let world = &mut self.world;
        let mut fresh = Side::new(&self.text, world.folder.path(), 1, world.start);
        fresh.control.set_crash_secret(CrashSecret::new([7; 32]));
        fresh
            .control
            .set_ticket_keys(self.keys.keys(world.now().stamp));
        world.sides[1] = fresh;
        world.sides[0].seen = (0, 0);
        &mut world.sides[1]
    }

    fn come_again(&mut self) {
        let now = self.world.now();
        let camera = &mut self.world.sides[0].control;
        let ike = *camera.ikes.keys().next().unwrap();
        camera.endpoint.probe(now.stamp, ike).unwrap();
        self.world.run(Duration::from_secs(3));
    }
}

#[test]
fn resumed_camera_shows_no_certificate_and_is_reviewed() {
    let mut site = Resuming::new();
    for _ in 0..2 {
        site.crash();
        site.come_again();
        site.world.check_up();
        // Certificates verified, and reviewed.
        assert_eq!(
            site.world.sides.each_ref().map(|side| side.seen),
            [(0, 1), (0, 1)]
        );
        let status = site.world.status(1);
        assert_eq!(status.sas[0].certificate.as_deref(), Some("CN=camera-17"));
        assert_eq!(status.sas[0].addresses, ["10.0.9.1"]);
    }
    // What holds for others holds for it: it ends when its certificate does.
    let now = site.world.now();
    let revoked = |_: &str, _: &Accepted| Err("revoked".to_owned());
    site.world.sides[1].control.recheck(&revoked, now);
    assert_eq!(site.world.sides[1].control.counters.revoked, 1);
}

#[test]
fn revoked_camera_cannot_resume() {
    let mut resuming = Resuming::new();
    let (list, now) = (resuming.list.clone(), time::OffsetDateTime::now_utc());
    resuming.crash().trust.accept_crls(&[list], now);
    resuming.come_again();
    assert_eq!(resuming.world.sides[1].seen.1, 1, "it was looked at");
    assert!(resuming.world.status(1).sas.is_empty());
    let reasons = resuming.world.reasons(1);
    assert!(
        reasons.iter().any(|reason| reason.contains("revoked")),
        "{reasons:?}"
    );
    resuming.world.run(Duration::from_secs(30));
    assert!(
        resuming.world.status(1).sas.is_empty(),
        "nor by a whole handshake"
    );
}

#[test]
fn changed_requirement_takes_a_whole_handshake() {
    let mut site = Resuming::new();
    site.text = site.text.replace("kind = \"devices\", ", "");
    site.crash();
    site.come_again();
    site.world.check_up();
    assert_eq!(site.world.sides[1].seen, (1, 0), "a whole handshake");
    let mut site = Resuming::new();
    site.text = site
        .text
        .replace("cameras.example.org", "other.example.org");
    site.crash();
    site.come_again();
    assert!(site.world.status(1).sas.is_empty());
}

#[test]
fn restarted_gateway_has_its_camera_back_within_three_seconds() {
    let camera = CAMERA.replace("start = ", "liveness = 10.0\nstart = ");
    for (keeps_secret, limit) in [(true, 3), (false, 60)] {
        let mut world = World::new(&camera, GATEWAY);
        let secret = || CrashSecret::new([7; 32]);
        world.sides[1].control.set_crash_secret(secret());
        world.run(Duration::from_secs(1));
        world.check_up();
        let start = world.start;
        let mut fresh = Side::new(GATEWAY, world.folder.path(), 1, start);
        if keeps_secret {
            fresh.control.set_crash_secret(secret());
        }
        world.sides[1] = fresh;
        // The camera is silent, and asks whether the gateway lives.
        world.run(Duration::from_secs(10));
        let began = world.elapsed;
        while world.status(1).sas.is_empty() && world.elapsed < began + Duration::from_secs(200) {
            world.run(Duration::from_millis(100));
        }
        let took = (world.elapsed - began).as_secs();
        assert_eq!(took <= limit, keeps_secret, "{took} s");
        world.check_up();
    }
}
