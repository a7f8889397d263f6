//! One machine instruction, reduced to what shows whether a loop makes progress.

/// Places of values: general registers in two parts, the flags, and slots of the stack frame.
///
/// A write of 8 or 16 bits leaves the rest of a register unchanged, so the low part has a bit of its own.
pub type Places = u64;

/// The upper and lower part of general register `n` (0 to 31).
pub const LOW: fn(u32) -> Places = |n| 1 << (n & 15);
/// All of general register `n`.
pub const WHOLE: fn(u32) -> Places = |n| 1 << (n & 15) | 1 << (16 + (n & 15));
pub const FLAGS: Places = 1 << 32;
/// Slots of the stack frame; slots above the last one are not distinguished.
pub const SLOTS: std::ops::Range<u32> = 33..64;

/// Where execution goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// The next instruction.
    Next,
    /// This offset in the code; `None`: out of it, or not known.
    Jump(Option<usize>),
    /// The next instruction or this offset.
    Branch(Option<usize>),
    /// Back to the caller.
    Return,
    /// A function or a system call, then the next instruction.
    Call,
}

/// What an instruction does to values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Its results follow from its inputs.
    Compute,
    /// A copy of `from`, plus a constant.
    Step {
        /// The place that is copied.
        from: Places,
    },
    /// An atomic exchange with memory: the value read follows from the memory alone.
    Exchange {
        /// What is stored.
        stored: Places,
    },
    /// A clock is read.
    Clock,
    /// It waits for a moment and tells the CPU that it does.
    Pause,
    /// An operation that a loop that only waits does not need, in words.
    Work(&'static str),
}

/// One instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Offset of its first byte.
    pub at: usize,
    /// Offset behind its last.
    pub next: usize,
    /// Where execution goes on.
    pub flow: Flow,
    /// What it does.
    pub effect: Effect,
    /// Places it reads, addresses included.
    pub reads: Places,
    /// ... of these, the registers of addresses.
    pub address: Places,
    /// Places it writes.
    pub writes: Places,
    /// It loads from memory that is not a slot of the stack frame.
    pub loads: bool,
    /// The registers that slots of the stack frame are counted from, if it uses one.
    pub frame: Places,
}

impl Step {
    /// An instruction without any effect.
    #[must_use]
    pub fn plain(at: usize, next: usize) -> Self {
        let (reads, address, writes, frame) = (0, 0, 0, 0);
        Step {
            at,
            next,
            flow: Flow::Next,
            effect: Effect::Compute,
            reads,
            address,
            writes,
            loads: false,
            frame,
        }
    }

    /// The target of the jump.
    #[must_use]
    pub fn target(&self) -> Option<usize> {
        match self.flow {
            Flow::Jump(target) | Flow::Branch(target) => target,
            Flow::Next | Flow::Return | Flow::Call => None,
        }
    }

    /// Whether the next instruction may be the next one in memory.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        matches!(self.flow, Flow::Next | Flow::Branch(_) | Flow::Call)
    }
}
