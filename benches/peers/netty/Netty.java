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

/** The workloads `threads` and `accuracy`, as in src/workloads/threads.rs, on Netty's timer. */
final class Netty {
    static final int KEPT = 1_000;
    /** So that the compiler has done its work before time is taken. */
    static final long WARM_NS = 3_000_000_000L;

    static final HashedWheelTimer TIMER = new HashedWheelTimer(1, TimeUnit.MILLISECONDS);
    static final AtomicLong FIRED = new AtomicLong();
    static volatile boolean stops;

    public static void main(String[] arguments) throws Exception {
        int size = Integer.parseInt(arguments[1]);
        switch (arguments[0]) {
            case "threads" -> throughput(size, Long.parseLong(arguments[2]));
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
        print(FIRED.get(), "schedule + cancel", each, "rate", 1e3 / each, "behind", behind,
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
            if (kept[at] != null) {
                kept[at].cancel();
            }
            kept[at] = TIMER.newTimeout(it -> FIRED.incrementAndGet(), 30, TimeUnit.SECONDS);
        }
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
