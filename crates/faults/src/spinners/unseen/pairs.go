// Pairs of goroutines: one waits for an atomic and works, the other keeps it waiting. Arguments: a name (Go does not name its threads),
// pairs, microseconds of CPU of a wait, of work, microseconds of rest, turns per microsecond.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const grainNs = 4_000_000

type pair struct {
	asked, given atomic.Int32
	waiter       atomic.Int64
}

var sink atomic.Uint64

func clock(id int64) int64 {
	var ts syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, uintptr(id), uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano()
}

// The kernel's MAKE_THREAD_CPUCLOCK(tid, CPUCLOCK_SCHED).
func clockOf(tid int64) int64 { return ^tid<<3 | 6 }

func work(turns float64) {
	x := sink.Load() | 1
	for i := uint64(turns); i > 0; i-- {
		x = x*6364136223846793005 + 1442695040888963407
	}
	sink.Store(x)
}

//go:noinline
func (p *pair) wait(round int32) {
	for p.given.Load() != round {
	}
}

func (p *pair) waitAndWork(slot int, workUs, restUs, turns float64) {
	runtime.LockOSThread()
	tid := int64(syscall.Gettid())
	fmt.Printf("thread %d %d -\n", slot, tid)
	p.waiter.Store(tid)
	var spun, worked, noted int64
	before := clock(clockOf(tid))
	for round := int32(1); ; round++ {
		p.asked.Store(round)
		p.wait(round)
		waited := clock(clockOf(tid))
		work(workUs * turns)
		if restUs > 0 {
			time.Sleep(time.Duration(restUs * 1e3))
		}
		after, now := clock(clockOf(tid)), clock(1)
		spun += waited - before
		worked += after - waited
		before = after
		if now >= noted+grainNs {
			fmt.Printf("%d %d %d %d\n", now, slot, spun, worked)
			noted = now
		}
	}
}

func (p *pair) give(spinUs float64) {
	var round int32
	for {
		time.Sleep(100 * time.Microsecond)
		if p.asked.Load() == round {
			continue
		}
		round = p.asked.Load()
		tid := p.waiter.Load()
		until := clock(clockOf(tid)) + int64(spinUs*1e3)
		for left := until - clock(clockOf(tid)); left > 0; left = until - clock(clockOf(tid)) {
			time.Sleep(time.Duration(max(left, 100_000)))
		}
		p.given.Store(round)
	}
}

func number(at int) float64 {
	value, err := strconv.ParseFloat(os.Args[at], 64)
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	for slot := 0; slot < int(number(2)); slot++ {
		p := new(pair)
		go p.waitAndWork(slot, number(4), number(5), number(6))
		go p.give(number(3))
	}
	select {}
}
