// A lock chain of Go mutexes: goroutines, each on a thread of its own; each holds what the goroutine before it wants.
//
// It reads its plan and reports its waits as the other lock chains do: see crates/faults/src/lock_chain.rs (Plan), src/ledger.rs (the
// layout of the shared memory) and src/lock_chain/climb.rs.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// Layout of the ledger, in words of 64 bits.
const (
	control = 64
	head    = 8
	moments = 30000
	perSlot = head + 2*moments

	wordGo   = 0
	wordStop = 1

	factTid   = 0
	factNoted = 2
	factBegan = 6
	factEnded = 7

	noteWants = 1
	noteGot   = 2
	noteCPU   = 3
)

const (
	clockMonotonic = 1
	clockThreadCPU = 3
	timerAbstime   = 1
	prSetName      = 15
	lookNs         = 300_000
	paceNs         = 1_000_000
	blockSize      = 4096
	fileSize       = 16 << 20
)

type plan struct {
	Positions []int    `json:"positions"`
	Names     []string `json:"names"`
	Leaf      string   `json:"leaf"`
	Rounds    []uint64 `json:"rounds"`
	EveryUs   uint64   `json:"every_us"`
	StepUs    uint64   `json:"step_us"`
	Healthy   bool     `json:"healthy"`
	Dir       string   `json:"dir"`
}

type spec struct {
	Join      []string `json:"join"`
	Ledger    int      `json:"ledger"`
	LifetimeS uint64   `json:"lifetime_s"`
	Work      struct {
		LockChain plan
	} `json:"work"`
}

type lockChain struct {
	plan
	words []uint64
	slots []int
	locks []sync.Mutex
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "lock_chain:", err)
		os.Exit(3)
	}
}

// A time, read from the kernel: the runtime does not export its own clock.
func clock(id uintptr) uint64 {
	var ts syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	return uint64(ts.Nano())
}

// Sleep in the kernel, on this thread: a timer of the runtime would belong to another thread.
func sleepUntil(ns uint64) {
	ts := syscall.NsecToTimespec(int64(ns))
	syscall.Syscall6(syscall.SYS_CLOCK_NANOSLEEP, clockMonotonic, timerAbstime, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
}

func (l *lockChain) word(index int) *uint64 { return &l.words[index] }

func (l *lockChain) fact(position, fact int) *uint64 {
	return l.word(control + l.slots[position]*perSlot + fact)
}

func (l *lockChain) note(position, what, round int, at uint64) {
	noted := atomic.LoadUint64(l.fact(position, factNoted))
	if noted >= moments {
		return
	}
	index := control + l.slots[position]*perSlot + head + 2*int(noted)
	atomic.StoreUint64(l.word(index), at)
	atomic.StoreUint64(l.word(index+1), uint64(round)<<8|uint64(what))
	atomic.StoreUint64(l.fact(position, factNoted), noted+1)
}

// The moment at which the harness let all threads begin.
func (l *lockChain) begun() uint64 { return atomic.LoadUint64(l.word(wordGo)) }

func (l *lockChain) goesOn() bool { return atomic.LoadUint64(l.word(wordStop)) == 0 }

// False: the harness stopped the chain first.
func (l *lockChain) until(come func() bool) bool {
	for !come() {
		if !l.goesOn() {
			return false
		}
		sleepUntil(clock(clockMonotonic) + lookNs)
	}
	return true
}

// Wait for this thread's turn: the leaf comes first and the top last; each thread starts when the one below it waits.
func (l *lockChain) turn(position, round int) bool {
	below := position + 1
	due := l.begun() + uint64(round)*l.EveryUs*1000
	sleepUntil(due + uint64(len(l.Names)-below)*l.StepUs*1000)
	if below == len(l.Names) {
		return l.until(func() bool {
			for p := range l.Names {
				if atomic.LoadUint64(l.fact(p, factEnded)) < uint64(round) {
					return false
				}
			}
			return true
		})
	}
	return l.until(func() bool { return atomic.LoadUint64(l.fact(below, factBegan)) > uint64(round) })
}

func (l *lockChain) round(position, round int, leaf func(us uint64)) bool {
	if !l.turn(position, round) {
		return false
	}
	if position > 0 {
		l.locks[position-1].Lock()
	}
	atomic.StoreUint64(l.fact(position, factBegan), uint64(round)+1)
	cpu := clock(clockThreadCPU)
	l.note(position, noteWants, round, clock(clockMonotonic))
	if position+1 == len(l.Names) {
		leaf(l.Rounds[round])
	} else {
		l.locks[position].Lock()
		l.locks[position].Unlock()
	}
	l.note(position, noteGot, round, clock(clockMonotonic))
	l.note(position, noteCPU, round, clock(clockThreadCPU)-cpu)
	if position > 0 {
		l.locks[position-1].Unlock()
	}
	atomic.StoreUint64(l.fact(position, factEnded), uint64(round)+1)
	return true
}

// The same locks, taken one by one, and held for a short time only.
func (l *lockChain) walk(position int) {
	for tick := uint64(1); l.goesOn(); tick++ {
		sleepUntil(l.begun() + tick*paceNs)
		for _, index := range []int{position - 1, position} {
			if index >= 0 && index < len(l.locks) {
				l.locks[index].Lock()
				burn(clock(clockMonotonic) + 5_000)
				l.locks[index].Unlock()
			}
		}
	}
}

func burn(until uint64) {
	x := uint64(1)
	for clock(clockMonotonic) < until {
		for range 20_000 {
			x = x*6364136223846793005 + 1442695040888963407
		}
	}
	runtime.KeepAlive(x)
}

// The work of the leaf.
func (l *lockChain) leaf() func(us uint64) {
	switch l.Leaf {
	case "Sleep":
		return func(us uint64) { sleepUntil(clock(clockMonotonic) + us*1000) }
	case "Burn":
		return func(us uint64) { burn(clock(clockMonotonic) + us*1000) }
	case "GracePeriod":
		return func(uint64) { syscall.Syscall(324, 1, 0, 0) } // membarrier, MEMBARRIER_CMD_GLOBAL
	case "Disk":
		fd, err := syscall.Open(filepath.Join(l.Dir, "leaf"), syscall.O_RDONLY|syscall.O_DIRECT, 0)
		check(err)
		block, err := syscall.Mmap(-1, 0, blockSize, syscall.PROT_READ|syscall.PROT_WRITE,
			syscall.MAP_PRIVATE|syscall.MAP_ANON)
		check(err)
		at := int64(0)
		return func(us uint64) {
			for end := clock(clockMonotonic) + us*1000; clock(clockMonotonic) < end; at += blockSize {
				_, err := syscall.Pread(fd, block, at%fileSize)
				check(err)
			}
		}
	}
	check(fmt.Errorf("a Go lock_chain has no leaf %q", l.Leaf))
	return nil
}

// One thread: say "ready", wait for the start, climb.
func (l *lockChain) climb(position int) {
	runtime.LockOSThread()
	name := append([]byte(l.Names[position]), 0)
	syscall.RawSyscall(syscall.SYS_PRCTL, prSetName, uintptr(unsafe.Pointer(&name[0])), 0)
	leaf := func(uint64) {}
	if position+1 == len(l.Names) && !l.Healthy {
		leaf = l.leaf()
	}
	atomic.StoreUint64(l.fact(position, factTid), uint64(syscall.Gettid()))
	for atomic.LoadUint64(l.word(wordGo)) == 0 {
		sleepUntil(clock(clockMonotonic) + 500_000)
	}
	if l.Healthy {
		l.walk(position)
		return
	}
	for round := range l.Rounds {
		if !l.round(position, round, leaf) {
			return
		}
	}
}

func main() {
	var s spec
	check(json.Unmarshal([]byte(os.Getenv("WHYSLOW_VICTIM")), &s))
	syscall.RawSyscall(syscall.SYS_ALARM, uintptr(s.LifetimeS), 0, 0)
	check(os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0))
	for _, procs := range s.Join {
		check(os.WriteFile(procs, []byte("0"), 0))
	}
	n := len(s.Work.LockChain.Names)
	// On one CPU the runtime would run one goroutine at a time: a goroutine that returns from a system call then waits until sysmon, which
	// checks every 10 ms, takes the right to run from a goroutine that computes or sleeps in the kernel. Rounds are shorter than that.
	runtime.GOMAXPROCS(2 * n)
	size := (control + n*perSlot) * 8
	memory, err := syscall.Mmap(s.Ledger, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	check(err)
	l := &lockChain{plan: s.Work.LockChain, slots: make([]int, n), locks: make([]sync.Mutex, n-1)}
	l.words = unsafe.Slice((*uint64)(unsafe.Pointer(&memory[0])), size/8)
	for slot, position := range l.Positions {
		l.slots[position] = slot
	}
	var threads sync.WaitGroup
	for _, position := range l.Positions {
		threads.Add(1)
		go func() {
			defer threads.Done()
			l.climb(position)
		}()
	}
	threads.Wait()
}
