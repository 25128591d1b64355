package loader

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/optimem/optimem/loader/internal/ziparchive"
)

// hostileGenerated are the attacks that take a large file. Each writes one and gives its path.
var hostileGenerated = []struct {
	name string
	// opens: the file is only odd, and may be opened as well as be refused.
	opens bool
	class error
	write func(t *testing.T) string
}{
	{"30 MB of empty lists", false, ErrLimit, func(t *testing.T) string {
		return writeArchive(t, pickleStart+strings.Repeat("]", 30<<20)+".")
	}},
	{"8 MB of empty lists, bare", false, ErrLimit, func(t *testing.T) string {
		return writeTemp(t, []byte(pickleStart+strings.Repeat("]", 8<<20)+"."))
	}},
	{"6 million times nothing, popped", true, ErrLimit, func(t *testing.T) string {
		return writeArchive(t, pickleStart+strings.Repeat("N0", 6<<20)+"N.")
	}},
	{"a list of small tuples", false, ErrLimit, func(t *testing.T) string {
		return writeArchive(t, pickleStart+"]("+strings.Repeat("N\x85", 5<<20)+"e.")
	}},
	{"empty dicts in the memo", false, ErrLimit, func(t *testing.T) string {
		return writeArchive(t, "\x80\x04]("+strings.Repeat("}\x94", 2<<20)+"e.")
	}},
	{"a string of 30 MB, unread by PyTorch", true, ErrLimit, func(t *testing.T) string {
		return writeArchive(t, pickleStart+pickleString(strings.Repeat("x", 30<<20))+"0N.")
	}},
	{"a line of 30 MB", false, ErrLimit, func(t *testing.T) string {
		return writeArchive(t, "V"+strings.Repeat("x", 30<<20)+"\n.")
	}},
	{"a million marks", false, ErrLimit, func(t *testing.T) string {
		return writeArchive(t, pickleStart+strings.Repeat("(", 1<<20)+strings.Repeat("t", 1<<20)+".")
	}},
	{"half a million dimensions", false, ErrLimit, func(t *testing.T) string {
		return writeArchive(t, pickleStart+ones(500_000)+pickleRebuild+pickleView+".")
	}},
	{"100,000 keys of one hash", true, ErrLimit, func(t *testing.T) string {
		return writeArchive(t, pickleStart+"}("+equalHashes(100_000)+"u.")
	}},
	{"keys that are long", true, ErrLimit, func(t *testing.T) string {
		level := "}(" + pickleString(strings.Repeat("k", 60<<10))
		return writeArchive(t, pickleStart+strings.Repeat(level, 190)+"N"+strings.Repeat("u", 190)+".")
	}},
	{"a dict that many share, under long keys", false, ErrLimit, func(t *testing.T) string {
		p := pickleStart + "]" + "q\x00" + "(" + strings.Repeat("N", 50_000) + "e0"
		p += "}(" + pickleString(strings.Repeat("k", 60<<10)) + "}("
		for i := range 2000 {
			p += pickleString(strconv.Itoa(i)) + "h\x00"
		}
		return writeArchive(t, p+"uu.")
	}},
	{"half a million objects", false, ErrLimit, func(t *testing.T) string {
		return writeArchive(t, pickleStart+"](cm\nC\nq\x00)\x81"+strings.Repeat("h\x00)\x81}b", 500_000)+"e.")
	}},
	{"a deflated pickle", false, ErrLimit, func(t *testing.T) string {
		return writeDeflated(t, map[string]string{"archive/data.pkl": pickleStart + strings.Repeat("]0", 40<<20) + "N."})
	}},
	{"deflated code", false, ErrLimit, func(t *testing.T) string {
		return writeDeflated(t, map[string]string{"m/data.pkl": "N.", "m/constants.pkl": ").", "m/version": "3\n",
			"m/code/__torch__.py": strings.Repeat("class M(Module):\n  x : int\n", 4<<20)})
	}},
	{"code of 12 MB", false, ErrLimit, func(t *testing.T) string {
		method := "class M(Module):\n  def f(self: __torch__.M) -> int:\n" + strings.Repeat("    a = torch.relu(a)\n", 600_000)
		return writeDeflated(t, map[string]string{"m/data.pkl": "N.", "m/constants.pkl": ").", "m/version": "3\n",
			"m/code/__torch__.py": method + "    return a\n"})
	}},
	{"200,001 records", false, ErrLimit, func(t *testing.T) string { return writeRecords(t, 200_001) }},
	{"100,000 records", true, ErrLimit, func(t *testing.T) string { return writeRecords(t, 100_000) }},
	{"1 GB of holes", false, ErrUnsupported, func(t *testing.T) string { return writeSparse(t, nil, 1<<30) }},
	{"1 GB after the beginning of a zip", false, ErrFormat, func(t *testing.T) string {
		return writeSparse(t, []byte("PK\x03\x04"), 1<<30)
	}},
	{"1 GB after the beginning of a pickle", false, ErrLimit, func(t *testing.T) string {
		return writeSparse(t, []byte("\x80\x02X\x00\x00\x00\x30"), 1<<30)
	}},
	{"a safetensors header of 90 MB of blanks", true, nil, func(t *testing.T) string {
		return writeTemp(t, safetensorsFile("{"+strings.Repeat(" ", 90<<20)+"}", 0))
	}},
	{"a safetensors header of 90 MB of zeros", false, ErrFormat, func(t *testing.T) string {
		head := binary.LittleEndian.AppendUint64(nil, 90<<20)
		return writeSparse(t, append(head, '{'), 1<<30)
	}},
	{"a safetensors header of 300,000 tensors", true, ErrLimit, func(t *testing.T) string {
		return writeTemp(t, manyTensors(300_000))
	}},
	{"an index nested 10 million deep", false, ErrLimit, func(t *testing.T) string {
		return writeTemp(t, []byte(strings.Repeat(`{"a":`, 10<<20)))
	}},
	{"an index of 100,000 shards", false, ErrLimit, func(t *testing.T) string {
		var b bytes.Buffer
		b.WriteString(`{"weight_map":{`)
		for i := range 100_000 {
			fmt.Fprintf(&b, `"%d":"s%d",`, i, i)
		}
		b.WriteString(`"x":"y"}}`)
		return writeTemp(t, b.Bytes())
	}},
	{"a program nested 10 million deep", false, ErrLimit, func(t *testing.T) string {
		return writeDeflated(t, map[string]string{"m/models/model.json": strings.Repeat(`{"a":`, 10<<20)})
	}},
	{"a program of a million nodes", false, ErrLimit, func(t *testing.T) string {
		nodes := strings.Repeat(`{"target":"t","inputs":[],"outputs":[],"metadata":{}},`, 1<<20)
		return writeDeflated(t, map[string]string{"m/models/model.json": `{"graph_module":{"graph":{"nodes":[` + nodes})
	}},
	{"a named pipe", false, ErrUnsupported, writePipe},
}

// equalHashes are n items of a dict whose keys Python hashes to the same: multiples of 2^61-1.
func equalHashes(n int) string {
	var b strings.Builder
	prime := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 61), big.NewInt(1))
	for i := range n {
		key := new(big.Int).Mul(prime, big.NewInt(int64(i+1))).FillBytes(make([]byte, 11))
		b.WriteString("\x8a\x0b")
		for k := range key {
			b.WriteByte(key[len(key)-1-k])
		}
		b.WriteByte('N')
	}
	return b.String()
}

func writeDeflated(t *testing.T, records map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for name, contents := range records {
		f, err := w.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(contents)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return writeTemp(t, b.Bytes())
}

func writeRecords(t *testing.T, n int) string {
	t.Helper()
	var b bytes.Buffer
	w := ziparchive.NewWriter(&b, "archive")
	for i := range n {
		name := fmt.Sprintf("data/%d", i)
		if i == 0 {
			name = "data.pkl"
		}
		if err := w.WriteRecord(name, []byte("N.")); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return writeTemp(t, b.Bytes())
}

func writeSparse(t *testing.T, head []byte, size int64) string {
	t.Helper()
	path := writeTemp(t, head)
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestHostileGenerated opens the large files and judges the answers, and what they cost in a process of their own.
func TestHostileGenerated(t *testing.T) {
	for _, test := range hostileGenerated {
		t.Run(test.name, func(t *testing.T) {
			if testing.Short() {
				t.Skip("large files")
			}
			path := test.write(t)
			if !test.opens {
				if err := refused(t, path); Class(err) != test.class {
					t.Errorf("got %v; want %v", err, test.class)
				}
			}
			checkCost(t, path)
		})
	}
}

// TestHostileCost opens all committed files in one process: the peak is that of the worst.
func TestHostileCost(t *testing.T) {
	var paths []string
	for name := range hostileRows(t) {
		paths = append(paths, filepath.Join(hostileFolder(), name))
	}
	checkCost(t, paths...)
}

const costChild = "OPTIMEM_TEST_COST_OF"

// checkCost scans files in another process and fails where its memory grew by more than what is allowed.
func checkCost(t *testing.T, paths ...string) {
	t.Helper()
	if goruntime.GOOS != "linux" {
		t.Skip("the peak is read from /proc")
	}
	list, err := json.Marshal(paths)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestCostChild$")
	cmd.Env = append(os.Environ(), costChild+"="+string(list))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var grown, millis int64
	text := string(out)
	if i := strings.Index(text, "grown by "); i < 0 {
		t.Fatalf("no result in %s", text)
	} else if _, err := fmt.Sscanf(text[i:], "grown by %d in %d ms", &grown, &millis); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d MiB, %d ms", grown>>20, millis)
	if most := 2 * (Limits{}).MemoryFor(largest(t, paths)); grown > most {
		t.Errorf("the process has grown by %d bytes, which may be %d", grown, most)
	}
}

// largest returns the size of the largest file.
func largest(t *testing.T, paths []string) int64 {
	t.Helper()
	var n int64
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		n = max(n, info.Size())
	}
	return n
}

// TestCostChild is the other process of checkCost.
func TestCostChild(t *testing.T) {
	var paths []string
	if err := json.Unmarshal([]byte(os.Getenv(costChild)), &paths); err != nil {
		t.Skip("runs in a process of its own")
	}
	before := peakBytes(t)
	start := time.Now()
	for _, path := range paths {
		_, _ = Scan(t.Context(), path, Options{}) // what Open does and more; its answer is judged elsewhere
	}
	fmt.Printf("grown by %d in %d ms\n", peakBytes(t)-before, time.Since(start).Milliseconds())
}

// peakBytes is the largest resident memory of the process so far.
func peakBytes(t *testing.T) int64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
