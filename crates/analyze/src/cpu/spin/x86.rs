//! x86-64 machine code to steps.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};

use super::step::{Effect, FLAGS, Flow, LOW, Places, SLOTS, Step, WHOLE};

/// Decodes the code of one window; slots of the stack frame keep their numbers within it.
pub struct X86<'c> {
    code: &'c [u8],
    info: InstructionInfoFactory,
    slots: Vec<(Register, u64)>,
}

impl<'c> X86<'c> {
    /// The decoder of this code.
    #[must_use]
    pub fn new(code: &'c [u8]) -> Self {
        X86 { code, info: InstructionInfoFactory::new(), slots: Vec::new() }
    }

    /// The instruction at `at`; `None`: there is none, or it is cut off.
    pub fn step(&mut self, at: usize) -> Option<Step> {
        let mut decoder = Decoder::with_ip(64, self.code.get(at..)?, at as u64, DecoderOptions::NONE);
        if !decoder.can_decode() {
            return None;
        }
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return None;
        }
        let mut step = Step::plain(at, at + instruction.len());
        step.flow = self.flow(&instruction);
        step.effect = effect(&instruction);
        self.note_registers(&instruction, &mut step);
        self.note_memory(&instruction, &mut step);
        if instruction.rflags_read() != 0 {
            step.reads |= FLAGS;
        }
        if instruction.rflags_modified() != 0 {
            step.writes |= FLAGS;
        }
        match step.effect {
            Effect::Step { .. } => step.effect = copied(&instruction, &step),
            Effect::Exchange { .. } if instruction.op1_kind() == OpKind::Register => {
                step.effect = Effect::Exchange { stored: places_of(instruction.op1_register()).unwrap_or(0) };
            }
            _ => {}
        }
        Some(step)
    }

    fn flow(&self, instruction: &Instruction) -> Flow {
        let to = usize::try_from(instruction.near_branch_target()).ok().filter(|to| *to < self.code.len());
        match instruction.flow_control() {
            FlowControl::Next => Flow::Next,
            FlowControl::UnconditionalBranch => Flow::Jump(to),
            FlowControl::ConditionalBranch => Flow::Branch(to),
            FlowControl::IndirectBranch => Flow::Jump(None),
            FlowControl::Return => Flow::Return,
            _ => Flow::Call,
        }
    }

    fn note_registers(&mut self, instruction: &Instruction, step: &mut Step) {
        for used in self.info.info(instruction).used_registers() {
            let register = used.register();
            if register.is_vector_register() || register.is_st() || register.is_mm() || register.is_k() {
                step.effect = worked(step.effect, "it computes with vector or floating-point registers");
            }
            let Some(places) = places_of(register) else { continue };
            let (reads, writes) = accesses(used.access());
            step.reads |= if reads { places } else { 0 };
            step.writes |= if writes { places } else { 0 };
        }
    }

    fn note_memory(&mut self, instruction: &Instruction, step: &mut Step) {
        let used = self.info.info(instruction).used_memory().to_vec();
        for memory in used {
            let (reads, writes) = accesses(memory.access());
            if !reads && !writes {
                continue; // lea and long nops only name an address
            }
            let base = memory.base();
            let is_frame = matches!(base, Register::RSP | Register::RBP) && memory.index() == Register::None;
            if is_frame && !moves_the_stack(instruction) {
                let slot = self.slot(base, memory.displacement());
                step.frame |= WHOLE(number(base));
                step.reads |= if reads { slot } else { 0 };
                step.writes |= if writes && !is_fence(instruction) { slot } else { 0 };
                continue;
            }
            step.address |= [base, memory.index()].into_iter().filter_map(places_of).fold(0, |a, b| a | b);
            step.loads |= reads;
            if writes && !matches!(step.effect, Effect::Exchange { .. }) {
                step.effect = worked(step.effect, "it stores to memory");
            }
        }
    }

    fn slot(&mut self, base: Register, displacement: u64) -> Places {
        let known = self.slots.iter().position(|slot| *slot == (base, displacement));
        let at = known.unwrap_or_else(|| {
            self.slots.push((base, displacement));
            self.slots.len() - 1
        });
        let last = SLOTS.end - 1;
        1 << (SLOTS.start.saturating_add(u32::try_from(at).unwrap_or(last))).min(last)
    }
}

fn accesses(access: OpAccess) -> (bool, bool) {
    match access {
        OpAccess::Read | OpAccess::CondRead => (true, false),
        OpAccess::Write => (false, true),
        // A place that is written only sometimes keeps its old value at other times: as if it were read.
        OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
        OpAccess::None | OpAccess::NoMemAccess => (false, false),
    }
}

fn number(register: Register) -> u32 {
    u32::try_from(register.full_register().number()).unwrap_or(0)
}

fn places_of(register: Register) -> Option<Places> {
    if !register.is_gpr() {
        return None; // rip and segments do not change in a loop; vectors are noted otherwise
    }
    let high = matches!(register, Register::AH | Register::BH | Register::CH | Register::DH);
    let low = register.size() <= 2 && !high;
    Some(if low { LOW(number(register)) } else { WHOLE(number(register)) })
}

fn moves_the_stack(instruction: &Instruction) -> bool {
    instruction.is_stack_instruction()
}

/// `lock or [rsp+n], 0` and the like: compilers' memory barrier.
fn is_fence(instruction: &Instruction) -> bool {
    let is_or = matches!(instruction.mnemonic(), Mnemonic::Or | Mnemonic::Add);
    is_or && instruction.has_lock_prefix() && is_immediate(instruction, 1) && instruction.immediate(1) == 0
}

fn is_immediate(instruction: &Instruction, operand: u32) -> bool {
    let kind = |at| instruction.op_count() > at && is_immediate_kind(instruction.op_kind(at));
    kind(operand)
}

fn is_immediate_kind(kind: OpKind) -> bool {
    use OpKind::{Immediate8, Immediate8to16, Immediate8to32, Immediate8to64, Immediate16, Immediate32};
    use OpKind::{Immediate32to64, Immediate64};
    matches!(
        kind,
        Immediate8
            | Immediate8to16
            | Immediate8to32
            | Immediate8to64
            | Immediate16
            | Immediate32
            | Immediate32to64
            | Immediate64
    )
}

fn effect(instruction: &Instruction) -> Effect {
    use Mnemonic as M;
    if instruction.is_string_instruction() {
        return Effect::Work("it moves through memory");
    }
    match instruction.mnemonic() {
        M::Pause | M::Tpause | M::Umwait | M::Mwait | M::Mwaitx => Effect::Pause,
        M::Rdtsc | M::Rdtscp => Effect::Clock,
        M::Xchg | M::Cmpxchg | M::Bts if instruction.op0_kind() == OpKind::Memory => {
            Effect::Exchange { stored: 0 }
        }
        M::Cpuid | M::Rdrand | M::Rdseed | M::Rdpmc | M::In | M::Out | M::Xgetbv | M::Cmpxchg16b => {
            Effect::Work("it asks a device or the CPU")
        }
        M::Clflush | M::Clflushopt | M::Clwb => Effect::Work("it writes memory back"),
        M::Mov | M::Inc | M::Dec | M::Add | M::Sub | M::Lea | M::Movsxd | M::Movzx | M::Cdqe => {
            Effect::Step { from: 0 }
        }
        _ if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) => {
            Effect::Work("it calls")
        }
        _ if matches!(instruction.flow_control(), FlowControl::Interrupt | FlowControl::Exception) => {
            Effect::Work("it traps")
        }
        _ => Effect::Compute,
    }
}

/// PAUSE stays PAUSE; else the first reason for work stays.
fn worked(effect: Effect, what: &'static str) -> Effect {
    match effect {
        Effect::Pause | Effect::Work(_) => effect,
        _ => Effect::Work(what),
    }
}

/// For a move, or an addition of a constant, the source; else the instruction computes.
fn copied(instruction: &Instruction, step: &Step) -> Effect {
    use Mnemonic as M;
    let adds = matches!(instruction.mnemonic(), M::Add | M::Sub) && !is_immediate(instruction, 1);
    let scales = instruction.mnemonic() == M::Lea && instruction.memory_index() != Register::None;
    let from = step.reads & !step.address_only(instruction);
    let one_place = from.count_ones() <= 2 && from != 0;
    if adds || scales || !one_place || step.loads { Effect::Compute } else { Effect::Step { from } }
}

impl Step {
    /// Registers that only hold an address: `lea` computes with them, other instructions load from there.
    fn address_only(&self, instruction: &Instruction) -> Places {
        if instruction.mnemonic() == Mnemonic::Lea { 0 } else { self.address | self.frame }
    }
}
