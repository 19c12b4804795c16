//! What is particular to each program. In arguments and files `%ip`, `%port` and `%at` (both) are the
//! server's, `%dir` is the program's directory, and `%_` a space within an argument; in a client's arguments
//! `%seconds` are those that it runs for, and `%more` is what a case adds.

use super::report::{self, Figures};

/// Names and texts of the files that a program reads in its directory.
type Files = Vec<(&'static str, String)>;
pub(super) type Parse = fn(&str) -> Option<Figures>;
/// A program's name, Debian's package, the option that makes it print its version, its files, and what reads what it
/// prints as a client.
pub(super) type Row = (&'static str, &'static str, &'static str, fn() -> Files, Parse);

pub(super) const ROWS: [Row; 8] = [
    ("dnsperf", "dnsperf", "-h", queries, report::dnsperf),
    ("iperf3", "iperf3", "-v", Vec::new, report::iperf3),
    ("memcached", "memcached", "--version", Vec::new, |_| None),
    ("memcaslap", "libmemcached-tools", "--version", Vec::new, report::memcaslap),
    ("nginx", "nginx-light", "-v", nginx, |_| None),
    ("nsd", "nsd", "-v", nsd, |_| None),
    ("tcpdump", "tcpdump", "--version", Vec::new, |_| None),
    ("wrk", "wrk", "-v", Vec::new, report::wrk),
];

/// What the hosts and wires are made with, and Debian's packages of these.
pub(super) const TOOLS: [(&str, &str); 3] =
    [("iptables", "iptables"), ("nft", "nftables"), ("tc", "iproute2")];

/// The length of nginx's document: LRP's (section 4.4).
const DOCUMENT_BYTES: usize = 1300;
/// Names in NSD's zone that have an address.
const NAMES: usize = 500;

/// A server that listens on its protocol's own port.
#[derive(Debug, PartialEq)]
pub struct ServerKind {
    /// Its executable's.
    pub name: &'static str,
    pub port: u16,
    pub(super) arguments: &'static str,
    /// What it is asked over TCP to see whether it is ready, how many bytes of the answer are read, and
    /// what is among them. `None`: to iperf3 a connection would be a client, and the next one would have
    /// to wait for its end. It is ready when it says so.
    pub(super) question: Option<(&'static [u8], usize, &'static [u8])>,
}

/// HTTP over TCP: one document of LRP's length.
pub static NGINX: ServerKind = ServerKind {
    name: "nginx",
    port: 80,
    // Without -e, it opens Debian's own log before it reads the configuration.
    arguments: "-e stderr -c %dir/nginx.conf",
    question: Some((b"GET / HTTP/1.0\r\n\r\n", DOCUMENT_BYTES, b"HTTP/1.1 200 ")),
};
/// DNS over UDP: the names of one zone.
pub static NSD: ServerKind = ServerKind {
    name: "nsd",
    port: 53,
    // -d: it stays in the foreground. Its children are its own all the same.
    arguments: "-d -c %dir/nsd.conf",
    // Number 1, an answer, NSD's own, no error, one question, one record.
    question: Some((QUERY, 10, b"\0\x01\x84\0\0\x01\0\x01")),
};
/// Receives what iperf3's client sends, over UDP or TCP.
pub static IPERF3: ServerKind = ServerKind {
    name: "iperf3",
    port: 5201,
    // It prints each line at once, for the log.
    arguments: "-s -B %ip -p %port --forceflush",
    question: None,
};
/// A key-value store over TCP, as Debian configures it but with one worker thread, and without UDP.
pub static MEMCACHED: ServerKind = ServerKind {
    name: "memcached",
    port: 11211,
    arguments: "-u root -l %ip -p %port -U 0 -t 1 -m 64",
    question: Some((b"version\r\n", 8, b"VERSION ")),
};

/// Debian's own configuration but for the files' places, one worker, no access log, and more requests
/// of a connection than any run sends, so that the server never ends one by their number.
const NGINX_CONF: &str = "\
daemon off; user root; worker_processes 1; pid %dir/nginx.pid; error_log stderr error;
events { worker_connections 768; } http {
  client_body_temp_path %dir/client_body; proxy_temp_path %dir/proxy;
  fastcgi_temp_path %dir/fastcgi; uwsgi_temp_path %dir/uwsgi; scgi_temp_path %dir/scgi;
  sendfile on; tcp_nopush on; access_log off; keepalive_requests 1000000000;
  server { listen %at; root %dir; } }
";

fn nginx() -> Files {
    vec![("nginx.conf", NGINX_CONF.into()), ("index.html", "x".repeat(DOCUMENT_BYTES))]
}

/// NSD's own defaults but for the files' places, and for the rate limit: Debian's NSD answers a source
/// 200 times a second at most, and a load generator is one source.
const NSD_CONF: &str = r#"
server:
  server-count: 1 ip-address: %ip@%port username: "" chroot: "" database: "" pidfile: ""
  zonesdir: "%dir" xfrdir: "%dir" xfrdfile: "%dir/xfrd.state" zonelistfile: "%dir/zone.list"
  rrl-ratelimit: 0 rrl-whitelist-ratelimit: 0
remote-control: control-enable: no
zone: name: "weir.test" zonefile: "weir.test.zone"
"#;

/// 33 bytes (RFC 1035, section 4): number 1, no flags, one question: a name, type A, class IN.
const QUERY: &[u8] = b"\0\x21\0\x01\0\0\0\x01\0\0\0\0\0\0\x05host0\x04weir\x04test\0\0\x01\0\x01";

/// The zone has names with addresses in 198.19.0.0/16.
fn nsd() -> Files {
    let head = "$ORIGIN weir.test.\n$TTL 3600\n@ IN SOA ns hostmaster 1 3600 900 86400 300\n\
                @ IN NS ns\nns IN A 198.19.255.1\n";
    let host = |number| format!("host{number} IN A 198.19.{}.{}\n", number / 250, number % 250 + 1);
    let zone = head.to_owned() + &(0..NAMES).map(host).collect::<String>();
    vec![("nsd.conf", NSD_CONF.into()), ("weir.test.zone", zone)]
}

fn queries() -> Files {
    let query = |number| format!("host{number}.weir.test A\n");
    vec![("queries.txt", (0..NAMES).map(query).collect())]
}

/// A load generator of one thread, as there is one CPU.
#[derive(Debug, PartialEq)]
pub struct ClientKind {
    pub(super) name: &'static str,
    pub server: &'static ServerKind,
    pub(super) arguments: &'static str,
}

/// Asks nginx for its document by 32 connections; each sends a request when it has the last answer.
pub static WRK: ClientKind = ClientKind {
    name: "wrk",
    server: &NGINX,
    // Its own time-out, stated because `failed` depends on it.
    arguments: "-t1 --latency --timeout 2s -c 32 -d %secondss %more http://%at/",
};
/// Asks NSD for names: see [`in_flight`].
pub static DNSPERF: ClientKind = ClientKind {
    name: "dnsperf",
    server: &NSD,
    arguments: "-s %ip -p %port -d %dir/queries.txt -l %seconds -c 8 -T 1 -t 1 -W \
                -O suppress=timeouts,congestion,sendfailed,unexpected %more",
};
/// Sends as fast as TCP lets it, or what a case says.
pub static IPERF3_CLIENT: ClientKind = ClientKind {
    name: "iperf3",
    server: &IPERF3,
    arguments: "-c %ip -p %port -t %seconds --json %more",
};
/// Gets and sets values in memcached by 32 connections, nine gets for each set, of values of 1 KiB; each sends when it
/// has the last answer. It cannot reach an IPv6 address, and its own pace (-P) has no effect.
pub static MEMCASLAP: ClientKind = ClientKind {
    name: "memcaslap",
    server: &MEMCACHED,
    // -w: objects of each connection, so that 32 connections' fit into the server's 64 MiB and no get misses; its default
    // of ten thousand does not. -S: the statistics at the end, which have the mean, come only with periodic ones.
    arguments: "-s %at -T 1 -c 32 -w 1k -t %secondss -S %secondss",
};

/// Queries of dnsperf that may be in flight at a rate.
///
/// dnsperf yields its CPU after every second query until it has sent as many as may be in flight, so that it starts
/// with some 20,000 queries/s whatever the rate: with a second's queries in flight that was the whole run. Then it
/// sends in one burst what became due meanwhile, or while it had no CPU. That burst fits into a ring of 256: of one of
/// 1,000 the ring lost 0.2 to 0.5 % of a second's queries where a NAPI thread polls.
const IN_FLIGHT: u32 = 250;

/// dnsperf's arguments for its rate.
///
/// Without one it keeps 100 queries in flight, its default. A socket buffer of 208 KiB, the default,
/// holds about 270 of these messages: no socket overflows by itself, and what is lost was lost on the
/// way or under another load. A lost query holds its place until it times out, after a second, so a
/// hundred losses a second all but stop this loop.
///
/// With a rate it prints every answer's time (-v), for the percentiles; that would slow an unpaced one
/// down.
pub fn in_flight(rate: Option<f64>) -> String {
    rate.map_or("-q 100".to_owned(), |rate| format!("-q {IN_FLIGHT} -Q {rate} -b 1024 -v"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_query_has_a_name_in_the_zone() {
        let (zone, queries) = (&nsd()[1].1, &queries()[0].1);
        for query in queries.lines() {
            let name = query.strip_suffix(".weir.test A").unwrap();
            assert!(zone.contains(&format!("\n{name} IN A 198.19.")), "{query}");
        }
        assert!(zone.ends_with("\nhost499 IN A 198.19.1.250\n"), "{zone}");
    }

    #[test]
    fn dnsperf_at_a_rate_prints_each_answer() {
        assert_eq!(in_flight(None), "-q 100");
        assert_eq!(in_flight(Some(2e4)), "-q 250 -Q 20000 -b 1024 -v");
    }

    #[test]
    fn each_client_has_an_end_and_what_its_case_adds() {
        for client in [&WRK, &DNSPERF, &IPERF3_CLIENT] {
            assert!(client.arguments.contains("%more"), "{client:?}");
        }
        for client in [&WRK, &DNSPERF, &IPERF3_CLIENT, &MEMCASLAP] {
            assert!(client.arguments.contains("%seconds"), "{client:?}");
        }
    }
}
