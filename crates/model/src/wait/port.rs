//! What is usually served at a port: names that IANA registered, and what servers use by default. A guess by number, for where nobody
//! is known to serve there.

/// Sorted.
const USUAL: &[(u16, &str)] = &[
    (22, "ssh"),
    (25, "smtp"),
    (53, "domain"),
    (80, "http"),
    (88, "kerberos"),
    (111, "rpcbind"),
    (123, "ntp"),
    (143, "imap"),
    (161, "snmp"),
    (389, "ldap"),
    (443, "https"),
    (445, "smb"),
    (465, "smtps"),
    (514, "syslog"),
    (587, "smtp"),
    (631, "ipp"),
    (636, "ldaps"),
    (853, "domain over TLS"),
    (873, "rsync"),
    (993, "imaps"),
    (1433, "ms-sql"),
    (1521, "oracle"),
    (1883, "mqtt"),
    (2049, "nfs"),
    (2181, "zookeeper"),
    (2375, "docker"),
    (2379, "etcd"),
    (2380, "etcd"),
    (3260, "iscsi"),
    (3306, "mysql"),
    (4222, "nats"),
    (4317, "otlp"),
    (5432, "postgresql"),
    (5672, "amqp"),
    (6379, "redis"),
    (6432, "pgbouncer"),
    (6443, "kubernetes"),
    (6650, "pulsar"),
    (6789, "ceph"),
    (8086, "influxdb"),
    (8123, "clickhouse"),
    (8200, "vault"),
    (8500, "consul"),
    (9000, "clickhouse"),
    (9042, "cassandra"),
    (9090, "prometheus"),
    (9092, "kafka"),
    (9200, "elasticsearch"),
    (10250, "kubelet"),
    (11211, "memcached"),
    (26379, "redis-sentinel"),
    (27017, "mongodb"),
];

/// "10.0.0.7 port 5432 (postgresql)" of "10.0.0.7:5432". `None`: nothing is usual there.
pub(super) fn guessed(address: &str) -> Option<String> {
    let (host, port) = address.rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    let at = USUAL.binary_search_by_key(&port, |(port, _)| *port).ok()?;
    let (_, name) = USUAL.get(at)?;
    (!host.is_empty()).then(|| format!("{host} port {port} ({name})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_in_order_and_each_has_one_name() {
        assert!(USUAL.is_sorted_by(|a, b| a.0 < b.0) && USUAL.len() <= 60);
    }

    #[test]
    fn a_usual_port_is_named_and_no_other() {
        for (address, want) in [
            ("10.0.0.7:5432", Some("10.0.0.7 port 5432 (postgresql)")),
            ("[2001:db8::7]:443", Some("[2001:db8::7] port 443 (https)")),
            ("10.0.0.7:5433", None),
            ("10.0.0.7", None),
            (":443", None),
            ("a:b", None),
            ("10.0.0.7:99999", None),
            ("10.0.0.7:", None),
        ] {
            assert_eq!(guessed(address).as_deref(), want, "{address}");
        }
    }
}
