package csi

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/csitest"
	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

// every is for nightly: disks take a second for each step.
var every = flag.Bool("every", false, "let the agent die at every step with disks, and not at every fifth")

var errDied = errors.New("the process has died")

// life is one of an agent's: a volume manager with the drivers' plugin.
type life struct {
	*node
	volumes *volumemgr.Manager
	stop    func()
}

// claims are volumes by the names of their claims.
type claims map[string]*volumemgr.Spec

func (c claims) Resolve(_ context.Context, _ *v1.Pod, v *v1.Volume) (*volumemgr.Spec, error) {
	return c[v.PersistentVolumeClaim.ClaimName], nil
}

func (n *node) begin(t *testing.T, step func() error) *life {
	t.Helper()
	n.cfg.step = step
	m, err := New(n.cfg)
	if err != nil {
		t.Fatal(err)
	}
	volumes, err := volumemgr.New(volumemgr.Config{
		Root: n.root, Plugins: []volumemgr.Plugin{m.Plugin()}, Mounter: plugins.Mounter(n.mounts), Claims: claims{"data": persistent("h1"), "raw": persistent("h2", block)},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = m.Run(ctx) })
	wg.Go(func() { _ = volumes.Run(ctx) })
	if err := m.Registrar().Register(t.Context(), testDriver, n.socket, []string{"1.0.0"}); err != nil {
		t.Fatal(err)
	}
	n.m = m
	return &life{n, volumes, func() { cancel(); wg.Wait() }}
}

// wants is a pod with a persistent volume that others share, and one of its own; with
// a block device that is shared as well, where there are any.
func (n *node) wants(uid string) *v1.Pod {
	p := pod(uid)
	shared := func(name string) v1.Volume {
		return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
	}
	p.Spec.Volumes = []v1.Volume{shared("data"), *inline("scratch").Volume}
	c := &p.Spec.Containers[0]
	c.VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "scratch", MountPath: "/scratch"}}
	if n.disks != nil {
		p.Spec.Volumes = append(p.Spec.Volumes, shared("raw"))
		c.VolumeDevices = []v1.VolumeDevice{{Name: "raw", DevicePath: "/dev/raw"}}
	}
	return p
}

// history is what happens to three pods, until the process dies.
type history struct {
	running map[string]bool // pods whose containers use their volumes
	wanted  map[string]bool
	files   map[string]*os.File // that the containers have open, on disks
}

func (h *history) run(t *testing.T, l *life) error {
	for _, op := range []string{"+a", "+b", "-a", "+c", "-b", "-c"} {
		uid := op[1:]
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		var err error
		if op[0] == '+' {
			h.wanted[uid] = true
			if _, err = l.volumes.Mount(ctx, l.wants(uid)); err == nil {
				h.running[uid] = true
				h.files[uid] = l.open(uid)
			}
		} else {
			delete(h.wanted, uid)
			h.end(uid)
			err = l.volumes.Unmount(ctx, types.UID(uid))
		}
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
	}
	return nil
}

// end ends a pod's container.
func (h *history) end(uid string) {
	delete(h.running, uid)
	_ = h.files[uid].Close()
	delete(h.files, uid)
}

// testTimeout is the time limit for a step, long enough for a busy machine.
const testTimeout = 2 * time.Minute

// shared is the file of a pod's container on the volume that all have.
func (n *node) shared(uid, name string) string {
	return filepath.Join(n.root, "pods", uid, "volumes/kubernetes.io~csi/pv-h1/mount", name)
}

// open writes a file on the shared disk, and keeps it open: the kernel does not
// unmount that.
func (n *node) open(uid string) *os.File {
	if n.disks == nil {
		return nil
	}
	f, err := os.Create(n.shared(uid, uid))
	if err == nil {
		_, err = f.WriteString("written")
	}
	if err != nil {
		n.Fatal(err)
	}
	return f
}

// intact checks that a running container still has its file and its device.
func (h *history) intact(l *life, uid string) {
	f := h.files[uid]
	if f == nil {
		return
	}
	if _, err := f.WriteAt([]byte("again!!"), 0); err != nil {
		l.Errorf("container of %s cannot write: %v", uid, err)
	}
	if b, err := os.ReadFile(l.shared(uid, uid)); err != nil || string(b) != "again!!" {
		l.Errorf("%s has %q where it wrote (%v)", uid, b, err)
	}
	device, err := os.Stat(filepath.Join(l.root, "pods", uid, "volumeDevices/kubernetes.io~csi/pv-h2"))
	if err != nil || device.Mode().Type() != fs.ModeDevice {
		l.Errorf("%s has no block device: %v (%v)", uid, device, err)
	}
}

// death is a way of dying.
type death struct {
	stages, reboots bool
	disks           *csitest.Loops // in place of directories
}

// If the agent dies at any step, the next process reaches the wanted state: no volume is leaked,
// unstaged under a running container, published twice, or published while another call for it
// runs; also after a reboot.
func TestDeathAtEveryStep(t *testing.T) { dying(t, 40, func(*testing.T) *csitest.Loops { return nil }) }

func dying(t *testing.T, least int, disks func(*testing.T) *csitest.Loops) {
	for _, can := range []bool{true, false} {
		for _, reboots := range []bool{false, true} {
			t.Run(fmt.Sprintf("stages=%t,reboots=%t", can, reboots), func(t *testing.T) {
				t.Parallel()
				d := death{can, reboots, disks(t)}
				steps := 0
				pace := 1
				switch {
				case testing.Short():
					pace = 7
				case d.disks != nil && !*every:
					pace = 5
				}
				for at := 1; die(t, d, at); at += pace {
					steps++
				}
				if steps < least/pace {
					t.Errorf("%d steps; the test lets the process die nowhere", steps)
				}
			})
		}
	}
}

// die lets the process die at a step, and reports whether there was one.
func die(t *testing.T, d death, at int) bool {
	n := newNode(t, nil, func(c *csitest.Config) {
		if d.stages {
			c.Capabilities = []spec.NodeServiceCapability_RPC_Type{csitest.Stage}
		}
		if d.disks != nil {
			c.Disks = d.disks
		}
	})
	defer n.driver.Stop()
	n.disks = d.disks
	var mu sync.Mutex
	left, died := at, false
	l := n.begin(t, func() error {
		mu.Lock()
		defer mu.Unlock()
		if left--; left <= 0 {
			died = true
			return errDied
		}
		return nil
	})
	h := &history{running: map[string]bool{}, wanted: map[string]bool{}, files: map[string]*os.File{}}
	defer func() {
		for uid := range h.files {
			h.end(uid)
		}
	}()
	err := h.run(t, l)
	if err == nil {
		n.settle(func() bool {
			mu.Lock()
			defer mu.Unlock()
			return died
		})
	}
	l.stop()
	if err != nil && !strings.Contains(err.Error(), errDied.Error()) {
		t.Fatalf("step %d: %v", at, err)
	}
	if err == nil && len(h.wanted) == 0 && !died {
		n.clean()
		return false
	}
	if d.reboots {
		for uid := range h.running {
			h.end(uid)
		}
		n.reboot()
	}
	n.driver.Forget()
	l = n.begin(t, nil)
	defer l.stop()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	for uid := range h.wanted {
		if _, err := l.volumes.Mount(ctx, n.wants(uid)); err != nil {
			t.Errorf("step %d: mount %s again: %v", at, uid, err)
		}
	}
	if err := l.volumes.Sweep(ctx, func(uid types.UID) bool { return h.wanted[string(uid)] }); err != nil {
		t.Errorf("step %d: sweep: %v", at, err)
	}
	for _, c := range n.driver.Calls() {
		if r, ok := c.Request.(*spec.NodeUnpublishVolumeRequest); ok {
			for uid := range h.running {
				if strings.Contains(r.GetTargetPath(), "/pods/"+uid+"/") || strings.HasSuffix(r.GetTargetPath(), "/"+uid) {
					t.Errorf("step %d: %s was taken from a running container", at, r.GetTargetPath())
				}
			}
		}
	}
	for uid := range h.running {
		h.intact(l, uid)
	}
	once := map[string]bool{}
	for _, e := range n.mounted() {
		if once[e.Target] {
			t.Errorf("step %d: mounted twice at %s", at, e.Target)
		}
		once[e.Target] = true
	}
	for uid := range h.wanted {
		h.end(uid)
		if err := l.volumes.Remove(ctx, types.UID(uid)); err != nil {
			t.Errorf("step %d: remove %s: %v", at, uid, err)
		}
	}
	n.settle(func() bool { return false })
	n.clean()
	if t.Failed() {
		t.Fatalf("step %d", at)
	}
	return true
}

// reboot takes down all that is mounted, as a machine does that goes down.
func (n *node) reboot() {
	n.Helper()
	table := n.mounted()
	slices.Reverse(table)
	for _, e := range table {
		err := n.mounts.Unmount(n.Context(), e.Target, 0)
		// A process that another test has just forked has the open files of this one until it executes
		// its program.
		for began := time.Now(); errors.Is(err, syscall.EBUSY) && time.Since(began) < testTimeout; {
			time.Sleep(time.Millisecond)
			err = n.mounts.Unmount(n.Context(), e.Target, 0)
		}
		if err != nil {
			n.Fatal(err)
		}
	}
	if err := n.driver.Reboot(); err != nil {
		n.Fatal(err)
	}
}

// settle waits for devices, which go a moment after their last volume, and for
// their directories.
func (n *node) settle(over func() bool) {
	left := func() int { return len(n.driver.Staged()) + len(n.m.VolumesInUse()) + len(n.files()) }
	for began := time.Now(); left() > 0 && !over() && time.Since(began) < testTimeout; {
		time.Sleep(time.Millisecond)
	}
}
