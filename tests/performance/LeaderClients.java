import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own clients, as those of leader_clients.py: writes a row to each partition every so many milliseconds, or reads
 * all partitions from their ends on. Prints the partition and the microseconds since 1970 of each acknowledgement or row.
 *
 * Arguments: writes or reads, the topic, its partitions, milliseconds, bytes of a value, and settings as name=value.
 */
public class LeaderClients {
    static void note(int partition) {
        System.out.println(partition + " " + ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now()));
    }

    static void fail(Exception error) {
        error.printStackTrace();
        System.exit(1);
    }

    static void write(Map<String, Object> settings, String topic, int partitions, long everyMs, int bytes)
            throws InterruptedException {
        var serializer = new ByteArraySerializer();
        try (var producer = new KafkaProducer<byte[], byte[]>(settings, serializer, serializer)) {
            while (true) {
                for (int partition = 0; partition < partitions; partition++) {
                    producer.send(new ProducerRecord<>(topic, partition, null, new byte[bytes]), (written, error) -> {
                        if (error != null) {
                            fail(error);
                        }
                        note(written.partition());
                    });
                }
                Thread.sleep(everyMs);
            }
        }
    }

    static void read(Map<String, Object> settings, String topic, int partitions) {
        var deserializer = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<byte[], byte[]>(settings, deserializer, deserializer)) {
            Collection<TopicPartition> all =
                IntStream.range(0, partitions).mapToObj(number -> new TopicPartition(topic, number)).toList();
            consumer.assign(all);
            consumer.seekToEnd(all);
            while (true) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    note(record.partition());
                }
            }
        }
    }

    public static void main(String[] given) throws InterruptedException {
        var settings = new HashMap<String, Object>();
        for (int place = 5; place < given.length; place++) {
            String[] setting = given[place].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        int partitions = Integer.parseInt(given[2]);
        if (given[0].equals("writes")) {
            write(settings, given[1], partitions, Long.parseLong(given[3]), Integer.parseInt(given[4]));
        } else {
            read(settings, given[1], partitions);
        }
    }
}
