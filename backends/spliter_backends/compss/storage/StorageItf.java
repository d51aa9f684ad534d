package storage;

import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Tells COMPSs on which of its workers an object of dataClay is.
 *
 * <p>COMPSs calls a class of this name for everything that concerns persistent objects. The ids it
 * passes are those that dataClay's Python objects give, their metadata as JSON. What is asked here
 * is the key-value store of dataClay, so an object that has moved is found; without the address of
 * a store it is the backend in the id, where the object was when the id was made.
 *
 * <p>Only locations are answered. Tasks are Python's and get at objects through dataClay's own
 * {@code storage.api}; objects are not copied or versioned by COMPSs.
 */
public final class StorageItf {

    private static final String WORKERS = "SPLITER_COMPSS_WORKERS";
    private static final String STORE_HOST = "DATACLAY_KV_HOST";
    private static final String STORE_PORT = "DATACLAY_KV_PORT";

    private static final int STORE_MILLIS = 5_000;
    private static final long FRESH_NANOS = 1_000_000_000L;
    private static final long SILENT_NANOS = 10_000_000_000L;
    private static final int REMEMBERED = 100_000;

    private static final String UUID = "\"([0-9a-fA-F-]{36})\"";
    private static final Pattern ID = Pattern.compile("\"id\"\\s*:\\s*" + UUID);
    private static final Pattern MASTER = Pattern.compile("\"master_backend_id\"\\s*:\\s*" + UUID);
    private static final Pattern REPLICAS = Pattern.compile("\"replica_backend_ids\"\\s*:\\s*\\[([^\\]]*)\\]");
    private static final Pattern ONE = Pattern.compile(UUID);

    private static final Map<String, Answer> KNOWN = new ConcurrentHashMap<>();
    private static final Set<String> REPORTED = ConcurrentHashMap.newKeySet();

    private static volatile Map<String, String> workers = Collections.emptyMap();
    private static volatile Store store;
    private static volatile boolean silent;
    private static volatile long failed;

    /** Where an object was found, and when. */
    private static final class Answer {

        private final List<String> at;
        private final long when = System.nanoTime();

        private Answer(List<String> at) {
            this.at = at;
        }
    }

    private StorageItf() {
    }

    /**
     * Reads the file of {@code --storage_conf}.
     *
     * @param file lines of {@code NAME=VALUE}, as dataClay's {@code storage.api} reads it too
     * @throws StorageException if it cannot be read or has no usable map of backends to workers
     */
    public static void init(String file) throws StorageException {
        Map<String, String> read = settings(file);
        String given = read.get(WORKERS);
        if (given == null || given.isEmpty()) {
            throw new StorageException(file + " has no " + WORKERS + "=<backend id>=<worker>,...");
        }
        Map<String, String> found = new HashMap<>();
        for (String pair : given.split("[,\\s]+")) {
            String[] both = pair.split("=", 2);
            if (both.length != 2 || both[1].isEmpty() || !ONE.matcher('"' + both[0] + '"').matches()) {
                throw new StorageException(WORKERS + " in " + file + " has \"" + pair
                    + "\", which is not <backend id>=<worker>");
            }
            found.put(both[0].toLowerCase(), both[1]);
        }
        String host = read.get(STORE_HOST);
        String port = read.getOrDefault(STORE_PORT, "6379");
        Store made = null;
        if (host != null && !host.isEmpty()) {
            try {
                made = new Store(host, Integer.parseInt(port));
            } catch (NumberFormatException e) {
                throw new StorageException(STORE_PORT + " in " + file + " is \"" + port + "\", not a number");
            }
        }
        finish();
        workers = found;
        silent = false;
        store = made;
    }

    /** Ends the connection to the key-value store. */
    public static void finish() throws StorageException {
        Store old = store;
        store = null;
        KNOWN.clear();
        if (old != null) {
            old.close();
        }
    }

    /**
     * Names the workers that have an object.
     *
     * @param id what the object's {@code getID()} gives
     * @return names as in the project file; none if the backend is of no worker
     * @throws StorageException never; an object that is not found has no location
     */
    public static List<String> getLocations(String id) throws StorageException {
        Answer known = KNOWN.get(id);
        if (known != null && System.nanoTime() - known.when < FRESH_NANOS) {
            return new ArrayList<>(known.at);
        }
        List<String> at = named(metadata(id));
        if (KNOWN.size() >= REMEMBERED) {
            KNOWN.clear();
        }
        KNOWN.put(id, new Answer(at));
        return new ArrayList<>(at);
    }

    /** Does nothing: an object is reached from every worker. */
    public static void newReplica(String id, String worker) throws StorageException {
        // Not needed, see above.
    }

    /**
     * Gives the object itself as its new version, if the old one need not be kept.
     *
     * @throws StorageException if both are wanted
     */
    public static String newVersion(String id, boolean keep, String worker) throws StorageException {
        if (keep) {
            throw new StorageException("objects of dataClay are not versioned: " + id);
        }
        return id;
    }

    /** Does nothing: there are no versions. */
    public static void consolidateVersion(String id) throws StorageException {
        // Not needed, see above.
    }

    /** Fails: objects are Python's. */
    public static Object getByID(String id) throws StorageException {
        throw new StorageException("an object of Python cannot be had in Java: " + id);
    }

    /** Fails: tasks run at COMPSs' workers, run with {@code --task_execution=compss}. */
    public static String executeTask(String id, String what, Object[] values, String worker,
        CallbackHandler callback) throws StorageException {
        throw new StorageException("tasks are not executed by the storage: " + what);
    }

    /** Gives nothing, since no task is executed here. */
    public static Object getResult(CallbackEvent event) throws StorageException {
        return null;
    }

    private static String metadata(String id) {
        Store asked = store;
        Matcher object = ID.matcher(id);
        // A store that does not answer must not hold up the scheduler for every object.
        boolean avoided = silent && System.nanoTime() - failed < SILENT_NANOS;
        if (asked == null || avoided || !object.find()) {
            return id;
        }
        try {
            String stored = asked.get("/object/" + object.group(1));
            silent = false;
            return stored == null ? id : stored;
        } catch (IOException e) {
            failed = System.nanoTime();
            silent = true;
            once("store", "dataClay's key-value store does not answer, locations may be old: " + e);
            return id;
        }
    }

    private static List<String> named(String metadata) {
        List<String> backends = new ArrayList<>();
        Matcher master = MASTER.matcher(metadata);
        if (master.find()) {
            backends.add(master.group(1));
        }
        Matcher replicas = REPLICAS.matcher(metadata);
        if (replicas.find()) {
            Matcher one = ONE.matcher(replicas.group(1));
            while (one.find()) {
                backends.add(one.group(1));
            }
        }
        List<String> at = new ArrayList<>();
        for (String backend : backends) {
            String worker = workers.get(backend.toLowerCase());
            if (worker == null) {
                once(backend, WORKERS + " has no worker for dataClay's backend " + backend);
            } else if (!at.contains(worker)) {
                at.add(worker);
            }
        }
        return at;
    }

    private static void once(String about, String message) {
        if (REPORTED.add(about)) {
            System.err.println("[SplIter storage] " + message);
        }
    }

    private static Map<String, String> settings(String file) throws StorageException {
        List<String> lines;
        try {
            lines = Files.readAllLines(Paths.get(file), StandardCharsets.UTF_8);
        } catch (IOException e) {
            throw new StorageException("cannot read " + file + ": " + e);
        }
        Map<String, String> read = new HashMap<>();
        for (String line : lines) {
            String rest = line.trim();
            if (rest.startsWith("export ")) {
                rest = rest.substring("export ".length()).trim();
            }
            int split = rest.indexOf('=');
            if (rest.startsWith("#") || split < 1) {
                continue;
            }
            String value = rest.substring(split + 1).trim();
            int last = value.length() - 1;
            if (last > 0 && value.charAt(0) == value.charAt(last) && "'\"".indexOf(value.charAt(0)) >= 0) {
                value = value.substring(1, last);
            }
            read.put(rest.substring(0, split).trim(), value);
        }
        return read;
    }

    /** One connection to a server of the Redis protocol, made when it is first needed. */
    private static final class Store {

        private final String host;
        private final int port;
        private Socket socket;
        private InputStream input;

        private Store(String host, int port) {
            this.host = host;
            this.port = port;
        }

        private synchronized String get(String key) throws IOException {
            boolean used = socket != null;
            try {
                return exchange(key);
            } catch (IOException e) {
                close();
                if (!used) {
                    throw e;
                }
            }
            // The server may have closed a connection that was idle.
            try {
                return exchange(key);
            } catch (IOException e) {
                close();
                throw e;
            }
        }

        private String exchange(String key) throws IOException {
            if (socket == null) {
                Socket made = new Socket();
                try {
                    made.connect(new InetSocketAddress(host, port), STORE_MILLIS);
                    made.setSoTimeout(STORE_MILLIS);
                    made.setTcpNoDelay(true);
                    input = new BufferedInputStream(made.getInputStream());
                } catch (IOException e) {
                    made.close();
                    throw e;
                }
                socket = made;
            }
            byte[] name = key.getBytes(StandardCharsets.UTF_8);
            ByteArrayOutputStream request = new ByteArrayOutputStream();
            request.write(("*2\r\n$3\r\nGET\r\n$" + name.length + "\r\n").getBytes(StandardCharsets.UTF_8));
            request.write(name);
            request.write("\r\n".getBytes(StandardCharsets.UTF_8));
            socket.getOutputStream().write(request.toByteArray());
            String head = line();
            if (!head.startsWith("$")) {
                throw new IOException("unexpected answer " + head);
            }
            int length;
            try {
                length = Integer.parseInt(head.substring(1));
            } catch (NumberFormatException e) {
                throw new IOException("unexpected answer " + head);
            }
            if (length < 0) {
                return null;
            }
            byte[] value = new byte[length];
            for (int have = 0; have < length;) {
                int more = input.read(value, have, length - have);
                if (more < 0) {
                    throw new EOFException();
                }
                have += more;
            }
            line();
            return new String(value, StandardCharsets.UTF_8);
        }

        private String line() throws IOException {
            StringBuilder read = new StringBuilder();
            for (int next = input.read(); next != '\n'; next = input.read()) {
                if (next < 0) {
                    throw new EOFException();
                }
                if (next != '\r') {
                    read.append((char) next);
                }
            }
            return read.toString();
        }

        private synchronized void close() {
            if (socket != null) {
                try {
                    socket.close();
                } catch (IOException e) {
                    // It is given up anyway.
                }
                socket = null;
            }
        }
    }
}
