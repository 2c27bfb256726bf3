import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Random;
import java.util.UUID;
import org.apache.kafka.common.serialization.*;

/**
 * Prints serializer_vectors.csv: a type, a value, and its bytes in hex by Kafka's own serializer. Strings are given in
 * UTF-16, in hex. A struct is long;double;int;short;byte;boolean;float, written by java.io.DataOutputStream.
 */
public class SerializerVectors {
    static final HexFormat HEX = HexFormat.of();
    static final Random RANDOM = new Random(4);

    static <T> void print(String type, Object text, Serializer<T> serializer, T value) {
        System.out.println(type + "," + text + "," + HEX.formatHex(serializer.serialize("topic", value)));
    }

    static void string(String value) {
        print("string", HEX.formatHex(value.getBytes(StandardCharsets.UTF_16BE)), new StringSerializer(), value);
    }

    static void number(long value) {
        print("long", value, new LongSerializer(), value);
        print("int", (int) value, new IntegerSerializer(), (int) value);
        print("short", (short) value, new ShortSerializer(), (short) value);
    }

    static void real(double value) {
        print("double", value, new DoubleSerializer(), value);
        print("float", (float) value, new FloatSerializer(), (float) value);
    }

    static void uuid(UUID value) {
        print("uuid", value.toString().toUpperCase(), new UUIDSerializer(), value);
    }

    static void struct(long l, double d, int i, short s, byte b, boolean z, float f) throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        out.writeLong(l);
        out.writeDouble(d);
        out.writeInt(i);
        out.writeShort(s);
        out.writeByte(b);
        out.writeBoolean(z);
        out.writeFloat(f);
        String text = l + ";" + d + ";" + i + ";" + s + ";" + b + ";" + z + ";" + f;
        System.out.println("struct," + text + "," + HEX.formatHex(bytes.toByteArray()));
    }

    public static void main(String[] args) throws Exception {
        for (String value : new String[] {"", "a", "order-1", "\u00e9\u00df", "\u20ac \u65e5\u672c", "\ud83d\ude00", "a\0b"}) {
            string(value);
        }
        for (long value : new long[] {0, 1, -1, 127, -128, 255, 256, Short.MAX_VALUE, Short.MIN_VALUE, Integer.MAX_VALUE,
                Integer.MIN_VALUE, 1L << 32, Long.MAX_VALUE, Long.MIN_VALUE}) {
            number(value);
        }
        double[] reals = {0.0, -0.0, 1.0, -1.5, 0.1, Math.PI, Double.NaN, Double.POSITIVE_INFINITY,
            Double.NEGATIVE_INFINITY, Double.MAX_VALUE, -Double.MAX_VALUE, Double.MIN_VALUE, -Double.MIN_VALUE,
            Double.MIN_NORMAL, Math.nextDown(Double.MIN_NORMAL), Float.MAX_VALUE, Float.MIN_VALUE, -Float.MIN_VALUE,
            Float.MIN_NORMAL, Math.nextDown(Float.MIN_NORMAL), Math.nextUp(1.0), Math.nextDown(1.0),
            Math.nextUp(1.0f), Math.nextDown(1.0f)};
        for (double value : reals) {
            real(value);
        }
        uuid(new UUID(0, 0));
        uuid(new UUID(-1, -1));
        for (int i = 0; i < 20; i++) {
            number(RANDOM.nextLong());
            real(Double.longBitsToDouble(RANDOM.nextLong()));
            real(Float.intBitsToFloat(RANDOM.nextInt()));
            uuid(new UUID(RANDOM.nextLong(), RANDOM.nextLong()));
        }
        struct(0, 0.0, 0, (short) 0, (byte) 0, false, 0f);
        struct(Long.MIN_VALUE, -0.0, Integer.MIN_VALUE, Short.MIN_VALUE, Byte.MIN_VALUE, true, Float.MIN_VALUE);
        struct(-1, Double.NaN, Integer.MAX_VALUE, Short.MAX_VALUE, Byte.MAX_VALUE, true, Float.NEGATIVE_INFINITY);
    }
}
