import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.HexFormat;
import org.apache.kafka.common.utils.Utils;

/**
 * Prints murmur2_digests.csv: for each length from 0 to 100 the SHA-256 of the hashes, big-endian, that Kafka's own
 * Utils.murmur2 gives to 1,000 keys of that length. The keys are cut, one of each length in turn, out of the stream
 * SHA-256(0), SHA-256(1), ... of block numbers of four bytes, big-endian.
 */
public class Murmur2Digests {
    static final int LENGTHS = 101;
    static final int KEYS = 1000 * LENGTHS;

    public static void main(String[] args) throws Exception {
        MessageDigest[] hashes = new MessageDigest[LENGTHS];
        for (int length = 0; length < LENGTHS; length++) {
            hashes[length] = MessageDigest.getInstance("SHA-256");
        }
        ByteBuffer stream = stream(KEYS / LENGTHS * (LENGTHS * (LENGTHS - 1) / 2));
        for (int i = 0; i < KEYS; i++) {
            byte[] key = new byte[i % LENGTHS];
            stream.get(key);
            hashes[key.length].update(ByteBuffer.allocate(4).putInt(Utils.murmur2(key)).array());
        }
        for (int length = 0; length < LENGTHS; length++) {
            System.out.println(length + "," + HexFormat.of().formatHex(hashes[length].digest()));
        }
    }

    static ByteBuffer stream(int size) throws Exception {
        MessageDigest sha256 = MessageDigest.getInstance("SHA-256");
        ByteBuffer stream = ByteBuffer.allocate((size + 31) / 32 * 32);
        for (int block = 0; stream.hasRemaining(); block++) {
            stream.put(sha256.digest(ByteBuffer.allocate(4).putInt(block).array()));
        }
        return stream.flip();
    }
}
