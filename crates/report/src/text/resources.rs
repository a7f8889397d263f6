//! What the host has of CPUs, memory, disks and tables, a line each: with -v.

use whyslow_model::Document;
use whyslow_model::resource::Resource;

use crate::page::{Ink, Page};

pub(super) fn print(page: &mut Page, doc: &Document) {
    if doc.resources.is_empty() {
        return;
    }
    page.gap();
    page.say("", "Resources", Ink::Heading);
    for row in &doc.resources {
        let ink = if row.paid_by.is_some() { Ink::Cause } else { Ink::Plain };
        page.say("  ", &line(row), ink);
    }
}

/// "CPUs: 96 % used (1.9 of 2); tasks were ready and had none for 7.1 s in all; most: xz (7.5 s); shop pays".
fn line(row: &Resource) -> String {
    let amount = Some(&row.amount).filter(|amount| !amount.is_empty());
    let used = match (row.used, amount) {
        (Some(used), Some(amount)) => Some(format!("{used} used ({amount})")),
        (Some(used), None) => Some(format!("{used} used")),
        (None, amount) => amount.cloned(),
    };
    let parts = [
        used,
        row.saturated.clone(),
        row.by.as_ref().map(|by| format!("most: {by}")),
        row.paid_by.as_ref().map(|victim| format!("{victim} pays")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    format!("{}: {}", row.name, parts.join("; "))
}

#[cfg(test)]
mod tests {
    use whyslow_model::Share;

    use super::*;

    #[test]
    fn a_line_says_what_is_known_and_nothing_else() {
        let bare = Resource {
            name: "eth0".into(),
            amount: "1 B/s in, 2 B/s out".into(),
            errors: Some(0),
            ..Resource::default()
        };
        assert_eq!(line(&bare), "eth0: 1 B/s in, 2 B/s out");
        let full = Resource {
            name: "CPUs".into(),
            amount: "1.9 of 2".into(),
            used: Some(Share::percent(96)),
            saturated: Some("tasks were ready and had none for 7.1 s in all".into()),
            errors: None,
            by: Some("xz (7.5 s)".into()),
            paid_by: Some("shop".into()),
        };
        assert_eq!(
            line(&full),
            "CPUs: 96 % used (1.9 of 2); tasks were ready and had none for 7.1 s in all; most: xz (7.5 s); shop pays"
        );
    }
}
