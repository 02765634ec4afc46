package cni

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/network"
	"golang.org/x/sys/unix"
)

const cacheName = "net-a-eth0"

func (r *rig) cacheFile() string { return filepath.Join(r.cache, "results", cacheName) }

// What a crash, or somebody, may leave in place of a file of the cache.
var damages = map[string]func(path string) error{
	"removed":   os.Remove,
	"empty":     func(path string) error { return os.Truncate(path, 0) },
	"cut":       func(path string) error { return os.Truncate(path, 100) },
	"directory": func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
	"pipe":      func(path string) error { return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)) },
	"link":      func(path string) error { return errors.Join(os.Remove(path), os.Symlink("/dev/zero", path)) },
	"of another": func(path string) error {
		b, err := os.ReadFile(path)
		return errors.Join(err, os.WriteFile(path, []byte(strings.Replace(string(b), `"containerId":"a"`, `"containerId":"b"`, 1)), 0o600))
	},
	"with null": func(path string) error {
		return os.WriteFile(path, []byte(`{"kind":"cniCacheV1","containerId":"a","ifName":"eth0","networkName":"net","result":null}`), 0o600)
	},
	"with holes": func(path string) error {
		return os.WriteFile(path, []byte(`{"kind":"cniCacheV1","containerId":"a","ifName":"eth0","networkName":"net","result":{"cniVersion":"1.0.0","ips":[null]}}`), 0o600)
	},
}

func TestADamagedCacheIsMadeUpForByTheRecord(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, false)
			r.install("main")
			r.write("10.conflist", oneConf("net", "1.0.0", `{"type":"main"}`))
			k := r.mustUp(pod("a"))
			if err := damage(r.cacheFile()); err != nil {
				t.Fatal(err)
			}
			r.again() // only the record knows
			if err := r.p.Recovered(t.Context(), []network.Kept{k}); err != nil {
				t.Fatal(err)
			}
			if err := r.p.Check(t.Context(), k, nil); err != nil {
				t.Error(err)
			}
			if err := damage(r.cacheFile()); err != nil {
				t.Fatal(err)
			}
			if err := r.down(k); err != nil {
				t.Fatal(err)
			}
			for _, h := range r.heard("CHECK", "DEL") {
				prev := string(request(t, h)["prevResult"])
				var got, want any
				if err := errors.Join(json.Unmarshal([]byte(prev), &got), json.Unmarshal(k.Result.Extra, &want)); err != nil {
					t.Fatalf("%s: %s: %v", h.Verb, prev, err)
				}
				g, _ := json.Marshal(got)
				w, _ := json.Marshal(want)
				if string(g) != string(w) {
					t.Errorf("%s: prevResult %s\nwant %s", h.Verb, g, w)
				}
			}
			if left, _ := os.ReadDir(filepath.Dir(r.cacheFile())); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// Neither the cache nor the record has the result.
func TestDELWithoutAResult(t *testing.T) {
	for name, damage := range damages {
		r := newRig(t, false)
		r.install("main")
		r.write("10.conflist", oneConf("net", "1.0.0", `{"type":"main"}`))
		k := r.mustUp(pod("a"))
		if err := damage(r.cacheFile()); err != nil {
			t.Fatal(err)
		}
		r.again()
		if err := r.down(k); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if dels := r.heard("DEL"); len(dels) != 1 || request(t, dels[0])["prevResult"] != nil {
			t.Errorf("%s: %+v", name, dels)
		}
	}
}

func TestADamagedRecordIsMadeUpForByTheCache(t *testing.T) {
	r := newRig(t, false)
	r.install("main")
	r.write("10.conflist", oneConf("net", "1.0.0", `{"type":"main","own":"x"}`))
	k := r.mustUp(pod("a"))
	r.mustUp(pod("b"))
	r.write("10.conflist", oneConf("other", "1.0.0", `{"type":"main"}`))
	r.again()
	k.Saved = k.Saved[:len(k.Saved)/2]
	if err := r.down(k); err != nil {
		t.Fatal(err)
	}
	dels := r.heard("DEL")
	if len(dels) != 1 || dels[0].Env["CNI_CONTAINERID"] != "a" || string(request(t, dels[0])["own"]) != `"x"` || request(t, dels[0])["prevResult"] == nil {
		t.Errorf("%+v", dels)
	}
	wantCode(t, r.down(k), network.FailedPrecondition, "record is damaged")
}

func TestDamagedRecords(t *testing.T) {
	r := newRig(t, false)
	r.install("main")
	r.write("10.conflist", oneConf("net", "1.0.0", `{"type":"main"}`))
	good := string(r.plan(pod("a")))
	for _, bad := range []string{
		"", "null", "{}", "[]", good[:10],
		strings.Replace(good, `"format":1`, `"format":2`, 1),
		strings.Replace(good, `"ifName":"eth0"`, `"ifName":"../eth0"`, 1),
		strings.Replace(good, `"cniVersion":"1.0.0"`, `"cniVersion":"1.1.0"`, 1),
		strings.Replace(good, `"default"`, `"a;b"`, 1),
		strings.Replace(good, `"list":"`, `"list":"AAAA`, 1),
		strings.Repeat(" ", maxSaved) + good,
	} {
		if bad == good {
			t.Fatal("not damaged")
		}
		if _, err := r.p.SetUp(t.Context(), pod("a"), someNetns, []byte(bad), nil); network.CodeOf(err) != network.FailedPrecondition {
			t.Errorf("%.60q: set up: %v", bad, err)
		}
		wantCode(t, r.p.TearDown(t.Context(), pod("a"), someNetns, []byte(bad), nil), network.FailedPrecondition, "record is damaged")
		wantCode(t, r.p.Check(t.Context(), network.Kept{Attachment: pod("a"), Saved: []byte(bad)}, nil), network.FailedPrecondition, "record is damaged")
	}
	if all := r.heard("ADD", "DEL", "CHECK"); len(all) > 0 {
		t.Errorf("ran %s", kinds(all))
	}
}

func TestCheckAndGCThatAreDisabled(t *testing.T) {
	r := newRig(t, false)
	r.install("main")
	r.write("10.conflist", `{"cniVersion":"1.1.0","name":"net","disableCheck":true,"disableGC":true,"plugins":[{"type":"main"}]}`)
	k := r.mustUp(pod("a"))
	gone := r.mustUp(pod("gone"))
	r.again()
	if err := errors.Join(r.p.Check(t.Context(), k, nil), r.p.Collect(t.Context(), []network.Kept{k})); err != nil {
		t.Fatal(err)
	}
	if all := r.heard("CHECK", "GC", "DEL"); len(all) > 0 {
		t.Errorf("ran %s", kinds(all))
	}
	if err := r.down(gone); err != nil {
		t.Error(err)
	}
}

func TestCheckReportsWhatAPluginSays(t *testing.T) {
	r := newRig(t, false)
	r.install("main", "meta")
	r.write("10.conflist", oneConf("net", "1.0.0", `{"type":"main"}`, `{"type":"meta"}`))
	k := r.mustUp(pod("a"))
	r.acts("main", map[string]act{"CHECK": {Code: 7, Msg: "route is gone"}})
	wantCode(t, r.p.Check(t.Context(), k, nil), network.FailedPrecondition, "plugin main: CHECK: route is gone (code 7)")
	if got := kinds(r.heard("CHECK")); got != "main" {
		t.Errorf("CHECK of %s", got)
	}
}

func TestCollect(t *testing.T) {
	r := newRig(t, false)
	r.install("first", "second", "old")
	r.write("10.conflist", oneConf("old", "1.1.0", `{"type":"old"}`))
	before := r.mustUp(pod("before"))
	lost := r.mustUp(pod("lost"))
	r.write("10.conflist", oneConf("new", "1.1.0", `{"type":"first"}`, `{"type":"second"}`))
	r.inUse()
	now := r.mustUp(pod("now"))
	r.again()
	if err := r.p.Recovered(t.Context(), []network.Kept{before, now}); err != nil {
		t.Fatal(err)
	}
	since := r.mustUp(pod("since")) // after somebody made the list below
	r.heard()
	r.acts("first", map[string]act{"GC": {Code: 999, Msg: "broken"}})
	err := r.p.Collect(t.Context(), []network.Kept{before, now})
	wantCode(t, err, network.Unknown, "plugin first: GC: broken", `network "new"`)
	all := r.heard("DEL", "GC")
	var got []string
	for _, h := range all {
		got = append(got, h.Verb+" "+h.Kind+" "+h.Env["CNI_CONTAINERID"])
	}
	want := "DEL old lost, GC first , GC second , GC old "
	if strings.Join(got, ", ") != want {
		t.Errorf("ran %q; want %q", strings.Join(got, ", "), want)
	}
	const valid = `[{"containerID":"before","ifname":"eth0"},{"containerID":"now","ifname":"eth0"},{"containerID":"since","ifname":"eth0"}]`
	for _, h := range all {
		if h.Verb != "GC" {
			continue
		}
		for _, key := range []string{"cni.dev/valid-attachments", "cni.dev/attachments"} {
			if got := string(request(t, h)[key]); got != valid {
				t.Errorf("%s: %s is %s", h.Kind, key, got)
			}
		}
	}
	for _, k := range []network.Kept{before, lost, now, since} {
		if err := r.down(k); err != nil {
			t.Error(err)
		}
	}
}
