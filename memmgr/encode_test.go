package memmgr_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
)

// reload saves all pods and reads them back.
func reload(t testing.TB, p memmgr.Policy, s memmgr.State) memmgr.State {
	t.Helper()
	var again memmgr.State
	for _, uid := range s.Pods() {
		data, err := s.EncodePod(uid, p.Name())
		if err != nil {
			t.Fatal(err)
		}
		if again, err = again.DecodePod(uid, p.Name(), data); err != nil {
			t.Fatal(err)
		}
	}
	return again
}

const savedPod = `{"version":1,"policy":"Static","pod":"a","containers":[{"name":"i","index":0,"kind":"init","blocks":[{"nodes":[0,1],"resource":"memory","bytes":5368709120}]},` +
	`{"name":"c","index":1,"kind":"regular","blocks":[{"nodes":[0,1],"resource":"memory","bytes":4294967296}]}]}`

func TestSavedForm(t *testing.T) {
	s := must(t, static(t, 3, 3), memmgr.State{}, guaranteed("a", initc("i", 5), app("c", 4)), numa.Hint{})
	if got, err := s.EncodePod("a", "Static"); err != nil || string(got) != savedPod {
		t.Errorf("%s, %v\nwant %s", got, err, savedPod)
	}
	if got, err := s.EncodePod("b", "Static"); err != nil || got != nil {
		t.Errorf("a pod without memory is saved as %s, %v", got, err)
	}
}

func TestDecodeRejects(t *testing.T) {
	for _, tc := range []struct{ name, old, new, want string }{
		{"no object", savedPod, "", "EOF"},
		{"half of it", savedPod[100:], "", "unexpected EOF"},
		{"something behind", "]}]}", "]}]}{}", "there is data after"},
		{"an unknown field", `"pod"`, `"color":1,"pod"`, "unknown field"},
		{"another version", `"version":1`, `"version":2`, "version is 2; want 1"},
		{"another pod", `"pod":"a"`, `"pod":"b"`, `pod is "b"; want "a"`},
		{"no containers", savedPod, `{"version":1,"policy":"Static","pod":"a","containers":[]}`, "containers is empty"},
		{"no blocks", savedPod, `{"version":1,"policy":"Static","pod":"a","containers":[{"name":"c","kind":"init"}]}`, "blocks is empty"},
		{"a container twice", `"name":"c"`, `"name":"i"`, `containers[1].name is "i" for the second time`},
		{"a container without a name", `"name":"c"`, `"name":""`, "containers[1]: name is empty"},
		{"another order", `"index":1`, `"index":0`, "containers[1].index is 0 after 0"},
		{"a negative index", `"index":0`, `"index":-1`, "containers[0]: index is -1"},
		{"another kind", `"kind":"init"`, `"kind":"main"`, `kind is "main"`},
		{"no nodes", `[0,1]`, `[]`, "blocks[0].nodes is empty"},
		{"a node that cannot be", `[0,1]`, `[0,64]`, "want ascending numbers from 0 to 63"},
		{"nodes in disorder", `[0,1]`, `[1,0]`, "want ascending numbers from 0 to 63"},
		{"a node twice", `[0,1]`, `[1,1]`, "want ascending numbers from 0 to 63"},
		{"another resource", `"memory"`, `"cpu"`, `blocks[0].resource is "cpu"`},
		{"no bytes", `5368709120`, `0`, "blocks[0].bytes is 0"},
		{"too many bytes", `5368709120`, `18446744073709551616`, "uint64"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := must(t, static(t, 9), memmgr.State{}, guaranteed("a", app("old", 4)), numa.Hint{})
			got, err := before.DecodePod("a", "Static", []byte(strings.Replace(savedPod, tc.old, tc.new, 1)))
			if err == nil || !strings.Contains(err.Error(), tc.want) || got.Nodes("a", "old") != nodes(0) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
	if _, err := (memmgr.State{}).DecodePod("a", "None", []byte(savedPod)); !errors.Is(err, memmgr.ErrPolicy) {
		t.Errorf("another policy: %v", err)
	}
}

// An accepted record is written again unchanged, and is valid for the machine.
func FuzzDecodePod(f *testing.F) {
	f.Add([]byte(savedPod))
	f.Add([]byte(strings.Replace(savedPod, `"containers"`, `"whole":[{"nodes":[0],"resource":"hugepages-2Mi","bytes":2097152}],"containers"`, 1)))
	f.Add([]byte(strings.ReplaceAll(savedPod, "5368709120", "18446744073709551615")))
	p := static(f, 10, 10)
	pod := guaranteed("a", initc("i", 5), app("c", 4))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := memmgr.State{}.DecodePod("a", "Static", data)
		if err != nil {
			if len(s.Pods()) > 0 {
				t.Fatal("a state came with an error")
			}
			return
		}
		saved, err := s.EncodePod("a", "Static")
		if err != nil {
			t.Fatal(err)
		}
		again, err := memmgr.State{}.DecodePod("a", "Static", saved)
		if err != nil {
			t.Fatalf("%s: %v", saved, err)
		}
		if twice, _ := again.EncodePod("a", "Static"); string(twice) != string(saved) {
			t.Fatalf("%s became %s", saved, twice)
		}
		s.Shares("a")
		p.Stats(s)
		p.Hints(s, pod, 0)
		p.Hints(s, pod, -1)
		valid, _ := p.Validate(s)
		if next, err := p.Allocate(valid, guaranteed("b", app("c", 1)), 0, numa.Hint{}); err == nil && next.Nodes("b", "c") == 0 {
			t.Fatal("nothing was given")
		}
		if left := s.WithoutPod("a"); len(left.Pods()) > 0 {
			t.Fatal("a pod stayed")
		}
	})
}
