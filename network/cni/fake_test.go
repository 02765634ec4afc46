package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/nodewright/nodewright/internal/testprogram"
	"github.com/nodewright/nodewright/network"
	"github.com/nodewright/nodewright/network/cni/internal/fakecni"
)

type (
	act   = fakecni.Act
	heard = fakecni.Heard
)

func request(t testing.TB, h heard) map[string]json.RawMessage {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal([]byte(h.Stdin), &m); err != nil {
		t.Fatalf("%q: %v", h.Stdin, err)
	}
	return m
}

// inMemory runs the fake plugins without processes.
type inMemory struct {
	state string
	first func(ctx context.Context, c command) (*output, error) // answers in their place; nil for not
}

func (m inMemory) run(ctx context.Context, c command, _ *sync.WaitGroup) (output, error) {
	h := heard{Kind: filepath.Base(c.path), Verb: c.verb, Env: map[string]string{}, Stdin: string(c.stdin)}
	for _, kv := range c.env {
		k, v, _ := strings.Cut(kv, "=")
		h.Env[k] = v
	}
	a := fakecni.Acts(m.state, h.Kind)[h.Verb]
	fakecni.Note(m.state, h)
	if m.first != nil {
		if out, err := m.first(ctx, c); out != nil || err != nil {
			if out == nil {
				out = &output{}
			}
			return *out, err
		}
	}
	if a.Hang {
		<-ctx.Done()
		return output{}, errKilled
	}
	s, code := fakecni.Answer(a, h)
	out := output{stdout: []byte(s), stderr: a.Stderr}
	if code != 0 {
		out.failed = fmt.Errorf("exit status %d", code)
	}
	return out, nil
}

// rig is a plugin over directories of its own.
type rig struct {
	t                       testing.TB
	conf, bin, state, cache string
	cfg                     Config
	logs                    *observer.ObservedLogs
	p                       *Plugin
}

// newRig makes a plugin whose plugins are run without processes, unless
// real is set.
func newRig(t testing.TB, real bool, change ...func(*Config)) *rig {
	t.Helper()
	top := t.TempDir()
	r := &rig{t: t, conf: filepath.Join(top, "net.d"), bin: filepath.Join(top, "bin"), state: filepath.Join(top, "state"), cache: filepath.Join(top, "cache")}
	for _, dir := range []string{r.conf, r.bin, r.state} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	core, logs := observer.New(zap.DebugLevel)
	r.logs = logs
	r.cfg = Config{ConfDir: r.conf, BinDirs: []string{r.bin}, CacheDir: r.cache, Log: zap.New(core)}
	for _, f := range change {
		f(&r.cfg)
	}
	r.again()
	if !real {
		r.p.processes = inMemory{state: r.state}
	}
	return r
}

// again makes another plugin over the same directories, as after a restart.
func (r *rig) again() {
	r.t.Helper()
	p, err := New(r.cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.p != nil {
		r.p.ports.Close() // as the end of the process does
		p.processes = r.p.processes
	}
	r.p = p
}

// install has plugins that are fakes.
func (r *rig) install(kinds ...string) {
	r.t.Helper()
	self := "/bin/true" // in memory, any executable will do
	if _, ok := r.p.processes.(inMemory); !ok {
		self = testprogram.Build(r.t, "./network/cni/internal/fakecni/plugin")
	}
	for _, k := range kinds {
		if err := os.Symlink(self, filepath.Join(r.bin, k)); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) write(file, data string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.conf, file), []byte(data), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) acts(kind string, acts map[string]act) {
	r.t.Helper()
	b, err := json.Marshal(acts)
	if err == nil {
		err = os.WriteFile(filepath.Join(r.state, kind+".acts"), b, 0o600)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// heard returns what the fakes were told of the given verbs, and forgets it.
func (r *rig) heard(verbs ...string) []heard {
	r.t.Helper()
	all := r.heardSoFar(verbs...)
	_ = os.Remove(filepath.Join(r.state, "heard"))
	return all
}

// await waits until a plugin runs with a verb.
func (r *rig) await(verb string) heard {
	r.t.Helper()
	for range 24_000 { // two minutes
		if all := r.heardSoFar(verb); len(all) > 0 {
			return all[0]
		}
		time.Sleep(5 * time.Millisecond)
	}
	r.t.Fatalf("no %s", verb)
	return heard{}
}

func (r *rig) heardSoFar(verbs ...string) []heard {
	r.t.Helper()
	b, err := os.ReadFile(filepath.Join(r.state, "heard"))
	if err != nil && !os.IsNotExist(err) {
		r.t.Fatal(err)
	}
	var all []heard
	for line := range bytes.Lines(b[:bytes.LastIndexByte(b, '\n')+1]) {
		var h heard
		if err := json.Unmarshal(line, &h); err != nil {
			r.t.Fatal(err)
		}
		if slices.Contains(verbs, h.Verb) {
			all = append(all, h)
		}
	}
	return all
}

func kinds(all []heard) string {
	var s []string
	for _, h := range all {
		s = append(s, h.Kind)
	}
	return strings.Join(s, " ")
}

func (r *rig) plan(a network.Attachment) []byte {
	r.t.Helper()
	b, err := r.p.Plan(r.t.Context(), a)
	if err != nil {
		r.t.Fatalf("plan: %v", err)
	}
	return b
}

const someNetns = "/run/netns/test"

// up plans and sets up.
func (r *rig) up(a network.Attachment) (network.Kept, error) {
	r.t.Helper()
	k := network.Kept{Attachment: a, Netns: someNetns, Saved: r.plan(a)}
	res, err := r.p.SetUp(r.t.Context(), a, k.Netns, k.Saved, nil)
	k.Result = &res
	return k, err
}

func (r *rig) mustUp(a network.Attachment) network.Kept {
	r.t.Helper()
	k, err := r.up(a)
	if err != nil {
		r.t.Fatalf("set up: %v", err)
	}
	return k
}

func (r *rig) down(k network.Kept) error {
	r.t.Helper()
	return r.p.TearDown(r.t.Context(), k.Attachment, k.Netns, k.Saved, nil)
}

func pod(id string) network.Attachment {
	return network.Attachment{ID: id, Namespace: "default", Name: "web-" + id, UID: "uid-" + id}
}

func oneConf(name, version string, plugins ...string) string {
	return fmt.Sprintf(`{"cniVersion":%q,"name":%q,"plugins":[%s]}`, version, name, strings.Join(plugins, ","))
}

// wantCode fails unless an error has a code and a text.
func wantCode(t testing.TB, err error, code network.Code, texts ...string) {
	t.Helper()
	if network.CodeOf(err) != code {
		t.Errorf("%v is %v; want %v", err, network.CodeOf(err), code)
	}
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("error %v; want %q in it", err, text)
		}
	}
}
