//go:build compare

package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/containerdtest"
	"github.com/nodewright/nodewright/internal/sampleimage"
)

var (
	rounds = flag.Int("compare.rounds", 3, "how often each runtime is measured, in turns")
	rest   = flag.Duration("compare.rest", time.Minute, "how long the CPU at rest is measured")
	only   = flag.String("compare.only", "", "names of the parts to measure, by commas; all of them")
)

// TestCompare measures the agent with localcri and with containerd in turns, from
// outside: by the times in the containers' logs, which either runtime writes to the
// nanosecond, and by /proc. It asserts nothing.
func TestCompare(t *testing.T) {
	found := map[string]map[string][]float64{} // by measure and runtime
	var order []string
	for range *rounds {
		for _, runtime := range []string{containerdtest.LocalCRI, containerdtest.ContainerdName} {
			t.Run(runtime, func(t *testing.T) {
				c := newContender(t, runtime)
				c.tell = func(what, unit string, value float64) {
					what += " [" + unit + "]"
					if found[what] == nil {
						found[what] = map[string][]float64{}
						order = append(order, what)
					}
					found[what][runtime] = append(found[what][runtime], value)
					t.Logf("%s: %.1f", what, value)
				}
				c.measure()
			})
		}
	}
	middle := func(v []float64) float64 {
		if len(v) == 0 {
			return 0
		}
		slices.Sort(v)
		return v[len(v)/2]
	}
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Printf("medians of %d rounds in turns; load at the end %s\n| measure | localcri | containerd | ratio |\n| --- | --- | --- | --- |\n", *rounds, bytes.TrimSpace(load))
	for _, what := range order {
		l, c := middle(found[what][containerdtest.LocalCRI]), middle(found[what][containerdtest.ContainerdName])
		fmt.Printf("| %s | %.1f | %.1f | %.2f |\n", what, l, c, l/c)
	}
}

// A contender is an agent and its runtime.
type contender struct {
	*lab
	program []string                              // the agent's, with its arguments
	images  func(archives []string) time.Duration // takes archives in, all at once
	tell    func(what, unit string, value float64)
}

func newContender(t *testing.T, runtime string) *contender {
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	agent := filepath.Join(repository, "build", "bin", "agent")
	c := &contender{}
	var endpoint []string
	if runtime == containerdtest.ContainerdName {
		c.lab = newLabOn(t, containerdtest.Options{Runtime: runtime})
		endpoint = []string{"--container-runtime-endpoint", "unix://" + c.socket}
		c.images = func(archives []string) time.Duration {
			return c.each(archives, func(a string) *exec.Cmd {
				return exec.Command(filepath.Join(repository, "build", "bin", "ctr"), "-a", c.socket, "-n", "k8s.io", "images", "import", "--local", a)
			})
		}
	} else {
		c.lab = bareLab(t)
		archives, err := sampleimage.Build(t.Context(), repository, filepath.Join(repository, "build", "images"))
		c.must(err)
		endpoint = []string{"--container-runtime-endpoint", runtime, "--network", "bridge", "--preload-images", filepath.Dir(archives[0])}
		c.images = func(archives []string) time.Duration {
			return c.each(archives, func(a string) *exec.Cmd {
				return exec.Command(agent, "images", "load", a, "--root-dir", c.root)
			})
		}
		t.Cleanup(func() {
			if out, err := exec.Command(agent, "reset", "--images", "--root-dir", c.root).CombinedOutput(); err != nil {
				t.Errorf("reset: %v: %s", err, out)
			}
		})
	}
	c.program = append([]string{agent, "run", "--leave-host", "--config", c.config(), "--pod-manifest-path", c.manifests, "--hostname-override", "lab", "--root-dir", c.root}, endpoint...)
	return c
}

// begin starts the agent and returns when its socket answers.
func (c *contender) begin() time.Time {
	c.t.Helper()
	begun := time.Now()
	cmd := exec.Command(c.program[0], c.program[1:]...)
	cmd.Stdout, cmd.Stderr = &c.agentLog, &c.agentLog
	c.must(cmd.Start())
	c.cmd = cmd
	c.until("answers", func(map[string]*v1.Pod) bool { return true })
	return begun
}

func (c *contender) measure() {
	parts := map[string]func(){
		"starts": c.starts, "successor": c.successor, "logs": c.throughput, "unpack": c.unpack,
	}
	asked := func(name string) bool { return *only == "" || slices.Contains(strings.Split(*only, ","), name) }
	for _, name := range []string{"starts", "successor", "logs", "unpack"} {
		if asked(name) {
			c.begin()
			parts[name]()
			c.kill()
		}
	}
	if asked("boot") {
		for _, boot := range []struct {
			what             string
			many             int
			important, after string
		}{
			{"10 pods alone", 0, "", ""},
			{"10 important of 100 pods, which ask for nothing", 90, "", ""},
			{"10 important of 100 pods, by start-priority", 90, "nodewright.io/start-priority: '100'", ""},
			{"10 important of 100 pods, which the others begin after", 90, "", "nodewright.io/after: z9"},
		} {
			c.boot(boot.what, boot.many, boot.important, boot.after)
		}
	}
}

// boot is a machine that starts with its pods in their files. The important ones come
// last by their names.
func (c *contender) boot(what string, many int, important, after string) {
	pod := func(name, annotations string) {
		c.write(name+".yaml", strings.Replace(box(name, "alloc, '50', out, up, sleep, forever"), "}\nspec", ", annotations: {"+annotations+"}}\nspec", 1))
	}
	var first, all []string
	for i := range 10 {
		first = append(first, fmt.Sprintf("z%d", i))
		pod(first[i], important)
	}
	for _, name := range hundredNames()[:many] {
		all = append(all, name)
		pod(name, after)
	}
	all = append(all, first...)
	begun := c.begin()
	took := c.firstLines(first, begun)
	c.tell("boot, "+what+": these run", "ms", took[len(took)-1])
	took = c.firstLines(all, begun)
	c.tell("boot, "+what+": all run", "ms", took[len(took)-1])
	for _, name := range all {
		c.remove(name + ".yaml")
	}
	c.untilGone(all...)
	c.must(os.RemoveAll(c.logs))
	c.kill()
}

// starts are pods that come all at once, what they cost, and what a new agent
// takes to find them.
func (c *contender) starts() {
	time.Sleep(15 * time.Second)
	c.tell("PSS of everything, 0 pods", "MiB", c.pss())
	for _, n := range []int{1, 10, 50, 100} {
		names := hundredNames()[:n]
		cpu, begun := c.cpu(), time.Now()
		c.create(names)
		took := c.firstLines(names, begun)
		c.untilReady(names...)
		label := fmt.Sprintf("%d pods: ", n)
		c.tell(label+"manifest to running, median", "ms", took[len(took)/2])
		c.tell(label+"manifest to running, last", "ms", took[len(took)-1])
		time.Sleep(2 * time.Second)
		c.tell(label+"CPU of everything, a pod", "ms", (c.cpu()-cpu)*1000/float64(n))
		if n >= 10 {
			time.Sleep(10 * time.Second)
			c.tell(label+"PSS of everything", "MiB", c.pss())
		}
		if n == 100 {
			before := c.cpu()
			time.Sleep(*rest)
			c.tell(label+"CPU at rest, a minute", "ms", (c.cpu()-before)*1000*float64(time.Minute)/float64(*rest))
			c.restart(names)
		}
		begun = time.Now()
		for _, name := range names {
			c.remove(name + ".yaml")
		}
		c.untilGone(names...)
		c.tell(label+"removed", "ms", ms(time.Since(begun)))
		c.must(os.RemoveAll(c.logs))
	}
}

// restart kills the agent and has a new one find its pods, and start one more.
func (c *contender) restart(names []string) {
	before := c.restarts()
	c.kill()
	c.create([]string{"extra"})
	begun := c.begin()
	c.tell("restart of the agent with 100 pods: it answers", "ms", ms(time.Since(begun)))
	c.tell("restart of the agent with 100 pods: a new pod runs", "ms", c.firstLines([]string{"extra"}, begun)[0])
	c.untilReady(append(names, "extra")...)
	c.tell("restart of the agent with 100 pods: all pods ready", "ms", ms(time.Since(begun)))
	c.tell("restart of the agent with 100 pods: the agent's CPU", "ms", ticks(c.cmd.Process.Pid)*1000)
	if after := c.restarts(); after != before {
		c.t.Errorf("%d restarts of containers", after-before)
	}
	c.remove("extra.yaml")
	c.untilGone("extra")
}

func (c *contender) restarts() (n int32) {
	for _, p := range c.pods() {
		for _, s := range p.Status.ContainerStatuses {
			n += s.RestartCount
		}
	}
	return n
}

// successor is how long a container that has ended waits for its successor: from
// the last line of the one to the first line of the other.
func (c *contender) successor() {
	var took []float64
	for i := range 10 {
		name := fmt.Sprintf("again%d", i)
		c.write(name+".yaml", box(name, "out, up, sleep, 1200ms, out, down, exit, '1'"))
		first := c.awaitLine(name, "0.log", "down")
		took = append(took, ms(c.awaitLine(name, "1.log", "up").Sub(first)))
		c.remove(name + ".yaml")
		c.untilGone(name)
	}
	slices.Sort(took)
	c.tell("end of a container to start of the next one, median", "ms", took[len(took)/2])
	c.tell("end of a container to start of the next one, longest", "ms", took[len(took)-1])
}

// throughput is what a container can write.
func (c *contender) throughput() {
	const lines = 1_000_000
	cpu := c.cpu()
	c.write("writer.yaml", box("writer", fmt.Sprintf("out, up, lines, '%d', out, down, sleep, forever", lines)))
	took := c.awaitLine("writer", "0.log*", "down").Sub(c.awaitLine("writer", "0.log", "up"))
	c.tell("log: lines a second", "thousands", lines/took.Seconds()/1000)
	c.tell("log: CPU of everything for a million lines", "ms", (c.cpu()-cpu)*1000)
	c.remove("writer.yaml")
	c.untilGone("writer")
}

// unpack takes in 8 images that share three of their four layers.
func (c *contender) unpack() {
	c.tell("8 images of 70 MiB, of which they share 60 MiB: import", "ms", ms(c.images(sharingImages(c.t))))
}

func (c *contender) create(names []string) {
	for _, n := range names {
		c.write(n+".yaml", box(n, "out, up, sleep, forever"))
	}
}

// firstLines are the milliseconds from begun until the containers ran, sorted.
func (c *contender) firstLines(names []string, begun time.Time) []float64 {
	c.t.Helper()
	time.Sleep(time.Duration(len(names)) * 10 * time.Millisecond) // looking costs what is measured
	took := make([]float64, len(names))
	for i, n := range names {
		took[i] = ms(c.awaitLine(n, "0.log", "up").Sub(begun))
	}
	slices.Sort(took)
	return took
}

// awaitLine is when the runtime had a line of a pod's container.
func (c *contender) awaitLine(pod, file, line string) time.Time {
	c.t.Helper()
	for end := time.Now().Add(testTimeout); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		logs, _ := filepath.Glob(filepath.Join(c.logs, "default_"+pod+"-lab_*", "c", file))
		for _, log := range logs {
			if at, ok := c.find(log, line); ok {
				return at
			}
		}
	}
	c.t.Fatalf("pod %s never said %q", pod, line)
	return time.Time{}
}

func (c *contender) find(log, line string) (time.Time, bool) {
	f, err := os.Open(log)
	if err != nil {
		return time.Time{}, false
	}
	defer func() { _ = f.Close() }()
	if i, err := f.Stat(); err == nil && i.Size() > 1<<20 && line == "down" {
		_, _ = f.Seek(-4096, 2) // a writer's last line
	}
	for s := bufio.NewScanner(f); s.Scan(); {
		if stamp, rest, _ := strings.Cut(s.Text(), " "); rest == "stdout F "+line {
			at, err := time.Parse(time.RFC3339Nano, stamp)
			return at, err == nil
		}
	}
	return time.Time{}, false
}

// overhead are the processes that are there for the pods' sake and are none of the
// pods' own.
func (c *contender) overhead() []int {
	dirs, err := os.ReadDir("/proc")
	c.must(err)
	var pids []int
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		line, _ := os.ReadFile(filepath.Join("/proc", d.Name(), "cmdline"))
		args := strings.Split(string(line), "\x00")
		switch filepath.Base(args[0]) {
		case "agent", "containerd", "containerd-shim-runc-v2", "nodewright-monitor", "pause":
			pids = append(pids, pid)
		default:
			if exe, err := os.Readlink(filepath.Join("/proc", d.Name(), "exe")); err == nil && strings.Contains(exe, "nodewright-monitor") {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// pss is the memory of the overhead in MiB, what is shared counted once.
func (c *contender) pss() float64 {
	kib, byName := 0, map[string]int{}
	for _, pid := range c.overhead() {
		rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			continue // ended
		}
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		for l := range strings.Lines(string(rollup)) {
			if f := strings.Fields(l); len(f) > 1 && f[0] == "Pss:" {
				n, _ := strconv.Atoi(f[1])
				kib += n
				byName[strings.TrimSpace(string(name))] += n
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		c.t.Logf("PSS of %s: %.1f MiB", name, float64(byName[name])/1024)
	}
	return float64(kib) / 1024
}

// cpu is what the overhead has used, with its children that have ended, in seconds.
// A shim or a monitor that has ended is its parent's only if it was waited for.
func (c *contender) cpu() float64 {
	var sum float64
	for _, pid := range c.overhead() {
		sum += ticks(pid)
	}
	return sum
}

func ticks(pid int) float64 {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	f := strings.Fields(string(rest))
	sum := 0
	for _, i := range []int{11, 12, 13, 14} { // utime, stime, cutime and cstime of proc_pid_stat(5)
		n, _ := strconv.Atoi(f[i])
		sum += n
	}
	return float64(sum) / 100 // USER_HZ
}

// each runs a command for every archive at once.
func (c *contender) each(archives []string, command func(string) *exec.Cmd) time.Duration {
	begun := time.Now()
	errs := make([]error, len(archives))
	var wg sync.WaitGroup
	for i, a := range archives {
		wg.Go(func() {
			if out, err := command(a).CombinedOutput(); err != nil {
				errs[i] = fmt.Errorf("%s: %w: %s", a, err, out)
			}
		})
	}
	wg.Wait()
	c.must(cmp.Or(errs...))
	return time.Since(begun)
}

// sharingImages are archives for docker load, of layers that are new each time.
func sharingImages(t testing.TB) []string {
	t.Helper()
	dir := t.TempDir()
	layer := func(name string, mib int) []byte {
		var files []sampleimage.File
		for i := range mib * 4 {
			data := make([]byte, 256<<10)
			_, _ = rand.Read(data)
			files = append(files, sampleimage.File{Path: fmt.Sprintf("/%s/%d", name, i), Mode: 0o644, Data: data})
		}
		var b bytes.Buffer
		if err := sampleimage.Tar(&b, files, time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	shared := [][]byte{layer("a", 20), layer("b", 20), layer("c", 20)}
	var out []string
	for i := range 8 {
		path := filepath.Join(dir, fmt.Sprintf("%d.tar", i))
		writeDockerArchive(t, path, fmt.Sprintf("localhost/compare/%d:1", i), append(slices.Clone(shared), layer("own", 10)))
		out = append(out, path)
	}
	return out
}

func writeDockerArchive(t testing.TB, path, name string, layers [][]byte) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(f)
	add := func(name string, data []byte) {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	var ids, names []string
	for i, l := range layers {
		ids = append(ids, fmt.Sprintf("sha256:%x", sha256.Sum256(l)))
		names = append(names, fmt.Sprintf("%d.tar", i))
		add(names[i], l)
	}
	config, _ := json.Marshal(map[string]any{"architecture": "amd64", "os": "linux", "config": map[string]any{}, "rootfs": map[string]any{"type": "layers", "diff_ids": ids}})
	add("config.json", config)
	manifest, _ := json.Marshal([]any{map[string]any{"Config": "config.json", "RepoTags": []string{name}, "Layers": names}})
	add("manifest.json", manifest)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
