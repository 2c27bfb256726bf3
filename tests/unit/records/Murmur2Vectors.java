import java.util.HexFormat;
import java.util.Random;
import org.apache.kafka.common.utils.Utils;

/** Prints murmur2_vectors.csv: key in hex, hash by Kafka's own Utils.murmur2. Keys of 0 to 100 bytes, two of each. */
public class Murmur2Vectors {
    public static void main(String[] args) {
        Random random = new Random(2);
        for (int i = 0; i < 202; i++) {
            byte[] key = new byte[i / 2];
            random.nextBytes(key);
            System.out.println(HexFormat.of().formatHex(key) + "," + Utils.murmur2(key));
        }
    }
}
