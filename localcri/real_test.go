//go:build linux

package localcri_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/internal/cdi"
	"github.com/nodewright/nodewright/internal/sampleimage"
	"github.com/nodewright/nodewright/localcri"
	"github.com/nodewright/nodewright/localcri/image"
	"github.com/nodewright/nodewright/network"
	"github.com/nodewright/nodewright/network/bridge"
	"github.com/nodewright/nodewright/network/networktest"
)

// built is what all tests of this package share.
var built struct {
	sync.Once
	dir, testbox string
	err          error
}

func buildAll(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := os.Stat(runc()); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs build/bin/runc (make tools)")
		}
		t.Skip("needs build/bin/runc (make tools)")
	}
	built.Do(func() {
		built.dir, built.err = os.MkdirTemp("", "localcri")
		if built.err != nil {
			return
		}
		archives, err := sampleimage.Build(context.Background(), "..", built.dir)
		if err != nil {
			built.err = err
			return
		}
		i := slices.IndexFunc(archives, func(a string) bool { return filepath.Base(a) == "testbox.tar" })
		built.testbox = archives[i]
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
}

func runc() string {
	p, err := filepath.Abs("../build/bin/runc")
	if err != nil {
		return err.Error()
	}
	return p
}

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		childMain(dir)
		return
	}
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// node is a runtime on this machine.
type node struct {
	t       testing.TB
	dir     string // on a disk
	state   string // on a tmpfs
	bridge  bool
	hooks   localcri.Hooks // may be nil
	boot    string
	log     *zap.Logger
	warned  *observer.ObservedLogs // warnings of log
	rt      *localcri.Runtime
	images  *image.Store
	network *network.Network
	stop    func()
}

// newNode makes directories for a runtime and starts it.
func newNode(t testing.TB, change ...func(*node)) *node {
	t.Helper()
	n := nodeDirs(t)
	for _, f := range change {
		f(n)
	}
	n.start()
	n.load()
	return n
}

func nodeDirs(t testing.TB) *node {
	t.Helper()
	buildAll(t)
	core, logs := observer.New(zap.WarnLevel)
	n := &node{t: t, warned: logs, log: zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel),
		zaptest.WrapOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return zapcore.NewTee(c, core) })))}
	n.dir = t.TempDir()
	// The root of a pod with users of its own has to pass on the way to its own.
	err := errors.Join(os.Chmod(n.dir, 0o711), os.Chmod(filepath.Dir(n.dir), 0o711))
	if err != nil {
		t.Fatal(err)
	}
	if n.state, err = os.MkdirTemp("/dev/shm", "nw"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.clear)
	return n
}

// clear takes away what a test left, so that no process and no mount outlives it.
func (n *node) clear() {
	if n.stop != nil {
		for deadline := time.Now().Add(time.Minute); !n.t.Failed(); time.Sleep(5 * time.Millisecond) {
			left, _ := os.ReadDir(filepath.Join(n.dir, "rt/containers"))
			if len(left) == 0 {
				break
			}
			if time.Now().After(deadline) {
				n.t.Errorf("%d containers are left", len(left))
			}
		}
		n.stop()
	}
	for pid, args := range processes() {
		if bytes.Contains(args, []byte(n.state)) {
			n.t.Errorf("process %d is left: %q", pid, args)
		}
	}
	if left := n.monitors(); len(left) > 0 {
		n.t.Errorf("monitors are left: %v", left)
		n.killMonitors()
	}
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		target := strings.Fields(line)[1]
		if !strings.HasPrefix(target, n.dir+"/") && !strings.HasPrefix(target, n.state+"/") {
			continue
		}
		// Directories from which no mount spreads stay what they are.
		own := []string{filepath.Join(n.dir, "rt", "containers"), filepath.Join(n.state, "ns"), filepath.Join(n.state, "shm"), filepath.Join(n.state, "sys"), filepath.Join(n.state, "netns")}
		if !slices.Contains(own, target) {
			n.t.Errorf("mount is left: %s", line)
		}
		_ = unix.Unmount(target, unix.MNT_DETACH)
	}
	_ = os.RemoveAll(n.state)
}

// assemble makes the parts of a runtime.
func (n *node) assemble() error {
	var err error
	n.images, err = image.New(image.Config{
		RootDir: filepath.Join(n.dir, "images"), Reserve: 1 << 20, Log: n.log,
		Registries: map[string]image.Registry{"*": {Endpoint: image.Endpoint{PlainHTTP: true}}},
	})
	if err != nil {
		return err
	}
	var plugin network.Plugin = &networktest.Plugin{}
	if n.bridge {
		if plugin, err = bridge.New(bridge.Config{StateDir: filepath.Join(n.dir, "bridge"), Name: "nwt0", Table: "nwtest", VethPrefix: "nwt"}); err != nil {
			return err
		}
	}
	n.network, err = network.New(network.Config{
		Plugins: []network.Plugin{plugin}, StateDir: filepath.Join(n.dir, "network"), NetnsDir: filepath.Join(n.state, "netns"), BootID: n.boot, Log: n.log,
	})
	if err != nil {
		return err
	}
	devices, err := cdi.New(cdi.Config{Dirs: []string{n.cdi()}, Log: n.log})
	if err != nil {
		return err
	}
	n.rt, err = localcri.New(localcri.Config{
		CDI: devices, Hooks: n.hooks, RootDir: filepath.Join(n.dir, "rt"), StateDir: n.state, Handlers: map[string]localcri.Handler{"runc": {Path: runc()}},
		Network: n.network, Images: n.images, Reserve: 1 << 20, Projects: true, BootID: n.boot, Log: n.log,
	})
	return err
}

// cdi is the directory of CDI specifications.
func (n *node) cdi() string { return filepath.Join(n.dir, "cdi") }

// start runs it until stop, as an agent does.
func (n *node) start() {
	n.t.Helper()
	if err := n.assemble(); err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for _, run := range []func(context.Context) error{n.images.Run, n.network.Run, n.rt.Run} {
		wg.Go(func() {
			if err := run(ctx); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	n.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			n.t.Error(err)
		}
	})
}

func (n *node) load() {
	n.t.Helper()
	f, err := os.Open(built.testbox)
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := n.images.Import(context.Background(), f, image.ImportOptions{}); err != nil {
		n.t.Fatal(err)
	}
}

func TestConformance(t *testing.T) {
	for _, name := range []string{"none", "bridge"} {
		t.Run(name, func(t *testing.T) {
			n := nodeDirs(t)
			n.bridge = name == "bridge"
			n.start()
			n.load()
			reg := critest.NewRegistry(t, built.testbox)
			subject := critest.Subject{Runtime: n.rt, Images: n.images, Image: sampleimage.Testbox, Offer: reg.Offer}
			critest.Conformance(t, subject)
			t.Run("containers", func(t *testing.T) { critest.Containers(t, subject) })
		})
	}
}
