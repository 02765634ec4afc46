package resources_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/fit"
)

// What is not understood is kept for a person to look at.
func TestForeignCheckpointsAreSetAside(t *testing.T) {
	n := newNode(t)
	store := part.OpenStore(n.dir, nil)
	texts := map[string]string{
		"a": "garbage", "b": "null", "c": `{"version":2,"pod":{"uid":"c"}}`, "d": `{"version":1,"pod":{"uid":"other"}}`,
	}
	for key, text := range texts {
		if err := store.Write(key, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	n.start()
	for key, text := range texts {
		b, err := os.ReadFile(filepath.Join(n.dir, key+".corrupt-1"))
		if err != nil || !bytes.HasSuffix(b, []byte(text)) {
			t.Errorf("%s: kept %q, %v", text, b, err)
		}
	}
	if keys, err := store.Keys(); len(keys) > 0 || err != nil {
		t.Errorf("keys %v, %v", keys, err)
	}
}

// A checkpoint that cannot be read for now is still there when it can.
func TestCheckpointsThatCannotBeReadStay(t *testing.T) {
	d := &checkpointtest.Disk{}
	d.Put("a", "what was there")
	d.Fault(checkpointtest.Fail(errors.New("input/output error"), "a"))
	n := newNode(t)
	n.store = d
	n.start()
	if d.Value("a") != "what was there" {
		t.Errorf("it is %q, after %v", d.Value("a"), d.Calls())
	}
}

// Checkpoints of a disk that hung at the start go with their pods: the next process
// would believe them.
func TestCheckpointsThatCouldNotBeReadGoWithTheirPods(t *testing.T) {
	for name, fails := range map[string][]string{"none was listed": {"keys"}, "two were not read": {"a", "b"}} {
		t.Run(name, func(t *testing.T) {
			d := &checkpointtest.Disk{}
			for _, k := range []string{"a", "b"} {
				d.Put(k, "what was there")
			}
			d.Fault(checkpointtest.Fail(errors.New("input/output error"), fails...))
			n := newNode(t)
			n.store = d
			n.join()
			if err := n.p.Restore(t.Context()); (err != nil) != (fails[0] == "keys") {
				t.Errorf("Restore: %v", err)
			}
			d.Fault(nil)
			isB := func(uid types.UID) bool { return uid == "b" }
			if err := n.p.Sweep(t.Context(), isB); err != nil {
				t.Error(err)
			}
			if a, b := d.Value("a"), d.Value("b"); a != "" || b != "what was there" {
				t.Errorf("of the pod that is gone %q, of the one that waits %q", a, b)
			}
		})
	}
}

// Whatever a checkpoint says, the agent starts, and who comes next is decided on.
func FuzzRestore(f *testing.F) {
	const cpus = `{"version":1,"uid":"a","containers":[{"name":"c","kind":"regular","cpus":"1-2"}]}`
	f.Add([]byte(`{"version":1,"pod":{"uid":"a","guaranteed":true,"containers":[{"name":"c","milliCPU":2000}]},"cpuPolicy":"static","cpus":` + cpus + `}`))
	f.Add([]byte(`{"version":1,"pod":{"UID":"a","Guaranteed":true,"Containers":[{"Name":"c","MilliCPU":2000}]},"cpuPolicy":"static","cpus":` + strings.Replace(cpus, "1-2", "0-4095", 1) + `}`))
	f.Add([]byte(`{"version":1,"pod":{"uid":"a"},"cpuPolicy":"none","memory":{}}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		d := &checkpointtest.Disk{}
		d.Put("a", string(value))
		n := newNode(t)
		n.store = d
		n.fit.CPUPolicy = fit.CPUStatic
		n.join()
		_ = n.p.Restore(t.Context()) // the runtime's calls may fail, for containers that are not there
		if pod := owns("b", "1"); n.p.Waits(pod) {
			t.Errorf("%q: the next pod waits", value)
		} else if _, no := n.p.Reserve(t.Context(), part.Request{Pod: pod}); no != nil && no.Message == "" {
			t.Errorf("%q: %+v", value, no)
		}
	})
}
