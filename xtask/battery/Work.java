import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;
import java.util.zip.*;

/** Threads, direct buffers, deflate (native memory), collections and child processes; its result never varies. */
public class Work {
    static String hash(byte[] data) throws Exception {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(data));
    }

    static byte[] squeeze(byte[] data, int level) throws Exception {
        Deflater deflater = new Deflater(level);
        deflater.setInput(data);
        deflater.finish();
        byte[] out = new byte[data.length + 100];
        int n = deflater.deflate(out);
        deflater.end();
        Inflater inflater = new Inflater();
        inflater.setInput(out, 0, n);
        byte[] back = new byte[data.length];
        inflater.inflate(back);
        inflater.end();
        return back;
    }

    public static void main(String[] args) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(6);
        List<Future<String>> parts = new ArrayList<>();
        for (int k = 0; k < 24; k++) {
            final int id = k;
            parts.add(pool.submit(() -> {
                Random random = new Random(id);
                List<ByteBuffer> buffers = new ArrayList<>();
                for (int i = 0; i < 300; i++) {
                    ByteBuffer b = ByteBuffer.allocateDirect(1 + random.nextInt(20000));
                    while (b.hasRemaining()) b.put((byte) (id + b.position()));
                    b.flip();
                    buffers.add(b);
                }
                StringBuilder text = new StringBuilder();
                for (ByteBuffer b : buffers) text.append(b.remaining()).append(b.get(b.remaining() / 2)).append(',');
                byte[] data = text.toString().getBytes(StandardCharsets.UTF_8);
                if (!Arrays.equals(data, squeeze(data, 1 + id % 9))) throw new IllegalStateException("deflate");
                return hash(data);
            }));
        }
        for (Future<String> f : parts) System.out.println(f.get());
        pool.shutdown();
        Map<Integer, Long> lengths = IntStream.range(0, 200000).parallel().mapToObj(Integer::toString)
            .collect(Collectors.groupingBy(String::length, TreeMap::new, Collectors.counting()));
        System.out.println(lengths);
        for (int i = 0; i < 5; i++) {
            Process p = new ProcessBuilder("/bin/echo", "child", Integer.toString(i)).start();
            System.out.print(new String(p.getInputStream().readAllBytes()));
            if (p.waitFor() != 0) throw new IllegalStateException("child");
        }
    }
}
