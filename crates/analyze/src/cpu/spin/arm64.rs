//! AArch64 machine code to steps: branches, loads, comparisons and hints. All else counts as work.
//!
//! Encodings: Arm Architecture Reference Manual, C4 (A64 instruction set encoding).

use super::step::{Effect, FLAGS, Flow, Places, Step};

/// Instructions are 4 bytes.
const SIZE: usize = 4;
/// `dsb`, `dmb`: barriers order memory accesses, and compute nothing.
const BARRIERS: [u32; 2] = [0xd503_309f, 0xd503_30bf];
const WFE: u32 = 0xd503_205f;
const SEVL: u32 = 0xd503_20bf;
const YIELD: u32 = 0xd503_203f;
const NOP: u32 = 0xd503_201f;
/// ISB with any option.
const ISB: u32 = 0xd503_30df;
const OPTION: u32 = 0xf00;
/// Registers 16 and above share places with those below: two registers at one place look as if one followed from the other, which
/// can only make a loop look like work.
const REGISTERS: u32 = 31;

/// The instruction at `at`; `None`: there is none, or it is cut off.
#[must_use]
pub fn step(code: &[u8], at: usize) -> Option<Step> {
    let bytes = code.get(at..at.checked_add(SIZE)?)?;
    let word = u32::from_le_bytes(bytes.try_into().ok()?);
    let mut step = Step::plain(at, at + SIZE);
    let known = hint(word, &mut step) || branch(word, code.len(), &mut step) || data(word, &mut step);
    if !known {
        step.effect = Effect::Work("it computes");
    }
    Some(step)
}

fn hint(word: u32, step: &mut Step) -> bool {
    match word {
        YIELD | WFE => step.effect = Effect::Pause,
        NOP | SEVL => {}
        _ if word | OPTION == ISB | OPTION => step.effect = Effect::Pause,
        _ if BARRIERS.iter().any(|barrier| word | OPTION == *barrier | OPTION) => {}
        _ => return false,
    }
    true
}

fn branch(word: u32, length: usize, step: &mut Step) -> bool {
    let to = |bits: u32, width: u32| {
        // The field is a signed number of instructions.
        let shift = 32 - width;
        let words = ((bits << shift) as i32) >> shift;
        let at = i64::try_from(step.at).ok()?.checked_add(i64::from(words).checked_mul(SIZE as i64)?)?;
        usize::try_from(at).ok().filter(|at| *at < length)
    };
    let (flow, reads) = match word {
        _ if word >> 26 == 0b000101 => (Flow::Jump(to(word & 0x03ff_ffff, 26)), 0),
        _ if word >> 26 == 0b100101 => (Flow::Call, 0),
        _ if word >> 24 == 0x54 => (Flow::Branch(to(word >> 5 & 0x7_ffff, 19)), FLAGS),
        _ if word >> 25 & 0x3f == 0b011010 => (Flow::Branch(to(word >> 5 & 0x7_ffff, 19)), register(word)),
        _ if word >> 25 & 0x3f == 0b011011 => (Flow::Branch(to(word >> 5 & 0x3fff, 14)), register(word)),
        _ if word >> 10 == 0xd65f_0000 >> 10 => (Flow::Return, 0),
        _ if word >> 10 == 0xd61f_0000 >> 10 => (Flow::Jump(None), 0),
        _ if word >> 10 == 0xd63f_0000 >> 10 => (Flow::Call, 0),
        _ => return false,
    };
    (step.flow, step.reads) = (flow, reads);
    if flow == Flow::Call {
        step.effect = Effect::Work("it calls");
    }
    true
}

/// Loads of one register without write-back, and comparisons.
fn data(word: u32, step: &mut Step) -> bool {
    let (target, base) = (word, word >> 5);
    let is_load = word & 0x3fc0_0000 == 0x3940_0000 // ldr, ldrb, ldrh with an unsigned offset
        || word & 0x3fff_fc00 == 0x08df_fc00 // ldar
        || word & 0x3fff_fc00 == 0x085f_7c00 // ldxr
        || word & 0x3fff_fc00 == 0x085f_fc00 // ldaxr
        || word & 0x3fff_fc00 == 0x38bf_c000; // ldapr
    if is_load {
        (step.loads, step.address) = (true, register(base));
        (step.reads, step.writes) = (register(base), register(target));
        return true;
    }
    // subs and ands to the zero register: cmp, tst.
    let to_zero = word & 0x1f == REGISTERS;
    if to_zero && matches!(word & 0x7f80_0000, 0x7100_0000 | 0x7200_0000) {
        (step.reads, step.writes) = (register(base), FLAGS);
        return true;
    }
    if to_zero && matches!(word & 0x7f20_0000, 0x6b00_0000 | 0x6a00_0000) {
        (step.reads, step.writes) = (register(base) | register(word >> 16), FLAGS);
        return true;
    }
    false
}

/// The place of the register in the low five bits; the zero register and the stack pointer have none.
fn register(field: u32) -> Places {
    let number = field & 31;
    if number == REGISTERS { 0 } else { 1 << number }
}
