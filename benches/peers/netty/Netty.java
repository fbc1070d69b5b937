import io.netty.util.HashedWheelTimer;
import io.netty.util.Timeout;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.SplittableRandom;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/** The workloads with threads, as in src/workloads/threads.rs and burst.rs, on Netty's timer. */
final class Netty {
    static final int KEPT = 1_000;
    static final int FEW_KEPT = 100;
    /** So that the compiler has done its work before time is taken. */
    static final long WARM_NS = 3_000_000_000L;

    /** Before they are due the caller calls an idle timer. */
    static final long IDLE_NS = 100_000_000L;
    static final long ROOM_NS = 500_000_000L;

    static final HashedWheelTimer TIMER = new HashedWheelTimer(1, TimeUnit.MILLISECONDS);
    static final long START = System.nanoTime();
    static final long KEPT_SECONDS = 30;
    /** Of those that are kept. None is due before the program has run for as long. */
    static final AtomicLong EARLY = new AtomicLong();
    static volatile boolean stops;

    public static void main(String[] arguments) throws Exception {
        int size = Integer.parseInt(arguments[1]);
        switch (arguments[0]) {
            case "threads" -> throughput(size, Long.parseLong(arguments[2]));
            case "oversubscribed" -> oversubscribed(size, Long.parseLong(arguments[2]));
            case "burst" -> burst(size);
            case "accuracy" -> accuracy(size);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        System.exit(0);
    }

    static void throughput(int threads, long milliseconds) throws Exception {
        var warm = new CyclicBarrier(threads + 1);
        var done = new long[threads];
        var workers = new Thread[threads];
        for (int at = 0; at < threads; at++) {
            int number = at;
            workers[at] = new Thread(() -> done[number] = work(warm));
            workers[at].start();
        }
        warm.await();
        var system = (com.sun.management.OperatingSystemMXBean)
            ManagementFactory.getOperatingSystemMXBean();
        long started = System.nanoTime(), cpu = system.getProcessCpuTime();
        Thread.sleep(milliseconds);
        double processors =
            (double) (system.getProcessCpuTime() - cpu) / (System.nanoTime() - started);
        stops = true;
        for (var worker : workers) {
            worker.join();
        }
        double each = (double) (System.nanoTime() - started) / Arrays.stream(done).sum();
        long due = System.nanoTime() + 1_000_000;
        var fired = new CountDownLatch(1);
        TIMER.newTimeout(timeout -> fired.countDown(), 1, TimeUnit.MILLISECONDS);
        fired.await(10, TimeUnit.SECONDS);
        long behind = Math.max(0, System.nanoTime() - due);
        print(EARLY.get(), "schedule + cancel", each, "rate", 1e3 / each, "behind", behind,
            "processors", processors);
    }

    static long work(CyclicBarrier warm) {
        var kept = new Timeout[KEPT];
        long start = System.nanoTime();
        while (System.nanoTime() - start < WARM_NS) {
            round(kept);
        }
        try {
            warm.await();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
        long rounds = 0;
        while (!stops) {
            round(kept);
            rounds++;
        }
        return rounds * KEPT;
    }

    static void round(Timeout[] kept) {
        for (int at = 0; at < KEPT; at++) {
            replace(kept, at);
        }
    }

    /** How long a pair takes where there are more threads than cores. */
    static void oversubscribed(int threads, long milliseconds) throws Exception {
        var warm = new CyclicBarrier(threads + 1);
        var calls = new long[threads][];
        var workers = new Thread[threads];
        for (int at = 0; at < threads; at++) {
            int number = at;
            workers[at] = new Thread(() -> calls[number] = timed(warm));
            workers[at].start();
        }
        warm.await();
        Thread.sleep(milliseconds);
        stops = true;
        for (var worker : workers) {
            worker.join();
        }
        long[] all = Arrays.stream(calls).flatMapToLong(Arrays::stream).sorted().toArray();
        print(EARLY.get(), "call p99.9", quantile(all, 0.999), "call p99.99",
            quantile(all, 0.9999), "call max", quantile(all, 1.0), "call p50",
            quantile(all, 0.5), "schedule + cancel", milliseconds * 1e6 / all.length);
    }

    static long[] timed(CyclicBarrier warm) {
        var kept = new Timeout[FEW_KEPT];
        var calls = new long[1 << 20];
        long start = System.nanoTime();
        while (System.nanoTime() - start < WARM_NS) {
            for (int at = 0; at < FEW_KEPT; at++) {
                replace(kept, at);
            }
        }
        try {
            warm.await();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
        int count = 0;
        while (!stops && count + FEW_KEPT <= calls.length) {
            for (int at = 0; at < FEW_KEPT; at++) {
                long before = System.nanoTime();
                replace(kept, at);
                calls[count++] = System.nanoTime() - before;
            }
        }
        return Arrays.copyOf(calls, count);
    }

    static void replace(Timeout[] kept, int at) {
        if (kept[at] != null) {
            kept[at].cancel();
        }
        kept[at] = TIMER.newTimeout(it -> fires(), KEPT_SECONDS, TimeUnit.SECONDS);
    }

    static void fires() {
        if (System.nanoTime() - START < TimeUnit.SECONDS.toNanos(KEPT_SECONDS)) {
            EARLY.incrementAndGet();
        }
    }

    static void burst(int timeouts) throws Exception {
        var kept = new Timeout[KEPT];
        long start = System.nanoTime();
        while (System.nanoTime() - start < WARM_NS) {
            round(kept);
        }
        for (var timeout : kept) {
            timeout.cancel();
        }
        untilAllRan(timeouts / 2, null);
        double alone = untilAllRan(timeouts, null);
        var caller = new Caller();
        double withCaller = untilAllRan(timeouts, caller);
        stops = true;
        caller.join();
        long[] idle = caller.sorted(0), busy = caller.sorted(1);
        print(EARLY.get(), "alone", alone, "with a caller", withCaller,
            "idle call p50", quantile(idle, 0.5), "call p50", quantile(busy, 0.5),
            "call p99.9", quantile(busy, 0.999), "call max", quantile(busy, 1.0));
    }

    /** How long after they were due the last of so many timeouts has run. */
    static double untilAllRan(int timeouts, Caller caller) throws Exception {
        var ran = new AtomicLong();
        long due = System.nanoTime() + IDLE_NS + ROOM_NS + 4_000L * timeouts;
        for (int at = 0; at < timeouts; at++) {
            long delay = Math.max(0, due - System.nanoTime());
            TIMER.newTimeout(it -> ran.incrementAndGet(), delay, TimeUnit.NANOSECONDS);
        }
        if (due - IDLE_NS < System.nanoTime()) {
            throw new IllegalStateException("over 4 us to schedule each");
        }
        TimeUnit.NANOSECONDS.sleep(due - IDLE_NS - System.nanoTime());
        if (caller != null) {
            caller.due = due;
            caller.start();
        }
        TimeUnit.NANOSECONDS.sleep(due - System.nanoTime());
        while (ran.get() < timeouts) {
            Thread.sleep(0, 200_000);
        }
        return System.nanoTime() - due;
    }

    /** Cancels and schedules without a rest, and keeps how long each such pair took. */
    static final class Caller extends Thread {
        long due;
        /** Of those that began before the others were due, and after that. */
        final long[][] calls = new long[2][4_000_000];
        final int[] counts = new int[2];

        @Override
        public void run() {
            Timeout slot = null;
            while (!stops) {
                long start = System.nanoTime();
                if (slot != null) {
                    slot.cancel();
                }
                slot = TIMER.newTimeout(it -> fires(), KEPT_SECONDS, TimeUnit.SECONDS);
                long took = System.nanoTime() - start;
                int kind = start < due ? 0 : 1;
                if (counts[kind] < calls[kind].length) {
                    calls[kind][counts[kind]++] = took;
                }
            }
        }

        long[] sorted(int kind) {
            long[] sorted = Arrays.copyOf(calls[kind], counts[kind]);
            Arrays.sort(sorted);
            return sorted;
        }
    }

    static double quantile(long[] sorted, double share) {
        return sorted[(int) ((sorted.length - 1) * share)];
    }

    static void accuracy(int count) throws Exception {
        var random = new SplittableRandom(7);
        var late = new ConcurrentLinkedQueue<Long>();
        for (int which = 0; which < count; which++) {
            long delay = 1_000_000 + random.nextLong(199_000_000);
            long due = System.nanoTime() + delay;
            TIMER.newTimeout(it -> late.add(System.nanoTime() - due), delay, TimeUnit.NANOSECONDS);
            if (which % 16 == 0) {
                Thread.sleep(0, 100_000);
            }
        }
        Thread.sleep(2_200);
        long[] sorted = late.stream().mapToLong(it -> it).sorted().toArray();
        long early = Arrays.stream(sorted).filter(it -> it < 0).count();
        var at = new double[4];
        double[] shares = {0.5, 0.9, 0.99, 1.0};
        for (int share = 0; share < 4; share++) {
            at[share] = Math.max(0, sorted[(int) ((sorted.length - 1) * shares[share])]);
        }
        print(early, "late p50", at[0], "late p90", at[1], "late p99", at[2], "late max", at[3]);
    }

    /** As the program that started this reads it. */
    static void print(long early, Object... values) {
        var text = new StringBuilder("{\"values\":{");
        for (int at = 0; at < values.length; at += 2) {
            text.append(at == 0 ? "" : ",").append('"').append(values[at]).append("\":")
                .append(values[at + 1]);
        }
        text.append("},\"faults\":{").append(early == 0 ? "" : "\"Early\":[" + early + ",0]");
        System.out.println(text.append("},\"failure\":null}"));
    }
}
