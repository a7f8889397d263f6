//! How many sockets there are and what they hold: `/proc/net/sockstat`, one network namespace's (memory: all of them).
//!
//! ```text
//! sockets: used 153
//! TCP: inuse 5 orphan 0 tw 2 alloc 9 mem 3
//! ```
//!
//! `mem` is in pages. `orphan` counts the sockets that no process holds open any more.

use super::Bad;

/// The fields that are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sockstat {
    /// TCP sockets hashed in this namespace.
    pub tcp_inuse: u64,
    /// TCP sockets without a process.
    pub tcp_orphans: u64,
    /// Connections in TIME_WAIT.
    pub tcp_timewait: u64,
    /// Pages that all TCP buffers hold.
    pub tcp_pages: u64,
}

/// Parse the file.
pub fn parse(text: &str) -> Result<Sockstat, Bad> {
    let line = text.lines().find(|line| line.starts_with("TCP:"));
    let line = line.ok_or_else(|| Bad::new("TCP: inuse ...", text.lines().next().unwrap_or_default()))?;
    let fields: Vec<&str> = line.split_ascii_whitespace().skip(1).collect();
    let value = |name: &'static str| {
        let pair = fields.chunks(2).find(|pair| pair.first() == Some(&name));
        pair.and_then(|pair| pair.get(1)?.parse().ok()).ok_or_else(|| Bad::new(name, line))
    };
    Ok(Sockstat {
        tcp_inuse: value("inuse")?,
        tcp_orphans: value("orphan")?,
        tcp_timewait: value("tw")?,
        tcp_pages: value("mem")?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_tcp_line_is_read() {
        let text = "sockets: used 153\nTCP: inuse 5 orphan 1 tw 2 alloc 9 mem 3\nUDP: inuse 0 mem 0\n";
        let want = Sockstat { tcp_inuse: 5, tcp_orphans: 1, tcp_timewait: 2, tcp_pages: 3 };
        assert_eq!(parse(text), Ok(want));
    }

    #[test]
    fn a_torn_line_is_said() {
        assert_eq!(parse("TCP: inuse 5 orp"), Err(Bad::new("orphan", "TCP: inuse 5 orp")));
        assert!(parse("").is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(TCP:( (inuse|orphan|tw|mem)| [0-9]{0,22}){0,9}\n|.*){0,3}") {
            let _ = parse(&text);
        }
    }
}
