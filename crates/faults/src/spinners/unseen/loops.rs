//! More loops that are as hot as a spin and do useful work. Runs in the victim process.

use std::ffi::CString;
use std::hint::black_box;

use serde::{Deserialize, Serialize};

use crate::Draw;
use crate::spinners::loops::Piece;

/// The kind of computation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Loop {
    /// Binary search in a small table.
    Search,
    /// `memchr` over the same bytes.
    Memchr,
    /// A ring of pointers that the loop follows.
    Chase,
    /// An interpreter of a few instructions.
    Interpreter,
    /// `strcmp` of equal strings.
    Compare,
    /// A count of the bits of a register.
    Popcount,
}

impl Loop {
    /// All of them.
    pub const ALL: [Loop; 6] =
        [Loop::Search, Loop::Memchr, Loop::Chase, Loop::Interpreter, Loop::Compare, Loop::Popcount];

    pub(crate) fn work(self, size: usize, draw: &mut Draw) -> Box<dyn Piece> {
        match self {
            Loop::Search => {
                let mut table: Vec<u64> = (0..64).map(|_| draw.any()).collect();
                table.sort_unstable();
                Box::new(Search { table, key: draw.any() })
            }
            Loop::Memchr => Box::new(Bytes { all: vec![b'x'; size.min(4096)] }),
            Loop::Chase => Box::new(Ring::of(draw.between(4, 64) as usize)),
            Loop::Interpreter => Box::new(Machine { program: Machine::program(draw), registers: [1; 4] }),
            Loop::Compare => {
                let text = CString::new(draw.word(24)).unwrap_or_default();
                Box::new(Text { one: text.clone(), other: text })
            }
            Loop::Popcount => Box::new(Bits { x: draw.any() }),
        }
    }
}

struct Search {
    table: Vec<u64>,
    key: u64,
}

impl Piece for Search {
    #[inline(never)]
    fn piece(&mut self) {
        for _ in 0..50_000 {
            let found = self.table.partition_point(|x| *x < self.key) as u64;
            self.key = self.key.rotate_left(7) ^ found;
        }
    }
}

struct Bytes {
    all: Vec<u8>,
}

impl Piece for Bytes {
    #[inline(never)]
    fn piece(&mut self) {
        for _ in 0..20_000 {
            // SAFETY: so many bytes are there.
            black_box(unsafe { libc::memchr(self.all.as_ptr().cast(), i32::from(b'y'), self.all.len()) });
        }
    }
}

struct Ring {
    next: Vec<usize>,
    at: usize,
}

impl Ring {
    fn of(length: usize) -> Self {
        Ring { next: (0..length).map(|i| (i + 1) % length).collect(), at: 0 }
    }
}

impl Piece for Ring {
    #[inline(never)]
    fn piece(&mut self) {
        let mut at = self.at;
        for _ in 0..500_000 {
            at = self.next[at];
        }
        self.at = black_box(at);
    }
}

#[derive(Clone, Copy)]
enum Code {
    Add(u8, u8),
    Multiply(u8, u8),
    Shift(u8, u8),
    Back,
}

struct Machine {
    program: Vec<Code>,
    registers: [u64; 4],
}

impl Machine {
    fn program(draw: &mut Draw) -> Vec<Code> {
        let mut register = || draw.between(0, 3) as u8;
        let mut all: Vec<Code> = (0..9)
            .map(|i| match i % 3 {
                0 => Code::Add(register(), register()),
                1 => Code::Multiply(register(), register()),
                _ => Code::Shift(register(), register()),
            })
            .collect();
        all.push(Code::Back);
        all
    }
}

impl Piece for Machine {
    #[inline(never)]
    fn piece(&mut self) {
        let (mut at, r) = (0, &mut self.registers);
        for _ in 0..300_000 {
            at += 1;
            match black_box(self.program[at - 1]) {
                Code::Add(a, b) => {
                    r[usize::from(a & 3)] = r[usize::from(a & 3)].wrapping_add(r[usize::from(b & 3)])
                }
                Code::Multiply(a, b) => {
                    r[usize::from(a & 3)] = r[usize::from(a & 3)].wrapping_mul(r[usize::from(b & 3)] | 3);
                }
                Code::Shift(a, b) => r[usize::from(a & 3)] ^= r[usize::from(b & 3)] >> 11,
                Code::Back => at = 0,
            }
        }
    }
}

struct Text {
    one: CString,
    other: CString,
}

impl Piece for Text {
    #[inline(never)]
    fn piece(&mut self) {
        for _ in 0..100_000 {
            // SAFETY: both are C strings.
            black_box(unsafe { libc::strcmp(self.one.as_ptr(), self.other.as_ptr()) });
        }
    }
}

struct Bits {
    x: u64,
}

impl Piece for Bits {
    #[inline(never)]
    fn piece(&mut self) {
        let mut x = self.x;
        for _ in 0..500_000 {
            x = x.rotate_left(x.count_ones()) ^ u64::from(x.count_ones());
        }
        self.x = black_box(x);
    }
}
