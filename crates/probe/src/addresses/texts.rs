//! Frames are the text of kernel files without addresses: the kernel shows addresses to root alone, and recordings have other
//! readers. Addresses become zeroes, as users without root see them.

use std::ops::RangeInclusive;

use whyslow_model::FileSnapshot;

use super::{ERRORS, SMALL};

/// Fields of /proc/PID/stat (proc_pid_stat(5)), by number: ends of code, begin of the stack, registers of a process that dies; ends of
/// data, begin of the heap, ends of arguments and environment.
const OF_STAT: [RangeInclusive<usize>; 2] = [26..=30, 45..=51];
/// Whether it waits; before v4.4 the place: b2f73922d119 ("fs/proc, core/debug: Don't expose absolute kernel addresses via wchan").
const WCHAN: usize = 35;
/// Number of the field after the name.
const BEHIND_NAME: usize = 3;
/// Position-independent programs, and what they map, lie above this; programs that are loaded below it always lie at the same address.
const ANYWHERE: u64 = 1 << 44;
/// Programs lie below this, on x86-64 and arm64, unless they request more than 48 bits.
const PROGRAMS_END: u64 = 1 << 48;

/// Replaces all addresses in the text of a kernel file by zeroes.
pub fn hide_in_frame(frame: &mut FileSnapshot) {
    match frame.name.as_str() {
        "dev/kmsg" => hide_in_log(&mut frame.bytes),
        "proc/modules" => hide_words(&mut frame.bytes, |word| is_kernels(&word)),
        name if is_stat_of_process(name) => hide_in_stat(&mut frame.bytes),
        _ => {}
    }
}

fn is_stat_of_process(name: &str) -> bool {
    let pid = name.strip_prefix("proc/").and_then(|rest| rest.strip_suffix("/stat"));
    pid.is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The name may hold anything, also blanks and brackets: fields are counted from the last bracket on.
fn hide_in_stat(text: &mut Vec<u8>) {
    let Some(name_end) = text.iter().rposition(|byte| *byte == b')') else { return };
    let fields = text.split_off(name_end.saturating_add(2).min(text.len()));
    for (field, number) in fields.split(|byte| *byte == b' ').zip(BEHIND_NAME..) {
        if number > BEHIND_NAME {
            text.push(b' ');
        }
        let digits = field.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (value, rest) = field.split_at(digits);
        let shown: &[u8] = match value {
            [_, ..] if OF_STAT.iter().any(|fields| fields.contains(&number)) => b"0",
            [_, _, ..] if number == WCHAN => b"1",
            value => value,
        };
        text.extend(shown);
        text.extend(rest);
    }
}

/// A trace in the kernel's log has the addresses of functions without a name, and registers; the line about a program that dies has the
/// place. The part before the text is left as it is: it holds the numbers of the record.
fn hide_in_log(log: &mut [u8]) {
    for line in log.split_mut(|byte| *byte == b'\n') {
        let text = line.iter().position(|byte| *byte == b';').unwrap_or(0);
        hide_words(line.get_mut(text..).unwrap_or_default(), |word| is_kernels(&word) || is_programs(&word));
    }
}

/// Digits, hexadecimal or not, and the byte before them.
struct Word<'t> {
    digits: &'t str,
    before: u8,
}

impl Word<'_> {
    fn value(&self, radix: u32) -> Option<u64> {
        u64::from_str_radix(self.digits, radix).ok()
    }
}

fn hide_words(text: &mut [u8], is_address: impl Fn(Word<'_>) -> bool) {
    let mut before = 0;
    for part in text.chunk_by_mut(|a, b| a.is_ascii_hexdigit() && b.is_ascii_hexdigit()) {
        let last = part.last().copied().unwrap_or(0);
        let digits = std::str::from_utf8(part).unwrap_or_default();
        if is_address(Word { digits, before }) {
            part.fill(b'0');
        }
        before = last;
    }
}

/// The upper half of x86-64's and arm64's address spaces, without small negative numbers.
fn is_kernels(word: &Word<'_>) -> bool {
    let kernel = 0xffff_0000_0000_0000..u64::MAX - ERRORS;
    [16, 10].into_iter().filter_map(|radix| word.value(radix)).any(|value| kernel.contains(&value))
}

/// Registers and places are written with all digits ("ip 00007f..."), or as short as they are ("segfault at 7f..."): then a
/// decimal number of as many digits has no letter, and the end of a UUID comes after a dash. Physical memory is written with
/// 0x and lies below.
fn is_programs(word: &Word<'_>) -> bool {
    let Some(value) = word.value(16).filter(|value| *value < PROGRAMS_END) else { return false };
    match (word.digits.len(), word.before) {
        (16, b'x') | (12, b'x') => value >= ANYWHERE,
        (16, _) => value >= SMALL,
        (12, b'-') => false,
        (12, _) => value >= ANYWHERE && word.digits.bytes().any(|digit| digit.is_ascii_alphabetic()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn hidden(name: &str, text: &str) -> String {
        let mut frame = FileSnapshot { at: Duration::ZERO, name: name.to_owned(), bytes: text.into() };
        hide_in_frame(&mut frame);
        String::from_utf8(frame.bytes).unwrap()
    }

    /// Linux 6.18, as root.
    const STAT: &str = "(cat) R 17051 17051 12846 0 -1 4194304 98 0 0 0 0 0 0 0 20 0 1 0 162467 3133440 348 \
        18446744073709551615 94706064891904 94706064911785 140736827594032 140736827590000 94706064900000 0 0 0 0 1 0 0 17 \
        0 0 0 0 0 0 94706064927792 94706064929408 94707023212544 140736827599553 140736827599573 140736827599573 \
        140736827600875 0\n";
    /// The same as another user sees it.
    const FOR_OTHERS: &str = "(cat) R 17051 17051 12846 0 -1 4194304 98 0 0 0 0 0 0 0 20 0 1 0 162467 3133440 348 \
        18446744073709551615 0 0 0 0 0 0 0 0 0 1 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n";

    #[test]
    fn where_a_process_has_its_memory_is_not_kept_whatever_its_name_is() {
        for name in ["(cat)", "(a b)", "(c) R 1 (d)", "(e)\n) S 94706064891904", "()"] {
            let name = if name.ends_with(')') { name.to_owned() } else { format!("({name})") };
            let of = |stat: &str| format!("17055 {}", stat.replace("(cat)", &name));
            assert_eq!(hidden("proc/17055/stat", &of(STAT)), of(FOR_OTHERS), "{name}");
        }
        let old = STAT.replace(" 0 0 0 0 1 0 0 17", " 0 0 0 0 18446744071579755233 0 0 17");
        assert_eq!(hidden("proc/7/stat", &old), FOR_OTHERS, "where it waits, before 4.4");
        assert_eq!(hidden("proc/7/stat", FOR_OTHERS), FOR_OTHERS);
    }

    #[test]
    fn of_other_files_nothing_is_changed() {
        for name in ["proc/stat", "proc/a/stat", "proc//stat", "proc/7/status", "netns/7/stat"] {
            assert_eq!(hidden(name, STAT), STAT, "{name}");
        }
        for torn in ["", "7", "7 (a", "7 (a)", "7 (a) ", "7 (a) S 1", "7 (a) S 1 \n"] {
            assert_eq!(hidden("proc/7/stat", torn), torn);
        }
    }

    #[test]
    fn modules_keep_their_names_and_sizes() {
        let modules = "nf_tables 327680 0 - Live 0xffffffffc0a3b000 (OE)\nnfnetlink 20480 2 nf_tables, Live 0xffff80007a2c4000\n";
        assert_eq!(
            hidden("proc/modules", modules),
            modules.replace("ffffffffc0a3b000", &"0".repeat(16)).replace("ffff80007a2c4000", &"0".repeat(16))
        );
    }

    #[test]
    fn a_trace_in_the_log_keeps_its_names_and_no_address() {
        let log = "4,9,255,-; 0xffffffffc0000b49\n4,9,255,-;RAX: ffff88800a1b2c3d RBX: 00007f12 18446612691455601400 -1 \
                   bpf_check+0x2a63/0x3280 ffffffffffffffff";
        let zeroes = log
            .replace("ffffffffc0000b49", "0000000000000000")
            .replace("ffff88800a1b2c3d", "0000000000000000")
            .replace("18446612691455601400", "00000000000000000000");
        assert_eq!(hidden("dev/kmsg", log), zeroes);
    }

    /// Words of show_signal_msg (arch/x86/mm/fault.c), print_vma_addr and __show_regs.
    #[test]
    fn a_program_that_died_keeps_its_name_and_no_address() {
        let log = "6,812,123456789012,-;web[4711]: segfault at 7f3c2a1b0010 ip 0000561f2a3b4c5d sp 00007ffc9a8b7c60 error 4 in \
            web[1c5d,561f2a3b3000+2a000] likely on CPU 1 (core 1, socket 0)\n4,813,1,-;RSP: 002b:00007ffc9a8b7c60 EFLAGS: \
            00000246 ORIG_RAX: 0000000000000005\n4,814,1,-;RIP: 0033:0x7f3c2a1b0010\n";
        let mut zeroes = log.to_owned();
        for address in ["7f3c2a1b0010", "0000561f2a3b4c5d", "00007ffc9a8b7c60", "561f2a3b3000"] {
            zeroes = zeroes.replace(address, &"0".repeat(address.len()));
        }
        assert_eq!(hidden("dev/kmsg", log), zeroes);
    }

    #[test]
    fn numbers_of_the_log_that_are_no_addresses_are_kept() {
        let log = "6,1,900000000000,-;Command line: root=UUID=0b9c6f2e-11aa-4b7e-9f11-7f3c2a1b0010\n6,2,3,-;BIOS-e820: [mem \
            0x0000000100000000-0x000000203fffffff] usable\n6,3,4,-;sda: 937500000000 512-byte blocks, took 123456789012 ns\n \
            DEVICE=b8:0\n";
        assert_eq!(hidden("dev/kmsg", log), log);
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".*", name in "(dev/kmsg|proc/modules|proc/7/stat)") {
            hidden(&name, &text);
        }
    }
}
