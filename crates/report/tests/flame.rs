//! Flame graphs are pictures of the times they were given, and nothing in a name gets out of them.

use proptest::prelude::*;
use whyslow_report::flame;
use whyslow_report::safe::is_unsafe;

/// "total_samples" of the picture: the width of its root.
fn root(svg: &str) -> u64 {
    let at = svg.split_once("total_samples=\"").unwrap().1;
    at.split_once('"').unwrap().0.parse().unwrap()
}

fn lines(all: &[(&str, u64)]) -> Vec<(String, u64)> {
    all.iter().map(|(stack, ns)| ((*stack).to_owned(), *ns)).collect()
}

/// Frames of the picture: (name and time as shown, first column, width).
fn frames(svg: &str) -> Vec<(String, u64, u64)> {
    let number = |text: &str, name: &str| -> u64 {
        let at = text.split_once(&format!("{name}=\"")).unwrap().1;
        at.split_once('"').unwrap().0.parse().unwrap()
    };
    let of = |part: &str| {
        let (title, rest) = part.split_once("</title>").unwrap();
        (title.to_owned(), number(rest, "fg:x"), number(rest, "fg:w"))
    };
    svg.split("<title>").skip(1).map(of).collect()
}

#[test]
fn the_root_is_as_wide_as_all_times_together() {
    let svg = flame("t", "s", &lines(&[("a;b", 3_000_000), ("a", 2_000_000), ("a;c d", 1_000_000)])).unwrap();
    assert_eq!(root(&svg), 6_000_000);
    let all = frames(&svg);
    assert!(all.contains(&("all (6,000 us, 100%)".to_owned(), 0, 6_000_000)), "{all:?}");
    assert!(all.contains(&("a (6,000 us, 100.00%)".to_owned(), 0, 6_000_000)), "{all:?}");
    assert!(all.iter().any(|(title, _, width)| title == "b (3,000 us, 50.00%)" && *width == 3_000_000));
}

#[test]
fn a_frame_is_drawn_once_whatever_its_neighbours_are_called() {
    let svg = flame("t", "", &lines(&[("a", 1_000_000), ("a b;x", 1_000_000), ("a;y", 1_000_000)])).unwrap();
    let named = frames(&svg).into_iter().filter(|(title, ..)| title.starts_with("a (")).collect::<Vec<_>>();
    assert_eq!(named.len(), 1, "{named:?}");
    assert_eq!(named[0].2, 2_000_000);
}

#[test]
fn a_name_that_ends_in_a_number_is_not_taken_for_a_time() {
    let svg = flame("t", "", &lines(&[("ready for CPU 1", 7_000_000), ("# x", 1_000_000)])).unwrap();
    assert!(svg.contains("ready for CPU\u{a0}1 (7,000 us, 87.50%)"), "{svg}");
    assert_eq!(root(&svg), 8_000_000);
}

#[test]
fn long_times_are_shown_in_ms_and_huge_ones_do_not_overflow() {
    assert!(flame("t", "", &lines(&[("a", 12_000_000_000)])).unwrap().contains("all (12,000 ms, 100%)"));
    let svg = flame("t", "", &lines(&[("a", u64::MAX), ("b", u64::MAX)])).unwrap();
    assert!(root(&svg) > 1 << 51);
}

#[test]
fn nothing_in_a_name_is_obeyed() {
    let nasty = "<script>alert(1)</script>&\"'\u{1b}[2J\n\u{ffff}]]>";
    let svg = flame(nasty, nasty, &lines(&[(&format!("{nasty};x"), 5_000_000)])).unwrap();
    assert!(
        !svg.contains("<script>alert") && svg.contains("&lt;script&gt;alert(1)&lt;/script&gt;&amp;"),
        "{svg}"
    );
    assert!(!svg.contains(['\u{1b}', '\u{ffff}']));
    assert_eq!(svg.matches("<script").count(), 1, "only the one that searches and zooms");
}

#[test]
fn nothing_to_draw_is_said() {
    for none in [&[][..], &[("a", 0)], &[("", 5)]] {
        let why = flame("t", "", &lines(none)).unwrap_err().to_string();
        assert_eq!(why, "no time was seen that could be drawn");
    }
}

#[test]
fn the_same_times_give_the_same_picture() {
    let some = lines(&[("a;b", 3_000_000), ("a;c", 2_000_000)]);
    let turned: Vec<_> = some.iter().rev().cloned().collect();
    assert_eq!(flame("t", "s", &some).unwrap(), flame("t", "s", &turned).unwrap());
}

proptest! {
    #[test]
    fn flame_graph_root_is_as_wide_as_the_total_time_for_any_names(
        stacks in prop::collection::vec(("[ -~]{0,30}|(?s).{0,20}|[a;# 0-9.]{0,9}", 0..u64::MAX / 4), 0..30),
    ) {
        let total: u128 = stacks.iter().filter(|(s, _)| !s.is_empty()).map(|(_, ns)| u128::from(*ns)).sum();
        match flame("t", "s", &stacks) {
            Ok(svg) => {
                // Divided so that the sum stays exact; each line may lose less than one part.
                let scale = total / (1 << 53) + 1;
                let want = total / scale;
                let got = u128::from(root(&svg));
                prop_assert!(got <= want && got + stacks.len() as u128 >= want, "{got} of {want}");
                prop_assert!(!svg.chars().any(|c| is_unsafe(c) && c != '\n' && c != '\t'));
            }
            Err(_) => prop_assert!(total == 0, "{total}"),
        }
    }
}
