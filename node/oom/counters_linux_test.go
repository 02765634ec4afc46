package oom

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/nodewright/nodewright/internal/testrun"
)

// Watch is woken by a change of the root's counters. A directory of plain
// files stands for the hierarchy: inotify reports both alike.
func TestCountersWatch(t *testing.T) {
	mount := t.TempDir()
	set := func(dir, events string) {
		t.Helper()
		path := filepath.Join(mount, "kubepods", dir)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "memory.events"), []byte(events), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	set("poda/c1", "oom_kill 1\n")
	set("poda", "oom_kill 1\n")
	set("", "oom_kill 1\n")
	c := NewCounters(mount, "/kubepods")
	watch := func(kills chan Kill, change func()) Kill {
		t.Helper()
		stop := testrun.Start(t, func(ctx context.Context) error { return c.Watch(ctx, func(k Kill) { kills <- k }) })
		change()
		k := <-kills
		stop()
		return k
	}
	if _, err := c.tree.kills(k0.At); err != nil { // the base
		t.Fatal(err)
	}
	grow := func(n string) func() {
		return func() {
			set("poda/c1", "oom_kill "+n+"\n")
			set("poda", "oom_kill "+n+"\n")
			set("", "oom_kill "+n+"\n") // last: the kernel wakes us when all are written
		}
	}
	want := Kill{Cgroup: "/kubepods/poda/c1", PodUID: "a", ContainerID: "c1", Count: 2}
	got := watch(make(chan Kill, 4), grow("3"))
	got.At = k0.At
	if !reflect.DeepEqual(got, want) {
		t.Errorf("first watch: %+v; want %+v", got, want)
	}
	grow("4")() // while nobody watches
	want.Count = 1
	got = watch(make(chan Kill, 4), func() {})
	got.At = k0.At
	if !reflect.DeepEqual(got, want) {
		t.Errorf("second watch: %+v; want %+v", got, want)
	}

	if err := NewCounters(mount, "/nowhere").Watch(t.Context(), func(Kill) {}); err == nil {
		t.Error("a root that is not there is no error")
	}
}

var k0 Kill

// The machine's own log can be opened and closed, where it may be read.
func TestOpenKmsg(t *testing.T) {
	log, err := openKmsg(false)
	if err != nil {
		t.Skipf("no kernel log here: %v", err)
	}
	raw, err := log.Next()
	if err == nil {
		if _, err := parseRecord(raw); err != nil {
			t.Errorf("%q: %v", raw, err)
		}
	}
	if err := log.Close(); err != nil {
		t.Error(err)
	}
	end, err := openKmsg(true)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, err := end.Next(); err != nil {
				return
			}
		}
	}()
	_ = end.Close() // ends a read that waits
	<-done
}
