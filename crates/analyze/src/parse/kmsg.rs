//! The kernel's log: records of `/dev/kmsg`.
//!
//! ```text
//! 6,1234,5678901,-;usb 1-1: new high-speed USB device
//!  SUBSYSTEM=usb
//!  DEVICE=c189:3
//! ```
//!
//! priority (facility x 8 + level), sequence number, us since boot, flags; then the text. Lines that begin with a blank belong to the
//! record before and are left out. A newline in a text is `\x0a`.

/// One record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// 0 emergency ... 3 error, 4 warning, 6 information, 7 debug.
    pub level: u8,
    /// Its number since boot.
    pub sequence: u64,
    /// us since boot.
    pub us: u64,
    /// The text, with its escapes.
    pub text: String,
}

/// Parse records. Lines that are no records are left out: the log's tail may begin and end anywhere.
#[must_use]
pub fn parse(text: &str) -> Vec<Record> {
    text.lines().filter_map(record).collect()
}

fn record(line: &str) -> Option<Record> {
    let (head, text) = line.split_once(';')?;
    let mut fields = head.split(',');
    let priority: u32 = fields.next()?.parse().ok()?;
    Some(Record {
        level: (priority & 7) as u8,
        sequence: fields.next()?.parse().ok()?,
        us: fields.next()?.parse().ok()?,
        text: text.to_owned(),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub const HERE: &str = "6,321,1324688,-;tokio-rt-worker (70): drop_caches: 3\n4,330,2433407237,-;TCP: request_sock_TCP: Possible SYN flooding \
        on port 127.0.0.1:28779. Sending cookies.\n";
    /// Linux 6.1 with the caller's id and a device's dictionary.
    pub const WITH_MORE: &str = "6,1234,5678901,-,caller=T1;usb 1-1: new device\n SUBSYSTEM=usb\n DEVICE=c189:3\n30,1235,5678999,-;systemd[1]: a;b\n";

    #[test]
    fn reads_level_time_and_text() {
        let here = parse(HERE);
        assert_eq!((here.len(), here[1].level, here[1].us), (2, 4, 2_433_407_237));
        let more = parse(WITH_MORE);
        assert_eq!((more.len(), more[0].text.as_str()), (2, "usb 1-1: new device"));
        assert_eq!((more[1].level, more[1].text.as_str()), (6, "systemd[1]: a;b"));
    }

    #[test]
    fn a_torn_record_is_left_out() {
        assert_eq!(
            parse("678,-;half\n6,1,2,-;whole\n6,2"),
            vec![Record { level: 6, sequence: 1, us: 2, text: "whole".into() }]
        );
    }
}
