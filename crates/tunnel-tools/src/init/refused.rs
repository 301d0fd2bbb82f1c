//! Answers with which no tunnel could work, or the wrong one would: refused before anything is written or issued.

use std::net::IpAddr;
use std::path::Path;

use commandline::{Failure, Outcome};
use pki::cert::CertificateChain;
use tunnel::config::Prefix;
use vpn::host::{self, unfit_network, unfit_peer};

use super::SECRET;
use super::text::{self, GatewayFile};
use crate::crls;

/// Refuses networks that both sides have: packets between them would never reach a gateway.
pub(super) fn common_networks(ours: &[Prefix], theirs: &[Prefix]) -> Outcome {
    for (one, other) in ours
        .iter()
        .flat_map(|one| theirs.iter().map(move |other| (one, other)))
    {
        if host::common(one, other) {
            let (one, other) = (text::network(one), text::network(other));
            return Err(Failure::usage(
                format!("{one} and {other} have addresses in common"),
                "each address must lie on one side only: change the networks of one side",
            ));
        }
    }
    Ok(())
}

/// Refuses networks for peers' addresses of which the daemon could give none, or those of others.
pub(super) fn unfit_pools(networks: &[Prefix], pools: &[Prefix]) -> Outcome {
    let of = |v4: bool| {
        pools
            .iter()
            .filter(move |pool| pool.address.is_ipv4() == v4)
    };
    if of(true).count() > 1 || of(false).count() > 1 {
        return Err(Failure::usage(
            "peers get addresses of one network of each family",
            "name one of IPv4 and one of IPv6 with --pool",
        ));
    }
    common_networks(networks, pools)?;
    unfit_networks(pools)
}

/// Refuses addresses of two gateways that cannot speak with each other.
pub(super) fn unfit_addresses(local: IpAddr, remote: IpAddr, is_here: bool) -> Outcome {
    unfit_address(local)?;
    unfit_address(remote)?;
    if local.is_ipv4() != remote.is_ipv4() {
        return Err(Failure::usage(
            format!("{local} and {remote} are of different families"),
            "name the IPv4 or the IPv6 addresses of both",
        ));
    }
    let beside = host::own_networks();
    if remote == local || is_here && beside.iter().any(|own| own.address == remote) {
        return Err(Failure::usage(
            format!("{remote} is this host itself"),
            "name the other gateway with --remote",
        ));
    }
    let is_broadcast =
        |own: &Prefix| own.bits < 31 && remote.is_ipv4() && own.range().last() == remote;
    if is_here && beside.iter().any(is_broadcast) {
        return Err(Failure::usage(
            format!("{remote} is the broadcast address of a network beside this host"),
            "name the other gateway with --remote",
        ));
    }
    Ok(())
}

/// Refuses an address at which no gateway can be.
pub(super) fn unfit_address(address: IpAddr) -> Outcome {
    match unfit_peer(address) {
        Some(what) => Err(Failure::usage(
            format!("{address} {what}"),
            "name the address that a gateway has outside",
        )),
        None => Ok(()),
    }
}

/// Refuses an address of a gateway that its devices would look for inside of the tunnel, or that is none.
pub(super) fn unfit_gateway(address: IpAddr, gateway: &GatewayFile) -> Outcome {
    unfit_address(address)?;
    unfit_networks(&gateway.networks)
}

/// Refuses networks that no tunnel carries.
pub(super) fn unfit_networks(all: &[Prefix]) -> Outcome {
    for network in all {
        if let Some(what) = unfit_network(network) {
            return Err(Failure::usage(
                format!("{} {what}", text::network(network)),
                "name the networks behind the gateways, such as 10.1.0.0/16",
            ));
        }
    }
    Ok(())
}

/// Refuses all addresses as one side: what carries the tunnel would go into it.
pub(super) fn everything(all: &[Prefix]) -> Outcome {
    match all.iter().find(|network| network.bits == 0) {
        Some(network) => Err(Failure::usage(
            format!("{} is everything", text::network(network)),
            "name the networks behind the gateways; a tunnel for all addresses is written by hand (docs/tunnels/setup.md)",
        )),
        None => Ok(()),
    }
}

/// Refuses anything that is not the name or address of one host.
pub(super) fn unfit_host(name: &str) -> Outcome {
    vpn::check_host(name).map_err(|what| {
        Failure::usage(
            format!("--name {what}"),
            "name the gateway as its peers know it, such as vpn.example.org",
        )
    })
}

/// Refuses a name of a device that cannot be that of a folder, also in an archive, whose names have 100 bytes at most.
pub(super) fn unfit_device(device: &str) -> Outcome {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_fit = (1..=64).contains(&device.len())
        && !device.starts_with(['.', '-'])
        && device.bytes().all(plain);
    match is_fit {
        true => Ok(()),
        false => Err(Failure::usage(
            format!("{device:?} cannot be the name of a folder"),
            "use up to 64 letters, digits, - and ., as in laptop-7",
        )),
    }
}

/// Refuses a place of revocation lists that the daemon could not ask.
pub(super) fn unfit_url(given: &str, url: &str) -> Outcome {
    let example = "use http://HOST/crl, as of `[registry] crl_urls` of the site; lists are signed";
    if given.contains(['?', '#']) {
        return Err(Failure::usage(
            format!("--crl-url {given:?} is not a URL prefix for names of lists"),
            example,
        ));
    }
    crls::check(&[url.to_owned()])
        .map_err(|failure| Failure::usage(format!("--crl-url: {}", failure.message()), example))
}

/// Refuses an existing secret that this program did not make: it may be empty, or a person's invention.
pub(super) fn unfit_secret(secret: &[u8], file: &Path) -> Outcome {
    let digits = secret.strip_suffix(b"\n").unwrap_or(secret);
    match digits.len() == 2 * SECRET && digits.iter().all(u8::is_ascii_hexdigit) {
        true => Ok(()),
        false => Err(other_form(
            file,
            "is not a secret of 64 hexadecimal digits, as this command makes them",
        )),
    }
}

/// Refuses a file that is there already in the place of a key with its certificates.
pub(super) fn unfit_identity(pem: &[u8], file: &Path) -> Outcome {
    let text = std::str::from_utf8(pem).unwrap_or_default();
    match text.contains("PRIVATE KEY-----") && CertificateChain::from_pem(text).is_ok() {
        true => Ok(()),
        false => Err(other_form(file, "is not a key with its certificates")),
    }
}

fn other_form(file: &Path, what: &str) -> Failure {
    Failure::new(
        anyhow::anyhow!("{} {what}", file.display()),
        "nothing was changed: put that file aside, or name another folder with --out",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_at_which_no_gateway_can_be_are_refused() {
        let check = |local: &str, remote: &str| {
            unfit_addresses(local.parse().unwrap(), remote.parse().unwrap(), false)
        };
        assert!(check("192.0.2.1", "192.0.2.2").is_ok());
        assert!(check("2001:db8::1", "2001:db8::2").is_ok());
        for remote in [
            "192.0.2.1",
            "0.0.0.0",
            "127.0.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "2001:db8::1",
            "::ffff:192.0.2.2",
        ] {
            assert!(check("192.0.2.1", remote).is_err(), "{remote}");
        }
        // Ours is on the loopback interface.
        let (local, own) = ("192.0.2.1".parse().unwrap(), "127.0.0.1".parse().unwrap());
        assert!(unfit_addresses(local, own, true).is_err());
    }

    #[test]
    fn networks_that_no_tunnel_carries_are_refused() {
        let check = |text: &str| {
            let all = [text.parse().unwrap()];
            unfit_networks(&all).and_then(|()| everything(&all))
        };
        for fit in ["10.2.0.0/16", "fd00::/64", "192.0.2.7/32"] {
            assert!(check(fit).is_ok(), "{fit}");
        }
        for unfit in [
            "127.0.0.0/8",
            "224.0.0.0/4",
            "0.0.0.0/0",
            "::/0",
            "ff00::/8",
            "::1/128",
        ] {
            assert!(check(unfit).is_err(), "{unfit}");
        }
    }

    #[test]
    fn places_of_lists_that_are_not_asked_are_refused() {
        let check = |base: &str| unfit_url(base, &format!("{base}/devices.crl"));
        assert!(check("http://registry.example.org/crl").is_ok());
        for wrong in [
            "file:///etc",
            "ftp://x",
            "javascript:x",
            "-x",
            "http://x/crl?a",
            "http:///x",
        ] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn secret_of_another_form_is_refused() {
        let file = Path::new("secret");
        let made = super::super::generated().unwrap();
        assert!(unfit_secret(&made, file).is_ok());
        for other in [&b""[..], b"\n", b"x\n", &[b'g'; 64], &[b'0'; 63]] {
            assert!(unfit_secret(other, file).is_err(), "{other:?}");
        }
        for other in [&b""[..], b"\xff", b"-----BEGIN PRIVATE KEY-----\n"] {
            assert!(unfit_identity(other, file).is_err(), "{other:?}");
        }
    }

    #[test]
    fn device_names_stay_in_their_folder() {
        for good in ["laptop-7.example.org", &"a".repeat(64)] {
            assert!(unfit_device(good).is_ok());
        }
        for bad in [
            "",
            "..",
            ".ssh",
            "-x",
            "a/b",
            "../a",
            "a b",
            &"a".repeat(65),
        ] {
            assert!(unfit_device(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn gateway_is_one_host() {
        for good in ["vpn.example.org", "gw-1", "192.0.2.1", "2001:db8::1"] {
            assert!(unfit_host(good).is_ok(), "{good}");
        }
        for bad in [
            "any",
            "*.example.org",
            "-x",
            "a@example.org",
            "keyid:a",
            "CN=x",
            "",
            "a b",
            "a\nb",
            "a..b",
            "x-.org",
            ".org",
            "127.0.0.1",
            &"x".repeat(64),
            &"x.".repeat(127),
        ] {
            assert!(unfit_host(bad).is_err(), "{bad}");
        }
    }
}
