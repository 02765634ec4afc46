package gc

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/internal/detached"
)

// logsOf makes both directories of logs, with a link of a container.
func logsOf(t *testing.T) ContainerConfig {
	t.Helper()
	top := t.TempDir()
	c := ContainerConfig{Runtime: &fakeRuntime{}, PodLogsDir: filepath.Join(top, "pods"), ContainerLogsDir: filepath.Join(top, "containers")}
	for _, err := range []error{
		os.MkdirAll(filepath.Join(c.PodLogsDir, "ns_web_live"), 0o700), os.Mkdir(c.ContainerLogsDir, 0o700),
		os.Symlink(filepath.Join(c.PodLogsDir, "ns_web_live", "app", "0.log"), filepath.Join(c.ContainerLogsDir, "web_ns_app-id.log")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// A pod puts a link in the way of its log: where it leads is not looked at.
func TestALinkInTheWayOfALogIsNotFollowed(t *testing.T) {
	c := logsOf(t)
	if err := os.Symlink(t.TempDir(), filepath.Join(c.PodLogsDir, "ns_web_live", "app")); err != nil {
		t.Fatal(err)
	}
	m := newContainerCollector(t, c)
	if links, err := m.dangling(t.Context()); err != nil || len(links) != 0 {
		t.Errorf("%v, %v", links, err)
	}
	if err := os.Remove(filepath.Join(c.PodLogsDir, "ns_web_live", "app")); err != nil {
		t.Fatal(err)
	}
	if links, err := m.dangling(t.Context()); err != nil || len(links) != 1 {
		t.Errorf("%v, %v; want one that leads nowhere", links, err)
	}
}

// However many names a pod makes, a pass looks at so many.
func TestAPassLooksAtSoManyNames(t *testing.T) {
	dir := t.TempDir()
	for i := range maxContainerNames + 10 {
		if err := os.Symlink("x", filepath.Join(dir, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := entries(dir); err != nil || len(list) != maxContainerNames {
		t.Errorf("%d, %v", len(list), err)
	}
}

// The directory of logs does not answer: a pass says so, and each does once.
func TestADirectoryOfLogsThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := logsOf(t)
		m := newContainerCollector(t, c)
		hang := make(chan struct{})
		defer close(hang)
		for _, dir := range []string{c.PodLogsDir, c.ContainerLogsDir} {
			go func() {
				_, _ = detached.Next(context.Background(), &m.disk, dir, func() (int, error) { <-hang; return 0, nil })
			}()
		}
		synctest.Wait()
		began := time.Now()
		for range 10 {
			if _, err := m.Sweep(t.Context()); err == nil {
				t.Error("no error")
			}
		}
		if took := time.Since(began); took != 20*callTimeout || m.disk.InFlight() != 2 {
			t.Errorf("10 passes took %v with %d calls in flight", took, m.disk.InFlight())
		}
	})
}
