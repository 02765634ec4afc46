package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/internal/containerdtest"
	"github.com/nodewright/nodewright/internal/sampleimage"
	"github.com/nodewright/nodewright/internal/testprogram"
)

// loopMount puts a small file system of its own on dir, or skips the test
// where that cannot be.
func loopMount(t *testing.T, dir string, size int64) {
	t.Helper()
	containerdtest.Required(t)
	image := filepath.Join(t.TempDir(), "disk")
	f, err := os.Create(image)
	if err == nil {
		err = errors.Join(f.Truncate(size), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-m", "0", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("no loop file system here: %v: %v: %s", args, err, out)
		}
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	_ = os.Remove(filepath.Join(dir, "lost+found"))
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // containers pass through
		t.Fatal(err)
	}
}

// used is how full a file system is, and how many bytes it has.
func used(t *testing.T, dir string) (percent int, capacity int64) {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int(100 * (st.Blocks - st.Bavail) / st.Blocks), int64(st.Blocks) * st.Bsize
}

// pipe is a manifest of a pod that prints what is written to a pipe, and the
// pipe's path on the node.
func (l *lab) pipe(name string) (manifest, path string) {
	l.t.Helper()
	dir := l.t.TempDir()
	l.must(os.Chmod(dir, 0o755)) //nolint:gosec // the container reads it
	path = filepath.Join(dir, "pipe")
	l.must(syscall.Mkfifo(path, 0o666))
	data, err := os.ReadFile(testprogram.Build(l.t, "./examples/agent/testdata/pipe"))
	l.must(err)
	l.addImage("localhost/pipe:1", sampleimage.File{Path: "/pipe", Mode: 0o755, Data: data})
	manifest = strings.Replace(box(name, "/in/pipe"), "]}", "], volumeMounts: [{name: in, mountPath: /in}]}", 1)
	manifest = strings.Replace(manifest, "  containers:\n", fmt.Sprintf("  volumes: [{name: in, hostPath: {path: %s}}]\n  containers:\n", dir), 1)
	return strings.ReplaceAll(manifest, sampleimage.Testbox, "localhost/pipe:1"), path
}

// addImage puts an image on the node that runs the first of these files.
func (l *lab) addImage(name string, files ...sampleimage.File) {
	l.t.Helper()
	var b bytes.Buffer
	l.must(sampleimage.Write(&b, sampleimage.Image{Name: name, Architecture: runtime.GOARCH, Entrypoint: []string{files[0].Path}, Files: files}))
	archive := filepath.Join(l.t.TempDir(), "image.tar")
	l.must(os.WriteFile(archive, b.Bytes(), 0o600))
	l.must(l.c.Import(l.t.Context(), archive))
}

// flood writes numbered lines of 1000 bytes, so many bytes a second.
func flood(ctx context.Context, w io.Writer, from, lines, rate int) error {
	pad := strings.Repeat("x", 1000)
	start := time.Now()
	for n := 0; n < lines; n++ {
		if _, err := fmt.Fprintf(w, "%s\n", fmt.Sprintf("%09d %s", from+n, pad)[:999]); err != nil {
			return err
		}
		if ahead := time.Duration(float64(n*1000)/float64(rate)*float64(time.Second)) - time.Since(start); ahead > 5*time.Millisecond {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(ahead):
			}
		}
	}
	return nil
}

// dirSize is how many bytes the files below dir have.
func dirSize(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if fi, err := d.Info(); err == nil {
				n += fi.Size()
			}
		}
		return nil // files come and go
	})
	return n
}

// A flood of 10 MB a second stays within the pod's budget. No line is lost but
// with whole old files, and who follows the log goes on over rotations.
func TestLogFlood(t *testing.T) {
	l := newLab(t)
	const budget, most, rate, fast, lines = 30 << 20, 10 << 20, 10_000_000, 80_000, 92_000 // 8 s, and then as fast as logs are rotated
	l.configure("containerLogMaxSize: 10Mi\ncontainerLogMaxFiles: 5\n")
	l.args = []string{"--pod-log-budget", "30Mi"}
	manifest, path := l.pipe("flood")
	l.write("flood.yaml", manifest)
	l.start()
	pod := l.untilReady("flood")["flood"]
	dir := filepath.Join(l.logs, "default_flood-lab_"+string(pod.UID))

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body, err := l.api.Log(ctx, pod.Namespace, pod.Name, local.LogOptions{Follow: true, Tail: -1})
	l.must(err)
	type followed struct{ lines, missed, last int }
	follower := make(chan followed, 1)
	go func() {
		f := followed{last: -1}
		in := bufio.NewScanner(body)
		in.Buffer(nil, 1<<20)
		for f.last < lines-1 && in.Scan() {
			n := -1
			_, _ = fmt.Sscanf(in.Text(), "%d", &n)
			f.lines, f.missed, f.last = f.lines+1, f.missed+n-f.last-1, n
		}
		follower <- f
	}()
	w, err := os.OpenFile(path, os.O_WRONLY, 0)
	l.must(err)
	defer func() { _ = w.Close() }()
	wrote := make(chan error, 1)
	began := time.Now()
	go func() { wrote <- flood(ctx, w, 0, fast, rate) }()
	peak, done := int64(0), false
	for !done {
		select {
		case err := <-wrote:
			l.must(err)
			done = true
		case <-time.After(20 * time.Millisecond):
			peak = max(peak, dirSize(dir))
		}
	}
	took := time.Since(began)
	// How much is written between two rotations depends on the load of the machine, and so does whether the last of them leaves room
	// for an old file. From here on each file has its size.
	for n := fast; n < lines; n += 1000 {
		l.await("rotated", func() bool {
			fi, err := os.Stat(filepath.Join(dir, "c", "0.log"))
			return err == nil && fi.Size() < most
		})
		l.must(flood(ctx, w, n, 1000, rate))
	}
	l.must(w.Close())
	var kept []int
	l.await("all that is kept is read", func() bool { // a file that is compressed meanwhile is not
		kept = l.kept(dir)
		whole := len(kept) > 0 && kept[len(kept)-1] == lines-1
		for i := 1; i < len(kept); i++ {
			whole = whole && kept[i] == kept[i-1]+1
		}
		return whole
	})
	if files := l.entries(filepath.Join(dir, "c")); len(files) < 2 || len(files) > 5 {
		t.Errorf("%d files are left, want 2 to 5", len(files))
	}
	// How much there is at any moment depends on the load of the machine: logrotate's
	// TestRunKeepsTheBudgetOfAPodThatFloods has that in virtual time.
	l.until("logs within the budget", func(map[string]*v1.Pod) bool { return dirSize(dir) <= budget })
	select {
	case f := <-follower:
		t.Logf("%.1f MB/s for %v: at most %.1f MiB of %d MiB; kept %d lines, from %d on; the follower got %d lines and missed %d",
			float64(fast*1000)/took.Seconds()/1e6, took.Round(time.Second), float64(peak)/(1<<20), budget>>20, len(kept), kept[0], f.lines, f.missed)
		if f.last != lines-1 {
			t.Errorf("the follower ended at line %d", f.last)
		}
	case <-time.After(testTimeout):
		t.Error("the follower has not seen the last line")
	}
}

// kept are the numbers of the lines in all logs of a pod, the oldest first.
func (l *lab) kept(dir string) (numbers []int) {
	l.t.Helper()
	var files []string
	for _, e := range l.entries(filepath.Join(dir, "c")) {
		if !strings.HasSuffix(e.Name(), ".tmp") {
			files = append(files, e.Name())
		}
	}
	slices.Sort(files)
	if len(files) > 0 { // 0.log is the newest
		files = append(files[1:], files[0])
	}
	parts := ""
	for _, name := range files {
		f, err := os.Open(filepath.Join(dir, "c", name))
		if err != nil {
			continue // it was compressed meanwhile
		}
		var in io.Reader = f
		if strings.HasSuffix(name, ".gz") {
			in, err = gzip.NewReader(f)
			l.must(err)
		}
		lines := bufio.NewScanner(in)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if _, text, ok := strings.Cut(lines.Text(), " stdout P "); ok {
				parts += text // a runtime may write what there is of a line before its end comes
			} else if _, text, ok := strings.Cut(lines.Text(), " F "); ok {
				text, parts = parts+text, ""
				n := -1
				_, err := fmt.Sscanf(text, "%d", &n)
				if err != nil && len(numbers) == 0 {
					continue // its beginning is in a file that was removed
				}
				if err != nil {
					l.t.Logf("%s has a line of %d bytes without a number: %.80q", name, len(text), text)
				}
				numbers = append(numbers, n)
			}
		}
		_ = f.Close()
	}
	return numbers
}

// What a crash loop leaves is bounded, and nothing stays of pods that are gone.
func TestRemainsOfACrashLoop(t *testing.T) {
	l := newLab(t)
	l.configure("crashLoopBackOff: {maxContainerRestartPeriod: 1s}\n")
	l.write("a.yaml", box("a", "out, here, exit, '1'"))
	l.start()
	// How many there are at a time is for virtual time to say: agent.TestDeadContainersOfACrashLoop.
	l.until("restarted 6 times, with 3 containers at most", func(pods map[string]*v1.Pod) bool {
		return pods["a"] != nil && len(pods["a"].Status.ContainerStatuses) == 1 && pods["a"].Status.ContainerStatuses[0].RestartCount >= 6 && len(l.containers()) <= 3
	})
	const links = "/var/log/containers"
	own := func() (n int) {
		for _, e := range l.entries(links) {
			if to, err := os.Readlink(filepath.Join(links, e.Name())); err == nil && strings.HasPrefix(to, l.logs+"/") {
				n++
			}
		}
		return n
	}
	l.until("links to logs of what is there, and no others", func(map[string]*v1.Pod) bool {
		n := own()
		return n > 0 && n <= 3
	})
	gone := filepath.Join(l.logs, "default_gone_0000")
	l.must(os.MkdirAll(filepath.Join(gone, "c"), 0o755))
	l.must(os.Symlink(filepath.Join(gone, "c", "0.log"), filepath.Join(links, "gone_default_c-0000.log")))
	l.remove("a.yaml")
	l.untilGone("a")
	l.nothingLeft(nil)
	l.until("no links", func(map[string]*v1.Pod) bool { return own() == 0 })
}

// An image disk that fills up loses the images that nobody needs, and neither
// those that run nor those that a pod is about to need.
func TestImageDiskFills(t *testing.T) {
	containerdtest.Required(t)
	dir, err := os.MkdirTemp("", "nwcd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	root := filepath.Join(dir, "root")
	if err := errors.Join(os.Chmod(dir, 0o711), os.Mkdir(root, 0o711)); err != nil { //nolint:gosec // containers pass through
		t.Fatal(err)
	}
	size := 1 // in 400 MiB
	if containerdtest.Local() {
		size = 4 // it takes no image in that leaves less than 256 MiB
	}
	loopMount(t, root, int64(size)*400<<20)
	l := newLabOn(t, containerdtest.Options{Dir: dir})
	l.reconfigure("imageGCHighThresholdPercent: 100", "imageGCHighThresholdPercent: 60\nimageGCLowThresholdPercent: 45\nimageMinimumGCAge: 1ms")
	program, err := os.ReadFile(filepath.Join("..", "..", "build", "images", "bin", "testbox"))
	l.must(err)
	add := func(name string, size int) {
		ballast := make([]byte, size)
		_, _ = rand.Read(ballast)
		l.addImage(name, sampleimage.File{Path: "/testbox", Mode: 0o755, Data: program}, sampleimage.File{Path: "/ballast", Mode: 0o644, Data: ballast})
	}
	of := func(image, manifest string) string { return strings.ReplaceAll(manifest, sampleimage.Testbox, image) }
	add("localhost/runs:1", 10<<20)
	add("localhost/starts:1", 10<<20)
	l.write("runs.yaml", of("localhost/runs:1", box("runs", "sleep, forever")))
	l.write("starts.yaml", strings.Replace(of("localhost/starts:1", box("starts", "sleep, forever")), "  containers:\n",
		"  initContainers: [{name: i, image: '"+sampleimage.Testbox+"', args: [wait, /nothing]}]\n  containers:\n", 1))
	l.start()
	before := containerID(l.untilReady("runs")["runs"], "c")
	l.until("the other has begun", func(pods map[string]*v1.Pod) bool {
		return pods["starts"] != nil && len(pods["starts"].Status.InitContainerStatuses) == 1 && pods["starts"].Status.InitContainerStatuses[0].State.Running != nil
	})
	for i := 0; ; i++ {
		add(fmt.Sprintf("localhost/unused:%d", i), size*20<<20)
		if p, _ := used(t, root); p > 70 {
			break
		}
	}
	said := l.ask("images")
	for _, want := range []string{"localhost/runs:1", "in use: default/runs-lab/c", "desired: localhost/starts:1", "localhost/unused:0", "have to be freed"} {
		if !strings.Contains(said, want) {
			t.Errorf("agent images: want %q in\n%s", want, said)
		}
	}
	t.Logf("agent images:\n%s", said)
	full, _ := used(t, root)
	l.must(l.interrupt()) // the agent looks when it starts, and every five minutes
	l.start()
	l.until("space", func(map[string]*v1.Pod) bool { p, _ := used(t, root); return p <= 46 })
	now, capacity := used(t, root)
	names := map[string]bool{}
	list, err := l.cri.ListImages(t.Context(), nil)
	l.must(err)
	for _, i := range list {
		for _, n := range i.RepoTags {
			names[n] = true
		}
	}
	t.Logf("a disk of %d MiB was used to %d%%, and is to %d%%; left are %v", capacity>>20, full, now, names)
	needed := []string{"localhost/runs:1", "localhost/starts:1", sampleimage.Testbox}
	if !containerdtest.Local() {
		needed = append(needed, sampleimage.Pause) // localcri's pods have no container of it
	}
	for _, want := range needed {
		if !names[want] {
			t.Errorf("image %s is gone", want)
		}
	}
	if pods := l.untilReady("runs"); containerID(pods["runs"], "c") != before {
		t.Error("the pod that ran was touched")
	}
}

// On a disk that is full to the last byte the agent starts, its pods run on,
// logs are rotated, and all goes on when there is space again.
func TestFullDisk(t *testing.T) {
	l := newLab(t)
	config, err := os.ReadFile(l.config())
	l.must(err)
	disk := filepath.Dir(l.manifests)
	loopMount(t, disk, 64<<20)
	l.must(os.Mkdir(l.manifests, 0o755))
	l.must(os.WriteFile(l.config(), config, 0o600))
	l.configure("containerLogMaxSize: 1Mi\ncontainerLogMaxFiles: 3\n")
	manifest, path := l.pipe("talks")
	l.write("talks.yaml", manifest)
	l.write("still.yaml", box("still", "sleep, forever"))
	l.start()
	pods := l.untilReady("talks", "still")
	talks, still := containerID(pods["talks"], "c"), containerID(pods["still"], "c")
	logs := filepath.Join(l.logs, "default_talks-lab_"+string(pods["talks"].UID), "c")
	w, err := os.OpenFile(path, os.O_WRONLY, 0)
	l.must(err)
	defer func() { _ = w.Close() }()
	size := func() int64 {
		fi, err := os.Stat(filepath.Join(logs, "0.log"))
		if err != nil {
			return 0
		}
		return fi.Size()
	}
	l.must(l.interrupt())
	l.must(flood(t.Context(), w, 0, 3000, 10_000_000)) // 3 MB, which nobody rotates
	l.await("logged", func() bool { return size() > 3_000_000 })

	filler := filepath.Join(disk, "filler")
	fill := func() {
		f, err := os.OpenFile(filler, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		l.must(err)
		for block := 1 << 20; block > 0; {
			if _, err := f.Write(make([]byte, block)); errors.Is(err, unix.ENOSPC) {
				block /= 2
			} else {
				l.must(err)
			}
		}
		l.must(f.Close())
	}
	fill()
	percent, _ := used(t, disk)
	t.Logf("the disk is used to %d%%", percent)
	l.start() // on the full disk
	l.untilReady("talks", "still")
	l.await("rotated", func() bool { return len(l.entries(logs)) > 1 && size() < 1<<20 })
	fill() // what the rotation may have freed
	before := len(l.entries(logs))
	l.must(flood(t.Context(), w, 3000, 10, 1_000_000))
	l.must(syscall.Kill(l.pid(still), syscall.SIGKILL))
	time.Sleep(5 * time.Second) // the agent has something to do, and no space to do it
	if pods := l.pods(); pods == nil || containerID(pods["talks"], "c") != talks || pods["talks"].Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("on a full disk: %v", brief(pods))
	}
	t.Logf("on the full disk: %v, %d files of logs", brief(l.pods()), before)

	l.must(os.Remove(filler))
	l.write("later.yaml", box("later", "sleep, forever"))
	pods = l.untilReady("talks", "still", "later")
	if containerID(pods["talks"], "c") != talks || pods["still"].Status.ContainerStatuses[0].RestartCount == 0 {
		t.Errorf("with space again: %v", brief(pods))
	}
	l.must(flood(t.Context(), w, 3010, 5000, 10_000_000))
	l.await("rotated again", func() bool { return len(l.entries(logs)) == 3 && size() < 2<<20 })
	for _, f := range []string{"talks.yaml", "still.yaml", "later.yaml"} {
		l.remove(f)
	}
	l.untilGone("talks", "still", "later")
	l.must(l.interrupt())
	if strings.Contains(l.agentLog.String(), "panic") {
		t.Error("the agent panicked")
	}
}

// await waits for what is not about pods.
func (l *lab) await(what string, done func() bool) {
	l.t.Helper()
	for end := time.Now().Add(testTimeout); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			l.t.Fatalf("not %s after %v", what, testTimeout)
		}
	}
}
