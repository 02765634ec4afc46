package cni

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/network"
	"github.com/nodewright/nodewright/network/networktest"
)

func subject(r *rig, dirs ...string) networktest.Subject {
	return networktest.Subject{
		New: func(t *testing.T) network.Plugin {
			p, err := New(r.cfg)
			if err != nil {
				t.Fatal(err)
			}
			return p
		},
		// What plugins keep is in files, and so is what libcni keeps.
		State: func(t *testing.T) string {
			var names []string
			for _, dir := range append(dirs, filepath.Join(r.cache, "results")) {
				entries, err := os.ReadDir(dir)
				if err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
				for _, e := range entries {
					if !strings.HasPrefix(e.Name(), "last_reserved_ip") && e.Name() != "lock" {
						names = append(names, e.Name())
					}
				}
			}
			slices.Sort(names)
			return strings.Join(names, "\n")
		},
	}
}

func TestConform(t *testing.T) {
	for _, version := range []string{"0.2.0", "0.4.0", "1.1.0"} {
		t.Run(version, func(t *testing.T) {
			r := newRig(t, true)
			r.install("main", "meta")
			r.acts("main", map[string]act{"ADD": {Unique: true}})
			r.write("10.conflist", oneConf("net", version, `{"type":"main"}`, `{"type":"meta"}`))
			networktest.Conform(t, subject(r))
		})
	}
}
