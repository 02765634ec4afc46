package usage

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nodewright/nodewright/internal/kernel"
)

func TestInCgroup(t *testing.T) {
	const text = "3:memory:/p/c\n2:cpu,cpuacct:/\n0::/x:y/z\n"
	all, err := kernel.ParseCgroups([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for cgroup, want := range map[string]bool{"/p/c": true, "/p": true, "/p/c/d": false, "/p/cc": false, "/pp": false, "/x:y": true, "/q": false} {
		if got := in(all, cgroup); got != want {
			t.Errorf("in %s: %v", cgroup, got)
		}
	}
}

// realCgroup makes a cgroup of the test's own, and returns how a process is put
// into one below it.
func realCgroup(t *testing.T, r *Reader) (cgroup string, join func(pid int, below string)) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	cgroup = "/nodewright-usage-test-" + strconv.Itoa(os.Getpid())
	controllers := hierarchies
	if r.v2 {
		controllers = controllers[:1]
	}
	var made []string
	mkdir := func(dir string) {
		if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
			t.Skip("no cgroup of our own: ", err)
		}
		made = append(made, dir)
	}
	for _, c := range controllers {
		mkdir(r.dir(c, cgroup))
	}
	t.Cleanup(func() {
		for i := len(made) - 1; i >= 0; i-- {
			for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
				if err := os.Remove(made[i]); err == nil || os.IsNotExist(err) {
					break
				} else if time.Now().After(end) {
					t.Error(err)
					break
				}
			}
		}
	})
	return cgroup, func(pid int, below string) {
		for _, c := range controllers {
			dir := filepath.Join(r.dir(c, cgroup), below)
			mkdir(dir)
			if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func thisReader(t *testing.T) *Reader {
	t.Helper()
	r, err := New(Config{Mountpoint: "/"})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A process that forks without end cannot run away from the signal.
func TestKillCgroupKillsWhatForks(t *testing.T) {
	r := thisReader(t)
	cgroup, join := realCgroup(t, r)
	var cmds []*exec.Cmd
	for i, below := range []string{"", "a", "a/b"} {
		cmd := exec.Command("sh", "-c", `read x; trap "" TERM HUP; while :; do sleep 100 & (sleep 100 & sleep 0.01); done`)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		join(cmd.Process.Pid, below)
		if _, err := in.Write([]byte("go\n")); err != nil {
			t.Fatal(i, err)
		}
		cmds = append(cmds, cmd)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if pids, err := r.Processes(cgroup); err != nil {
			t.Fatal(err)
		} else if len(pids) >= 20 || time.Now().After(end) {
			break
		}
	}
	var wg sync.WaitGroup
	for range 4 { // at once
		wg.Go(func() {
			if err := r.KillCgroup(t.Context(), cgroup); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, cmd := range cmds {
		_ = cmd.Wait()
		if w := cmd.ProcessState.Sys().(syscall.WaitStatus); w.Signal() != syscall.SIGKILL {
			t.Errorf("ended by %v", w)
		}
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		pids, err := r.Processes(cgroup)
		if err != nil {
			t.Fatal(err)
		}
		alive := 0
		for _, pid := range pids {
			if p, err := kernel.This.Process(t.Context(), pid); err == nil && !p.Ended() {
				alive++
			}
		}
		if alive == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d processes a minute after the kill", alive)
		}
	}
	if err := r.KillCgroup(t.Context(), cgroup+"none"); err != nil {
		t.Errorf("a cgroup that is not there: %v", err)
	}
}

func TestOwnCgroupIsNotKilled(t *testing.T) {
	r := thisReader(t)
	cgroup, join := realCgroup(t, r)
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	join(cmd.Process.Pid, "")
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		own := strings.TrimSpace(line[strings.LastIndexByte(line, ':')+1:])
		if own == "/" {
			continue
		}
		if err := r.KillCgroup(t.Context(), own); err == nil || !strings.Contains(err.Error(), "has this process") {
			t.Errorf("KillCgroup(%s): %v", own, err)
		}
		return
	}
	t.Skip("this process is in the root of every hierarchy; ", cgroup)
}
