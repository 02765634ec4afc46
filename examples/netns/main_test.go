//go:build linux

package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/network"
	"github.com/nodewright/nodewright/network/networktest"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

func TestMain(m *testing.M) { os.Exit(plugintest.MainWithMounts(m)) }

func TestACommandHasTheAddress(t *testing.T) {
	plugintest.RequireMounts(t)
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		t.Fatal(err)
	}
	*address = "10.9.8.7"
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	if err := run(t.Context(), "static", filepath.Join(dir, "state"), []string{"/bin/sh", "-c", "cat /proc/net/fib_trie > " + out}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(out); err != nil || !strings.Contains(string(b), "10.9.8.7") || strings.Contains(string(b), "10.0.0.0") {
		t.Errorf("%s, %v", b, err)
	}
	if err := run(t.Context(), "static", filepath.Join(dir, "state"), []string{"/bin/false"}); err == nil {
		t.Error("its failure is lost")
	}
	for _, d := range []string{filepath.Join(dir, "state", "records"), "/run/netns"} {
		left, err := os.ReadDir(d)
		if err != nil {
			t.Error(err)
		}
		for _, e := range left {
			if d != "/run/netns" || strings.HasPrefix(e.Name(), "example-") {
				t.Errorf("%s is left in %s", e.Name(), d)
			}
		}
	}
	for _, bad := range []string{"", "none"} {
		if err := run(context.Background(), bad, dir, []string{"true"}); err == nil {
			t.Errorf("plugin %q is taken", bad)
		}
	}
}

func TestStaticConforms(t *testing.T) {
	plugintest.RequireMounts(t)
	spaces := 0
	networktest.Conform(t, networktest.Subject{
		New: func(*testing.T) network.Plugin {
			return &counting{}
		},
		Netns: func(t *testing.T) (string, func()) {
			spaces++
			path := filepath.Join(t.TempDir(), fmt.Sprint(spaces))
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			err := inNetns("/proc/self/ns/net", func() error { // on a thread that ends
				if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
					return err
				}
				return unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
			})
			if err != nil {
				t.Fatal(err)
			}
			return path, func() { _ = unix.Unmount(path, unix.MNT_DETACH) }
		},
	})
}

// counting is static with another address each time, as pods are to have.
type counting struct {
	static
	last byte
}

func (c *counting) Plan(ctx context.Context, a network.Attachment) ([]byte, error) {
	c.last++
	return static{netip.AddrFrom4([4]byte{10, 9, 8, c.last})}.Plan(ctx, a)
}

func (c *counting) Recovered(_ context.Context, kept []network.Kept) error {
	for _, k := range kept {
		c.last = max(c.last, k.Saved[3])
	}
	return nil
}
