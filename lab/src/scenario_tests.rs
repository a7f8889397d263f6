use proptest::prelude::*;

use super::*;

const TEXT: &str = r#"
about = "A test"
kernels = ["6.1", "6.12"]
promised = false
[hardware]
vcpus = 4
[draw]
share = { between = [0.25, 0.5] }
args = { of = [["--for", "4s"], ["chains", "--for", "4s"]] }
mib = { between = [100, 200] }
fault = { of = ["cpu-quota", "cpu-pinned"] }
keeper = "word"
[[fault]]
kind = "live-fault"
fault = "$fault"
memory_mib = "$mib"
[look]
args = "$args"
[[answer]]
rules = ["$fault"]
names = ["a-$keeper-$mib", "{group}"]
lost = [0.6, 1.4]
"#;

#[test]
fn drawn_values_replace_their_words_in_the_script() {
    let scenario = Scenario::parse("a", TEXT).unwrap();
    assert!(!scenario.head.promised && !scenario.head.ci);
    assert_eq!((scenario.vcpus(), scenario.sort()), (4, Sort::Fault));
    for seed in 0..50 {
        let (script, drawn) = scenario.drawn(&Draw::with(seed), 4).unwrap();
        let word = drawn["keeper"].as_str().unwrap();
        assert_eq!(script.answer[0].names[0], format!("a-{word}-{}", drawn["mib"].as_integer().unwrap()));
        assert_eq!(script.answer[0].rules[0], drawn["fault"].as_str().unwrap());
        assert!((100..=200).contains(&drawn["mib"].as_integer().unwrap()));
        assert!((0.25..0.5).contains(&drawn["share"].as_float().unwrap()));
        assert!(script.look.args.ends_with(&["--for".to_owned(), "4s".to_owned()]));
    }
}

#[test]
fn the_same_seed_draws_the_same_and_a_new_name_changes_no_other() {
    let drawn = |text: &str| Scenario::parse("a", text).unwrap().drawn(&Draw::with(9), 2).unwrap().1;
    let before = drawn(TEXT);
    assert_eq!(before, drawn(TEXT));
    let mut after = drawn(&TEXT.replace("keeper =", "another = \"cpu\"\nkeeper ="));
    assert!(after.remove("another").is_some());
    assert_eq!(before, after);
}

#[test]
fn unknown_word_in_a_scenario_is_refused() {
    let refused = |from: &str, to: &str| {
        let text = TEXT.replace(from, to);
        assert_ne!(text, TEXT);
        let all = Scenario::parse("a", &text).and_then(|s| s.drawn(&Draw::with(1), 2));
        all.expect_err(to)
    };
    assert!(refused("$keeper", "$keepers").contains("$keepers is not drawn"));
    refused("kind = \"live-fault\"", "kind = \"live-faults\"");
    refused("memory_mib", "memory");
    refused("lost =", "loss =");
    refused("names =", "of = 1\nnames =");
    refused("[100, 200]", "[200, 100]");
    refused("kernels = [\"6.1\", \"6.12\"]", "kernels = []");
}

#[test]
fn the_guest_of_a_boot_before_differs_in_what_is_said() {
    let drawn = |more: &str| {
        let text =
            format!("about = \"x\"\nkernels = [\"6.1\"]\n[hardware]\nvcpus = 1\nicount_shift = 3\n{more}");
        Scenario::parse("a", &text).unwrap().drawn(&Draw::with(1), 1).unwrap().0
    };
    let script = drawn("[baseline]\nhardware = { icount_shift = 1 }\nwindow_s = 4\n");
    let before = script.hardware_before().unwrap();
    assert_eq!(before["icount_shift"].as_integer(), Some(1));
    assert_eq!(before["vcpus"].as_integer(), Some(1));
    assert_eq!(script.hardware["icount_shift"].as_integer(), Some(3));
    assert_eq!(drawn("").hardware_before(), None);
}

#[test]
fn sorts_are_reported_by_what_is_asked() {
    let sort = |more: &str| {
        Scenario::parse("a", &format!("about = \"x\"\nkernels = [\"6.1\"]\n{more}")).unwrap().sort()
    };
    assert_eq!(sort(""), Sort::Control);
    assert_eq!(sort("[[answer]]\n[[answer]]\nof = 0\n"), Sort::Fault);
    assert_eq!(sort("[[answer]]\n[[answer]]\nof = 1\n"), Sort::Double);
}

#[test]
fn every_scenario_of_the_lab_can_be_drawn() {
    let all = Scenario::all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")).unwrap();
    assert!(!all.is_empty());
    for scenario in all {
        for seed in 0..100 {
            scenario.drawn(&Draw::with(seed), scenario.vcpus()).unwrap();
        }
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC{0,200}", cut in 0..TEXT.len(), put in "[\\[\\]={}\"$a-z0-9.\\n-]{0,12}") {
        let _ = Scenario::parse("a", &text).and_then(|s| s.drawn(&Draw::with(1), 2));
        let text = format!("{}{put}{}", &TEXT[..cut], &TEXT[cut..]);
        let _ = Scenario::parse("a", &text).and_then(|s| s.drawn(&Draw::with(1), 2));
    }
}
