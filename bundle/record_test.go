package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/podmgr"
)

// errPower is the error of everything after the power has gone.
var errPower = errors.New("the power is gone")

// disk is a Store that survives a power failure, which comes before its change number cut; -1:
// never. With torn the change is made nevertheless, and its caller does not learn of it.
type disk struct {
	mu     sync.Mutex
	values map[string][]byte
	cut    int
	torn   bool
	made   int // changes since the last failure
}

func (d *disk) Read(k string) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if v, ok := d.values[k]; ok {
		return v, nil
	}
	return nil, fs.ErrNotExist
}

func (d *disk) Keys() ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.values)), nil
}

func (d *disk) Write(k string, v []byte) error {
	return d.change(func() { d.values[k] = slices.Clone(v) })
}

func (d *disk) Delete(k string) error { return d.change(func() { delete(d.values, k) }) }

func (d *disk) change(do func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	dead := d.cut >= 0 && d.made >= d.cut
	first := d.made == d.cut
	d.made++
	if !dead || first && d.torn {
		do()
	}
	if dead {
		return errPower
	}
	return nil
}

// cutAt has the power fail at the change number n from now on; -1: never.
func (d *disk) cutAt(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut, d.made = n, 0
}

// machine is a node whose power may fail at any change of its disk. Its Manager is driven by events
// in place of clocks.
type machine struct {
	t      *testing.T
	disk   *disk
	m      *Manager
	shown  []string // names of the pods that run
	cuts   []int    // of the next lives, by changes
	events string   // so far, for messages
}

func (m *machine) start() {
	if len(m.cuts) > 0 {
		m.disk.cut, m.cuts = m.cuts[0], m.cuts[1:]
	} else {
		m.disk.cut = -1
	}
	m.disk.made = 0
	m.m = &Manager{cfg: Config{NodeName: "n", Store: m.disk, Log: zap.NewNop()}}
	m.m.deliver = func(s podmgr.Snapshot) {
		m.shown = nil
		for _, p := range s.Pods {
			m.shown = append(m.shown, p.Name)
		}
	}
	if err := m.m.load(); err != nil {
		if !errors.Is(err, errPower) {
			m.t.Fatalf("%s: start: %v", m.events, err)
		}
		m.events += " (off)"
		m.start()
		return
	}
	m.check()
}

// do makes one event happen, or cuts the power in it and starts the machine again. An event of the
// outside that got lost comes again.
func (m *machine) do(name string, event func() error) {
	m.events += " " + name
	err := event()
	if m.disk.cut < 0 || m.disk.made <= m.disk.cut {
		if err != nil {
			m.t.Fatalf("%s: %v", m.events, err)
		}
		m.check()
		return
	}
	m.events += "(off)"
	m.start()
}

// check checks what has to hold after each event and each start: all pods are those of one bundle,
// which is stored whole, and the good bundle is stored too.
func (m *machine) check() {
	r := m.m.record
	for _, digest := range []string{r.Good, r.Before, r.nextDigest()} {
		if digest == "" {
			continue
		}
		if b, err := Read(bytes.NewReader(m.disk.values[key(digest)])); err != nil || b.Digest != digest {
			m.t.Fatalf("%s: bundle of %+v: %v", m.events, r, err)
		}
	}
	var want []string
	if b := m.m.bundles[r.Running()]; b != nil {
		for _, p := range b.snapshot.Pods {
			want = append(want, p.Name)
		}
	}
	if !slices.Equal(m.shown, want) {
		m.t.Fatalf("%s: pods %v run, want those of one bundle, %v", m.events, m.shown, want)
	}
	if r.Next != nil && r.Next.Trials > MaxTrials {
		m.t.Fatalf("%s: trial %d", m.events, r.Next.Trials)
	}
}

// step is one thing that happens to the node, again after a power failure, until the Record shows it.
func (m *machine) step(name, digest string, b *Bundle) {
	r := m.m.record
	switch name {
	case "offer":
		if r.nextDigest() == digest || r.Good == digest || r.Rejected != nil && r.Rejected.Digest == digest {
			return
		}
		m.do(name, func() error { return m.offer(b) })
	case "pulled":
		if r.nextDigest() == digest && r.Next.Trials == 0 {
			m.do(name, func() error { return m.m.commit(r.pulled()) })
		}
	case "healthy":
		if r.nextDigest() == digest && r.onTrial() {
			m.do(name, func() error { return m.m.commit(r.healthy()) })
		}
	case "failed":
		if r.nextDigest() == digest && r.onTrial() {
			m.do(name, func() error { return m.m.commit(r.failed("not healthy", time.Time{})) })
		}
	case "rollback":
		if r.Good == digest || r.nextDigest() == digest {
			m.do(name, func() error {
				r, err := r.rolledBack(time.Time{})
				return errors.Join(err, m.m.commit(r))
			})
		}
	}
}

// offer is Manager.offer without the other goroutine.
func (m *machine) offer(b *Bundle) error {
	m.m.turns = make(chan turn)
	done := make(chan error)
	go func() { done <- m.m.offer(m.t.Context(), b, b.Digest) }()
	for {
		select {
		case t := <-m.m.turns:
			t.done <- t.do()
		case err := <-done:
			return err
		}
	}
}

// manifests is a bundle with two pods.
func manifests(t testing.TB, name string) *Bundle {
	t.Helper()
	b, err := Build([]podmgr.ManifestFile{{Name: "pods.yaml", Data: fmt.Appendf(nil, podYAML+"---\n"+podYAML, name+"1", name+"2")}}, Rollout{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const podYAML = `apiVersion: v1
kind: Pod
metadata: {name: %s}
spec: {containers: [{name: c, image: "registry.example/app:1"}]}
`

// The power fails before or in each change of the disk, and again before or in each change of the
// lives after it. Each start runs the pods of one bundle and continues, and in the end the node is
// where it would be without a failure.
func TestPowerFailures(t *testing.T) {
	a, b, c := manifests(t, "a"), manifests(t, "b"), manifests(t, "c")
	type step struct {
		name   string
		bundle *Bundle
	}
	first := []step{{"offer", a}, {"pulled", a}, {"healthy", a}}
	for name, tc := range map[string]struct {
		steps          []step
		good, rejected string
	}{
		"bad first":            {[]step{{"offer", a}, {"pulled", a}, {"failed", a}}, "", a.Digest},
		"rolled back on trial": {append(slices.Clone(first), step{"offer", b}, step{"pulled", b}, step{"rollback", b}), a.Digest, b.Digest},
		"rolled back":          {append(slices.Clone(first), step{"offer", b}, step{"pulled", b}, step{"healthy", b}, step{"rollback", b}), a.Digest, b.Digest},
		"replaced":             {append(slices.Clone(first), step{"offer", b}, step{"offer", c}, step{"pulled", c}, step{"healthy", c}), c.Digest, ""},
		"three":                {append(slices.Clone(first), step{"offer", b}, step{"pulled", b}, step{"healthy", b}, step{"offer", c}, step{"pulled", c}, step{"failed", c}), b.Digest, c.Digest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lives := 0
			run := func(torn bool, cuts ...int) (more bool) {
				m := &machine{t: t, disk: &disk{values: map[string][]byte{}, torn: torn}, cuts: cuts}
				m.start()
				for _, s := range tc.steps {
					// Until a power failure has not hindered it.
					for range len(cuts) + 1 {
						m.step(s.name, s.bundle.Digest, s.bundle)
					}
				}
				lives++
				m.disk.cut = -1
				m.start()
				r := m.m.record
				rejected := ""
				if r.Rejected != nil {
					rejected = r.Rejected.Digest
				}
				if r.Good != tc.good || rejected != tc.rejected || r.Next != nil {
					t.Fatalf("%s: %+v, want good %s, rejected %s", m.events, r, tc.good, tc.rejected)
				}
				for k := range m.disk.values {
					if digest, is := strings.CutPrefix(k, keyPrefix); is && !r.needs("sha256:"+digest) {
						t.Fatalf("%s: %s is left", m.events, k)
					}
				}
				return strings.Contains(m.events, "(off)")
			}
			for _, torn := range []bool{false, true} {
				for i := 0; run(torn, i); i++ {
					for j := 0; !torn && j < 6; j++ { // a start makes no more changes
						run(torn, i, j)
					}
				}
			}
			t.Logf("%d sequences", lives)
		})
	}
}

// A trial that ends the machine each time ends.
func TestTrialThatEndsTheMachine(t *testing.T) {
	a, b := manifests(t, "a"), manifests(t, "b")
	m := &machine{t: t, disk: &disk{values: map[string][]byte{}}}
	m.start()
	for _, s := range []string{"offer", "pulled", "healthy"} {
		m.step(s, a.Digest, a)
	}
	m.step("offer", b.Digest, b)
	m.step("pulled", b.Digest, b)
	for i := 1; i < MaxTrials; i++ {
		m.start()
		if r := m.m.record; r.Running() != b.Digest || r.Next.Trials != i+1 {
			t.Fatalf("start %d: %+v", i, r)
		}
	}
	m.start()
	if r := m.m.record; r.Running() != a.Digest || r.Rejected == nil || r.Rejected.Digest != b.Digest || r.Next != nil {
		t.Errorf("after %d trials: %+v", MaxTrials, r)
	}
}

// A damaged artifact is replaced by the bundle before, and fetched again.
func TestLostArtifact(t *testing.T) {
	a, b, c := manifests(t, "a"), manifests(t, "b"), manifests(t, "c")
	for name, tc := range map[string]struct {
		lost string
		want Record
	}{
		"good":   {b.Digest, Record{Good: a.Digest, Next: &Next{Digest: c.Digest}}},
		"before": {a.Digest, Record{Good: b.Digest, Next: &Next{Digest: c.Digest}}},
		"next":   {c.Digest, Record{Good: b.Digest, Before: a.Digest}},
	} {
		m := &machine{t: t, disk: &disk{values: map[string][]byte{}}}
		m.start()
		for _, bundle := range []*Bundle{a, b} {
			for _, s := range []string{"offer", "pulled", "healthy"} {
				m.step(s, bundle.Digest, bundle)
			}
		}
		m.step("offer", c.Digest, c)
		stored := m.disk.values[key(tc.lost)]
		stored[bytes.Index(stored, m.m.bundles[tc.lost].layer)+20]++
		m.start()
		r := m.m.record
		if r.Rejected == nil || r.Rejected.Digest != tc.lost || r.Seen != "" {
			t.Errorf("%s: %+v", name, r)
		}
		if r.Rejected = nil; r.Good != tc.want.Good || r.Before != tc.want.Before || r.nextDigest() != tc.want.nextDigest() {
			t.Errorf("%s: %+v, want %+v", name, r, tc.want)
		}
	}
}
