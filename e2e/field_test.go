package e2e_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/internal/containerdtest"
	"github.com/nodewright/nodewright/internal/sampleimage"
	"github.com/nodewright/nodewright/internal/testprogram"
)

// fieldCase is a file of the directory field, whose README says what is in it.
type fieldCase struct {
	file, title string
	runtimes    []string
	own         bool // it has an agent of its own
	umask       string
	needs       []string // programs
}

// fieldKeys are the keys of a case's header.
var fieldKeys = regexp.MustCompile(`^# (report|right|runtimes|agent|umask|needs): (.+)$`)

func parseFieldCase(file string, text []byte) (fieldCase, error) {
	c := fieldCase{file: file, runtimes: []string{containerdtest.LocalCRI}}
	has := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "# ") {
			break
		}
		m := fieldKeys.FindStringSubmatch(line)
		switch {
		case m == nil && len(has) == 0:
			c.title += strings.TrimPrefix(line, "#")
			continue
		case m == nil:
			continue // the line before goes on
		}
		has[m[1]] = true
		switch key, value := m[1], strings.TrimSpace(m[2]); key {
		case "runtimes":
			c.runtimes = strings.Fields(value)
		case "agent":
			if value != "own" && value != "shared" {
				return c, fmt.Errorf("%s: agent: %q; want own or shared", file, value)
			}
			c.own = value == "own"
		case "umask":
			c.umask, c.own = value, true
		case "needs":
			c.needs = strings.Fields(value)
		}
	}
	if c.title == "" || !has["report"] || !has["right"] {
		return c, fmt.Errorf("%s: want a header with a title, report: and right:", file)
	}
	for _, r := range c.runtimes {
		if r != containerdtest.LocalCRI && r != containerdtest.ContainerdName {
			return c, fmt.Errorf("%s: runtimes: %q; want %s and %s", file, r, containerdtest.LocalCRI, containerdtest.ContainerdName)
		}
	}
	return c, nil
}

// fieldTimeout is how long a case waits for what must come, however slow the machine.
var fieldTimeout = flag.Duration("field.timeout", 2*time.Minute, "how long a case of TestField waits for what must come")

// atATime is how many cases run at a time. Most of the time they wait.
const atATime = 4

// TestField runs the cases of the directory field, each on the runtimes that it names.
func TestField(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("field", "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	cases := map[string][]fieldCase{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c, err := parseFieldCase(file, text)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range c.runtimes {
			cases[r] = append(cases[r], c)
		}
	}
	turns := make(chan struct{}, atATime)
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireRuntime(t, name)
			shared := newFieldNode(t, name, "")
			start := sync.OnceValue(func() error { return shared.start(nil, "") })
			var all sync.WaitGroup
			for _, c := range cases[name] {
				all.Go(func() {
					turns <- struct{}{}
					defer func() { <-turns }()
					t.Run(strings.TrimSuffix(filepath.Base(c.file), ".txtar"), func(t *testing.T) { c.run(t, name, shared, start) })
				})
			}
			all.Wait()
		})
	}
}

// requireRuntime skips a test where pods cannot run.
func requireRuntime(t *testing.T, name string) {
	t.Helper()
	program(t, "agent")
	if name == containerdtest.ContainerdName {
		if err := containerdtest.Missing(filepath.Dir(program(t, "agent"))); err != nil {
			t.Skip(err)
		}
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("containers need root")
	}
	program(t, "runc")
}

// inTurn is a test that testscript runs at once: TestField sees to what runs beside it.
type inTurn struct{ *testing.T }

func (inTurn) Parallel()                            {}
func (t inTurn) Run(_ string, f func(testscript.T)) { f(t) }
func (inTurn) Verbose() bool                        { return testing.Verbose() }

type (
	fieldNodeKey struct{} // of the environment's *fieldNode
	fieldTestKey struct{} // of the environment's *testing.T
)

func (c *fieldCase) run(t *testing.T, runtime string, shared *fieldNode, start func() error) {
	for _, p := range c.needs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skip(err)
		}
	}
	n, namespace := shared, strings.ReplaceAll(strings.TrimSuffix(filepath.Base(c.file), ".txtar"), "_", "-")
	if c.own {
		n, namespace = newFieldNode(t, runtime, c.umask), "default"
	} else if err := start(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(3 * *fieldTimeout) // for programs that hang
	testscript.RunT(inTurn{t}, testscript.Params{
		Files: []string{c.file}, Deadline: deadline, RequireUniqueNames: true, RequireExplicitExec: true, Cmds: fieldCommands(),
		Condition: func(cond string) (bool, error) {
			if name, ok := strings.CutPrefix(cond, "runtime:"); ok {
				return name == runtime, nil
			}
			switch cond {
			case "cgroup2":
				return cgroup2(), nil
			case "userns":
				return exec.Command("unshare", "--user", "--map-root-user", "true").Run() == nil, nil
			}
			return false, fmt.Errorf("condition %q; want runtime:NAME, cgroup2 or userns", cond)
		},
		Setup: func(e *testscript.Env) error {
			e.Values[fieldNodeKey{}], e.Values[fieldTestKey{}] = n, t
			for name, value := range map[string]string{
				"NS": namespace, "RUNTIME": runtime, "DIR": n.dir, "ROOT": n.root(), "MANIFESTS": n.manifests(), "LOGS": n.logs(), "AGENTLOG": n.logFile(), "AGENT": program(t, "agent"),
				"IMAGE": busybox, "KUBECONFIG": n.kubeconfig(), "PATH": n.path(), "HOME": e.WorkDir, "CASE": namespace,
			} {
				e.Setenv(name, value)
			}
			if c.own {
				e.Defer(n.finish) // before the case's directory is removed, in which a root may be
			} else {
				e.Defer(func() { n.removeAll(namespace) })
			}
			return nil
		},
	})
}

func cgroup2() bool {
	var st unix.Statfs_t
	return unix.Statfs("/sys/fs/cgroup", &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
}

// A fieldNode is an agent on a runtime of its own.
type fieldNode struct {
	t       *testing.T
	dir     string
	runtime string
	umask   string
	cri     *containerdtest.Containerd // nil for the agent's own runtime
	address string                     // of its Kubernetes API
	cmd     *exec.Cmd
	ended   chan error // of cmd
	api     *local.Client
	roots   []string // root directories, of which the last is the agent's

	mu sync.Mutex // guards loads of images
}

func newFieldNode(t *testing.T, runtime, umask string) *fieldNode {
	t.Helper()
	dir, err := os.MkdirTemp("", "nwfield")
	if err != nil {
		t.Fatal(err)
	}
	n := &fieldNode{t: t, dir: dir, runtime: runtime, umask: umask, address: fmt.Sprintf("127.0.0.1:%d", testprogram.Port(t))}
	t.Cleanup(func() { // the last of it
		if err := containerdtest.UnmountBelow(dir); err != nil {
			t.Error(err)
		}
		_ = containerdtest.UnlinkLogs(dir)
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	for _, d := range []string{n.manifests(), n.logs()} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // pods of user namespaces pass through
		t.Fatal(err)
	}
	if runtime == containerdtest.ContainerdName {
		n.cri = containerdtest.New(t, containerdtest.Options{Runtime: runtime})
	}
	t.Cleanup(func() {
		n.finish()
		if t.Failed() {
			b, _ := os.ReadFile(n.logFile())
			t.Logf("the agent said last:\n%s", tail(string(b), 20))
		}
	})
	n.use(filepath.Join(dir, "root"))
	return n
}

// finish ends the agent and all that it made.
func (n *fieldNode) finish() {
	n.kill()
	for _, root := range n.roots {
		if _, err := os.Stat(root); err == nil && n.cri == nil {
			reset := exec.Command(program(n.t, "agent"), "reset", "--root-dir", root, "--images")
			reset.Env = n.environ()
			if out, err := reset.CombinedOutput(); err != nil {
				n.t.Errorf("agent reset: %v: %s", err, out)
			}
		}
		if err := containerdtest.UnmountBelow(root); err != nil {
			n.t.Error(err)
		}
	}
	n.roots = n.roots[len(n.roots)-1:]
}

func (n *fieldNode) root() string       { return n.roots[len(n.roots)-1] }
func (n *fieldNode) manifests() string  { return filepath.Join(n.dir, "manifests") }
func (n *fieldNode) logs() string       { return filepath.Join(n.dir, "logs") }
func (n *fieldNode) logFile() string    { return filepath.Join(n.dir, "agent.log") }
func (n *fieldNode) kubeconfig() string { return filepath.Join(n.dir, "kubeconfig") }

// use has the agent's state in a directory.
func (n *fieldNode) use(root string) {
	n.roots = append(n.roots, root)
	n.api = local.NewClient(filepath.Join(root, "agent.sock"))
}

// fieldConfig is what every agent has; a case's config.yaml comes below it, and its lines
// replace those of the same name.
const fieldConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
failSwapOn: false
cgroupsPerQOS: false
enableServer: false
healthzPort: 0
evictionHard: {}
imageGCHighThresholdPercent: 100
`

// start starts the agent and returns when it answers and has the usual image.
func (n *fieldNode) start(flags []string, config string) error {
	if n.cmd != nil {
		return fmt.Errorf("the agent runs")
	}
	text := fieldConfig + fmt.Sprintf("staticPodPath: %q\npodLogsDir: %q\n", n.manifests(), n.logs())
	for line := range strings.Lines(config) {
		if key, _, ok := strings.Cut(line, ":"); ok && !strings.ContainsAny(key[:1], " -#") {
			text = regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(key)+`:.*\n`).ReplaceAllString(text, "")
		}
	}
	file := filepath.Join(n.dir, "config.yaml")
	if err := os.WriteFile(file, []byte(text+config), 0o600); err != nil {
		return err
	}
	log, err := os.OpenFile(n.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	endpoint := []string{"--container-runtime-endpoint", "localcri", "--network", "bridge"}
	if n.cri != nil {
		endpoint = []string{"--container-runtime-endpoint", "unix://" + n.cri.Socket}
	}
	args := slices.Concat([]string{"-c", `umask "$0"; exec "$@"`, cmp.Or(n.umask, "022"), program(n.t, "agent"),
		"run", "--leave-host", "--root-dir", n.root(), "--config", file, "--hostname-override", "n1", "--local-api", n.address}, endpoint, flags)
	n.cmd = exec.Command("sh", args...)
	n.cmd.Stdout, n.cmd.Stderr = log, log
	n.cmd.Env = n.environ()
	if err := n.cmd.Start(); err != nil {
		return err
	}
	n.ended = make(chan error, 1)
	go func(cmd *exec.Cmd, ended chan<- error) { ended <- cmd.Wait() }(n.cmd, n.ended)
	err = n.comes("the agent answers", func() error {
		_, err := n.api.Pods(context.Background())
		return err
	})
	if err == nil {
		err = n.comes("a kubeconfig", n.login)
	}
	if err != nil {
		b, _ := os.ReadFile(n.logFile())
		n.kill()
		return fmt.Errorf("%w; it said last:\n%s", err, tail(string(b), 5))
	}
	return n.load(busyboxImage(n.t))
}

// comes is within, for as long as the agent runs.
func (n *fieldNode) comes(what string, ask func() error) error {
	return within(what, func() error {
		select {
		case err := <-n.ended:
			n.ended <- err // for end
			return giveUp{fmt.Errorf("the agent has ended: %w", cmp.Or(err, errors.New("without an error")))}
		default:
			return ask()
		}
	})
}

// environ has the programs that were built for the agent in the PATH.
func (n *fieldNode) environ() []string { return append(os.Environ(), "PATH="+n.path()) }

func (n *fieldNode) path() string {
	return filepath.Dir(program(n.t, "agent")) + ":" + os.Getenv("PATH")
}

// login makes a kubeconfig. There is none before the API has an authority.
func (n *fieldNode) login() error {
	out, err := exec.Command(program(n.t, "agent"), "kubeconfig", "--root-dir", n.root()).Output()
	if err != nil {
		return err
	}
	return os.WriteFile(n.kubeconfig(), out, 0o600)
}

// end sends a signal to the agent and waits for its end.
func (n *fieldNode) end(sig syscall.Signal) {
	if n.cmd == nil {
		return
	}
	_ = n.cmd.Process.Signal(sig)
	<-n.ended
	n.cmd = nil
}

func (n *fieldNode) kill() { n.end(syscall.SIGKILL) }

// load gives an image to the runtime.
func (n *fieldNode) load(img sampleimage.Image) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var b bytes.Buffer
	if err := sampleimage.Write(&b, img); err != nil {
		return err
	}
	return n.loadArchive(&b)
}

func (n *fieldNode) loadArchive(r io.Reader) error {
	if n.cri == nil {
		_, err := n.api.LoadImages(context.Background(), r, "")
		return err
	}
	f, err := os.CreateTemp(n.dir, "image")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	if _, err = io.Copy(f, r); err == nil {
		err = f.Close()
	}
	if err != nil {
		return err
	}
	return n.cri.Import(context.Background(), f.Name())
}

// removeAll removes the manifests of a case from the shared agent's.
func (n *fieldNode) removeAll(namespace string) {
	files, _ := filepath.Glob(filepath.Join(n.manifests(), namespace+"--*"))
	for _, f := range files {
		_ = os.Remove(f)
	}
}

// giveUp is an error that no waiting mends.
type giveUp struct{ error }

// within calls ask until it has no error, for as long as a slow machine may need.
func within(what string, ask func() error) error {
	for end := time.Now().Add(*fieldTimeout); ; time.Sleep(100 * time.Millisecond) {
		err := ask()
		_, final := err.(giveUp) //nolint:errorlint // not wrapped
		if err == nil || final {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: not within %v: %w", what, *fieldTimeout, err)
		}
	}
}
