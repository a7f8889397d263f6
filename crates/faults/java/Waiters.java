import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.concurrent.locks.LockSupport;

/** Pairs of threads: one waits with Thread.onSpinWait and works, the other keeps it waiting. Arguments: name of the waiters, pairs,
 * microseconds of CPU of a wait, of work, microseconds of rest, turns per microsecond. */
final class Waiters {
    private static final long GRAIN_NS = 4_000_000;
    private static final ThreadMXBean CLOCKS = ManagementFactory.getThreadMXBean();
    private static volatile long sink;

    private volatile int asked;
    private volatile int given;

    public static void main(String[] words) {
        int pairs = Integer.parseInt(words[1]);
        long[] us = {Long.parseLong(words[2]), Long.parseLong(words[3]), Long.parseLong(words[4])};
        double turns = Double.parseDouble(words[5]);
        for (int i = 0; i < pairs; i++) {
            int slot = i;
            Waiters pair = new Waiters();
            Thread waiter = new Thread(() -> pair.waitAndWork(slot, us[1], us[2], turns), words[0] + i);
            print("thread " + slot + " 0 " + waiter.getName());
            waiter.start();
            new Thread(() -> pair.give(waiter, us[0]), "giver-" + i).start();
        }
    }

    private static synchronized void print(String line) {
        System.out.print(line + "\n");
        System.out.flush();
    }

    private void waitAndWork(int slot, long workUs, long restUs, double turns) {
        long spun = 0, worked = 0, noted = 0, before = CLOCKS.getCurrentThreadCpuTime();
        for (int round = 1; ; round++) {
            asked = round;
            while (given != round) {
                Thread.onSpinWait();
            }
            long waited = CLOCKS.getCurrentThreadCpuTime();
            sink = work((long) (workUs * turns), sink);
            if (restUs > 0) {
                LockSupport.parkNanos(restUs * 1000);
            }
            long now = System.nanoTime(), after = CLOCKS.getCurrentThreadCpuTime();
            spun += waited - before;
            worked += after - waited;
            before = after;
            if (now >= noted + GRAIN_NS) {
                print(now + " " + slot + " " + spun + " " + worked);
                noted = now;
            }
        }
    }

    private static long work(long turns, long x) {
        for (long i = 0; i < turns; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
        }
        return x;
    }

    private void give(Thread waiter, long spinUs) {
        for (int round = 0; ; ) {
            LockSupport.parkNanos(100_000);
            if (asked == round) {
                continue;
            }
            round = asked;
            long until = CLOCKS.getThreadCpuTime(waiter.getId()) + spinUs * 1000;
            for (long left; (left = until - CLOCKS.getThreadCpuTime(waiter.getId())) > 0; ) {
                LockSupport.parkNanos(Math.max(left, 100_000));
            }
            given = round;
        }
    }
}
