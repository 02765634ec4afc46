package plugintest

import (
	"context"
	"testing"
	"time"

	"github.com/nodewright/nodewright/volumemgr"
)

// Subject is a plugin to test, and a volume of its kind.
type Subject struct {
	// New returns a new plugin, as a restarted process would have.
	New func() volumemgr.Plugin
	// Volume is the volume to set up. Its Path and StateDir, and their parents, must not exist.
	Volume volumemgr.Volume
	// Mounter is the plugin's mount table. It is nil if the plugin mounts nothing.
	Mounter volumemgr.Mounter
	// Exists reports whether a path exists.
	Exists func(path string) bool
}

// Conform tests the contract of [volumemgr.Plugin]. Each part of the test begins and ends without
// the volume.
func Conform(t *testing.T, s Subject) {
	t.Helper()
	run := func(name string, part func(t *testing.T, ctx context.Context)) {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			part(t, ctx)
			s.gone(t)
		})
	}
	run("supports its volume", func(t *testing.T, _ context.Context) {
		p := s.New()
		if p.Name() == "" || !p.Supports(s.Volume.Spec) {
			t.Errorf("plugin %q does not support the volume", p.Name())
		}
	})
	run("once", func(t *testing.T, ctx context.Context) {
		s.setUp(t, ctx, s.New(), false)
		s.tearDown(t, ctx, s.New(), false)
	})
	run("each operation twice", func(t *testing.T, ctx context.Context) {
		p := s.New()
		first := s.setUp(t, ctx, p, false)
		if again := s.setUp(t, ctx, p, true); again.Path != first.Path {
			t.Errorf("path = %q, then %q", first.Path, again.Path)
		}
		s.tearDown(t, ctx, p, false)
		s.tearDown(t, ctx, p, false)
	})
	run("never set up", func(t *testing.T, ctx context.Context) { s.tearDown(t, ctx, s.New(), false) })
	run("after a restart", func(t *testing.T, ctx context.Context) {
		s.setUp(t, ctx, s.New(), false)
		s.setUp(t, ctx, s.New(), false)
		s.tearDown(t, ctx, s.New(), true)
	})
	run("again after it was torn down", func(t *testing.T, ctx context.Context) {
		p := s.New()
		s.setUp(t, ctx, p, false)
		s.tearDown(t, ctx, p, false)
		s.setUp(t, ctx, p, false)
		s.tearDown(t, ctx, p, false)
	})
	run("canceled", func(t *testing.T, ctx context.Context) {
		canceled, cancel := context.WithCancel(ctx)
		cancel()
		p, v := s.New(), s.volume(false)
		_, _ = p.SetUp(canceled, v) // any result is allowed
		_ = p.TearDown(canceled, v)
		s.tearDown(t, ctx, p, true)
	})
}

// volume returns a copy of the volume. found means that an earlier process left it.
func (s Subject) volume(found bool) *volumemgr.Volume {
	v := s.Volume
	if v.Warn == nil {
		v.Warn = func(string, string) {}
	}
	if found {
		v.Spec, v.Pod, v.Found = nil, nil, true
	}
	return &v
}

func (s Subject) setUp(t *testing.T, ctx context.Context, p volumemgr.Plugin, remount bool) volumemgr.Result { //nolint:revive // t comes first in test helpers
	t.Helper()
	v := s.volume(false)
	v.Remount = remount
	res, err := p.SetUp(ctx, v)
	if err != nil {
		t.Errorf("SetUp: %v", err)
	}
	return res
}

func (s Subject) tearDown(t *testing.T, ctx context.Context, p volumemgr.Plugin, found bool) { //nolint:revive // t comes first in test helpers
	t.Helper()
	if err := p.TearDown(ctx, s.volume(found)); err != nil {
		t.Errorf("TearDown: %v", err)
	}
}

// gone checks that nothing of the volume remains.
func (s Subject) gone(t *testing.T) {
	t.Helper()
	for _, path := range []string{s.Volume.Path, s.Volume.StateDir} {
		if path != "" && s.Exists(path) {
			t.Errorf("%s is left", path)
		}
	}
	if s.Mounter == nil {
		return
	}
	mounts, err := s.Mounter.Mounts(s.Volume.Path)
	if err != nil || len(mounts) > 0 {
		t.Errorf("still mounted: %v, %v", mounts, err)
	}
}
