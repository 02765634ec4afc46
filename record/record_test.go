package record_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/record"
)

var web = record.Pod{Namespace: "shop", Name: "web", UID: "uid-web"}

func recorder(t testing.TB, dir string, maxBytes int64) *record.Recorder {
	t.Helper()
	r, err := record.New(record.Config{Dir: dir, MaxBytes: maxBytes, Boot: "boot-1", Node: "edge-7"})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// during runs a recorder while do runs.
func during(t testing.TB, dir string, maxBytes int64, do func(*record.Recorder)) {
	t.Helper()
	r := recorder(t, dir, maxBytes)
	stop := testrun.Start(t, r.Run)
	do(r)
	stop()
}

func read(t testing.TB, dir string, f record.Filter) (out []record.Entry) {
	t.Helper()
	for e, err := range record.Read(dir, f) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

// kindsOf returns the types of facts, such as "Begin Instance Stop".
func kindsOf(entries []record.Entry) string {
	var out []string
	for _, e := range entries {
		out = append(out, strings.TrimPrefix(fmt.Sprintf("%T", e.Fact), "*record."))
	}
	return strings.Join(out, " ")
}

func instance(id, state string) record.Entry {
	return record.Entry{Pod: web, Container: "app", Fact: &record.Instance{ID: id, State: state}}
}

func TestOnlyChangesAreRecorded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "record")
	tell := func(r *record.Recorder) {
		for range 3 {
			r.Record(instance("a", "running"))
			r.Record(record.Entry{Pod: web, Fact: &record.Sync{}}) // at rest: needs no entry
		}
	}
	during(t, dir, 0, tell)
	if got, want := kindsOf(read(t, dir, record.Filter{})), "Begin Instance Stop"; got != want {
		t.Fatalf("recorded %q, want %q", got, want)
	}
	// The next process is told the same.
	during(t, dir, 0, func(r *record.Recorder) {
		tell(r)
		r.Record(instance("a", "exited"))
		r.Record(instance("a", "running")) // and back
		r.Record(record.Entry{Pod: web, Fact: &record.Sync{Reason: "FailedMount"}})
		r.Record(record.Entry{Pod: web, Fact: &record.Sync{}})
	})
	all := read(t, dir, record.Filter{})
	got := kindsOf(slices.DeleteFunc(slices.Clone(all), func(e record.Entry) bool { _, is := e.Fact.(*record.Begin); return is }))
	if want := "Instance Stop Instance Instance Sync Sync Stop"; got != want {
		t.Errorf("recorded %q, want %q", got, want)
	}
	for _, e := range all {
		if e.At.IsZero() || e.Boot != "boot-1" {
			t.Errorf("no time or boot in %+v", e)
		}
	}
}

func TestChanges(t *testing.T) {
	var c record.Changes
	next := func(e record.Entry, want bool) {
		t.Helper()
		fact, got := c.Next(&e)
		if got != want || !json.Valid(fact) {
			t.Errorf("%+v is changed: %v, %s", e.Fact, got, fact)
		}
	}
	synced := func(reason string, took time.Duration) record.Entry {
		return record.Entry{Pod: web, Fact: &record.Sync{Reason: reason, Took: took}}
	}
	next(synced("", 1), false) // nothing failed before
	next(synced("FailedMount", 1), true)
	next(synced("FailedMount", 2), false) // durations are no state
	next(synced("", 3), true)
	next(synced("", 4), false)
	next(instance("a", "running"), true)
	next(instance("b", "running"), true)
	for range 2 {
		next(record.Entry{Fact: &record.Happened{Reason: "SystemOOM"}}, true)
	}
	forgotten := instance("a", "running")
	c.Forget(&forgotten)
	next(forgotten, true)
	next(forgotten, false)
	// It does not grow without end, and remembers what is told again and again.
	for i := range 100_000 {
		next(instance(strconv.Itoa(i), "exited"), true)
		next(instance("b", "running"), false)
	}
}

func TestFilter(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "record")
	other := record.Entry{Pod: record.Pod{Namespace: "shop", Name: "db", UID: "uid-db"}, Fact: &record.Status{Phase: "Running"}}
	during(t, dir, 0, func(r *record.Recorder) {
		r.Record(instance("a", "running"))
		r.Record(other)
	})
	for _, tc := range []struct {
		f    record.Filter
		want string
	}{
		{record.Filter{}, "Begin Instance Status Stop"},
		{record.Filter{Namespace: "shop", Name: "web"}, "Instance"},
		{record.Filter{Name: "web", Node: true}, "Begin Instance Stop"},
		{record.Filter{UID: "uid-db"}, "Status"},
		{record.Filter{Node: true}, "Begin Stop"},
		{record.Filter{Until: time.Unix(1, 0)}, ""},
	} {
		if got := kindsOf(read(t, dir, tc.f)); got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.f, got, tc.want)
		}
	}
}

func TestSizeIsBounded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "record")
	const limit = 1 << 20
	long := strings.Repeat("x", 200)
	synctest.Test(t, func(t *testing.T) {
		during(t, dir, limit, func(r *record.Recorder) {
			for i := range 20 {
				for j := range 1000 {
					r.Record(instance(fmt.Sprintf("%d-%d-%s", i, j, long), "running"))
				}
				time.Sleep(2 * time.Second) // it is written
			}
		})
	})
	if size := sizeOf(t, dir); size > limit || size < limit/2 {
		t.Errorf("%d bytes, want at most %d and most of it", size, limit)
	}
	entries := read(t, dir, record.Filter{Name: "web"})
	if last := entries[len(entries)-1].Fact.(*record.Instance); last.ID != "19-999-"+long {
		t.Errorf("the newest entry is %+v", last)
	}
	// What only a removed file had is recorded when it is told again.
	during(t, dir, limit, func(r *record.Recorder) {
		r.Record(instance("0-0-"+long, "running"))
		r.Record(instance("19-999-"+long, "running"))
	})
	found := map[string]int{}
	for _, e := range read(t, dir, record.Filter{Name: "web"}) {
		found[e.Fact.(*record.Instance).ID]++
	}
	if old, young := found["0-0-"+long], found["19-999-"+long]; old != 1 || young != 1 {
		t.Errorf("a state whose entry was removed is recorded %d times, one whose entry is there %d times; want once", old, young)
	}
}

func sizeOf(t *testing.T, dir string) (n int64) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		n += info.Size()
	}
	return n
}

// Wherever a crash cuts the newest file off, the whole entries before the cut stay, and the next
// process goes on after them.
func TestTornTail(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "record")
	during(t, dir, 0, func(r *record.Recorder) {
		r.Record(instance("a", "running"))
		r.Record(instance("b", "running"))
	})
	whole, err := os.ReadFile(filepath.Join(dir, "00000001.record"))
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(whole) {
		dir := filepath.Join(t.TempDir(), "record")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "00000001.record"), whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		before := read(t, dir, record.Filter{})
		if lines := max(0, bytes.Count(whole[:cut], []byte("\n"))-1); len(before) != lines {
			t.Fatalf("cut at %d: %d entries, want %d", cut, len(before), lines)
		}
		if cut%64 != 0 {
			continue
		}
		during(t, dir, 0, func(r *record.Recorder) { r.Record(instance("c", "running")) })
		after := read(t, dir, record.Filter{})
		after = slices.DeleteFunc(after, func(e record.Entry) bool { _, gap := e.Fact.(*record.Gap); return gap })
		if len(after) != len(before)+3 {
			t.Fatalf("cut at %d: %d entries after the next process, want %d", cut, len(after), len(before)+3)
		}
	}
}

// A file is either whole or an error, whatever byte of it is changed; an error comes with the entries
// before the damage.
func TestDamage(t *testing.T) {
	var b bytes.Buffer
	entries := []record.Entry{instance("a", "running"), instance("b", "running")}
	if err := record.Write(&b, entries); err != nil {
		t.Fatal(err)
	}
	whole := b.Bytes()
	if got, err := record.ReadFile(bytes.NewReader(whole)); err != nil || !reflect.DeepEqual(got, entries) {
		t.Fatalf("read %+v, %v", got, err)
	}
	for i := range whole {
		damaged := slices.Clone(whole)
		damaged[i] ^= 0x15
		got, err := record.ReadFile(bytes.NewReader(damaged))
		if err == nil || len(got) == 2 || !errors.Is(err, record.ErrDamaged) && !errors.Is(err, record.ErrVersion) {
			t.Errorf("byte %d changed: %d entries, error %v", i, len(got), err)
		}
	}
	if _, err := record.ReadFile(strings.NewReader("nodewright record 2\n")); !errors.Is(err, record.ErrVersion) {
		t.Errorf("a file of the next version: %v", err)
	}
}

// A small file cannot take much memory or time: an entry with very many values is an error.
func TestHostileFile(t *testing.T) {
	entry := func(list string) []byte {
		return record.Frame([]byte(`{"kind":"decision","fact":{"input":{"` + list + `":[{}` + strings.Repeat(",{}", 20000) + `]}}}`))
	}
	for _, list := range []string{"runs", "regular", "sandboxes"} {
		if got, err := record.ReadFile(bytes.NewReader(entry(list))); len(got) > 0 || !errors.Is(err, record.ErrDamaged) || !strings.Contains(err.Error(), "values") {
			t.Errorf("%s: %d entries, error %v", list, len(got), err)
		}
	}
	unknown := record.Frame([]byte(`{"kind":"unknown","fact":"` + strings.Repeat("x", 60000) + `"}`))
	endless := io.MultiReader(bytes.NewReader(record.Frame([]byte(`{"kind":"stop"}`))), &repeated{line: unknown[len("nodewright record 1\n"):]})
	if got, err := record.ReadFile(endless); len(got) != 1 || !errors.Is(err, record.ErrDamaged) || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("a file without end: %d entries, error %v", len(got), err)
	}
	// The recorder writes nothing that it could not read.
	dir := filepath.Join(t.TempDir(), "record")
	wide := instance("a", "running")
	wide.Fact = &record.Wanted{Op: "ADD", Containers: make([]record.Image, 10000)}
	during(t, dir, 0, func(r *record.Recorder) {
		r.Record(wide)
		r.Record(instance("b", "running"))
	})
	if got, want := kindsOf(read(t, dir, record.Filter{})), "Begin Instance Stop Gap"; got != want {
		t.Errorf("it has %s, want %s", got, want)
	}
}

// repeated reads a line without end.
type repeated struct {
	line []byte
	at   int
}

func (r *repeated) Read(p []byte) (int, error) {
	n := copy(p, r.line[r.at:])
	r.at = (r.at + n) % len(r.line)
	return n, nil
}

// Neither the directory nor a file in it may be a link.
func TestLinks(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("nodewright record 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(dir, "record")
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(own, "00000001.record")); err != nil {
		t.Fatal(err)
	}
	during(t, own, 0, func(r *record.Recorder) { r.Record(instance("a", "running")) })
	if b, err := os.ReadFile(secret); err != nil || string(b) != "nodewright record 1\n" {
		t.Errorf("the target of a link has now %q, %v", b, err)
	}
	for _, err := range record.Read(own, record.Filter{}) {
		if err != nil {
			return
		}
	}
	t.Error("a link among the files was read")
}

// A queue that is full drops entries, says so, and never blocks.
func TestFullQueue(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "record")
	r := recorder(t, dir, 0)
	const told = 20000
	for i := range told {
		r.Record(instance(fmt.Sprint(i), "running"))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
	lost, kept := 0, 0
	for _, e := range read(t, dir, record.Filter{}) {
		switch f := e.Fact.(type) {
		case *record.Gap:
			lost += f.Lost
		case *record.Instance:
			kept++
		}
	}
	// Stop did not fit either.
	if kept == 0 || kept+lost != told+1 {
		t.Errorf("%d entries and a gap of %d, want %d together", kept, lost, told+1)
	}
}

// At rest nothing is written, and no timer runs: in a bubble, time would pass.
func TestRest(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "record")
	synctest.Test(t, func(t *testing.T) {
		during(t, dir, 0, func(r *record.Recorder) {
			r.Record(instance("a", "running"))
			time.Sleep(time.Minute)
			synctest.Wait()
			before := sizeOf(t, dir)
			for range 100 {
				time.Sleep(time.Hour)
				r.Record(instance("a", "running"))
			}
			synctest.Wait()
			if after := sizeOf(t, dir); after != before {
				t.Errorf("%d bytes at rest, %d before", after, before)
			}
		})
	})
}

func TestConcurrent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "record")
	during(t, dir, 0, func(r *record.Recorder) {
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for j := range 50 {
					r.Record(instance(fmt.Sprint(i, j), "running"))
				}
			})
		}
		wg.Wait()
	})
	if got := len(read(t, dir, record.Filter{Name: "web"})); got != 400 {
		t.Errorf("%d entries, want 400", got)
	}
}

func TestErrorWord(t *testing.T) {
	for text, want := range map[string]string{
		"": "",
		`Get "http://10.0.0.1:80/?token=secret": dial tcp 10.0.0.1:80: connect: connection refused`:             "connection refused",
		`Get "http://10.0.0.1:80/": context deadline exceeded (Client.Timeout exceeded while awaiting headers)`: "timed out",
		`failed to resolve reference "docker.io/x": docker.io/x: not found`:                                     "not found",
		"my password is hunter2":                      "another error",
		strings.Repeat("x", 1<<20) + ": no such host": "no such host",
	} {
		if got := record.ErrorWord(text); got != want {
			t.Errorf("%.80q: %q, want %q", text, got, want)
		}
	}
	for s, want := range map[string]string{"OOMKilled": "OOMKilled", "": "", "it failed: secret": "Other", strings.Repeat("A", 65): "Other"} {
		if got := record.Reason(s); got != want {
			t.Errorf("reason %q: %q, want %q", s, got, want)
		}
	}
}

// Every string that can be recorded says by its tag what it may have.
func TestEveryStringIsOfAKind(t *testing.T) {
	var visit func(path string, typ reflect.Type, is string)
	visit = func(path string, typ reflect.Type, is string) {
		switch typ.Kind() {
		case reflect.String:
			if !slices.Contains([]string{"name", "id", "address", "word", "text"}, is) {
				t.Errorf("%s: a string whose tag \"is\" is %q", path, is)
			}
		case reflect.Slice, reflect.Pointer:
			visit(path, typ.Elem(), is)
		case reflect.Struct:
			if typ == reflect.TypeFor[time.Time]() {
				return
			}
			for i := range typ.NumField() {
				f := typ.Field(i)
				if f.Type.Kind() != reflect.Interface {
					visit(path+"."+f.Name, f.Type, f.Tag.Get("is"))
				}
			}
		case reflect.Bool, reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32:
		default:
			t.Errorf("%s: a %s cannot be recorded", path, typ)
		}
	}
	visit("Entry", reflect.TypeFor[record.Entry](), "")
	for _, fact := range []record.Fact{
		&record.Begin{}, &record.Stop{}, &record.Clock{}, &record.Gap{}, &record.Wanted{}, &record.Verdict{}, &record.Instance{}, &record.Probe{},
		&record.Image{}, &record.Sync{}, &record.Status{}, &record.Resize{}, &record.Condition{}, &record.Plugin{}, &record.Happened{}, &record.Decision{}, &record.SandboxRun{},
	} {
		visit(fmt.Sprintf("%T", fact), reflect.TypeOf(fact), "")
	}
}

func TestAnonymize(t *testing.T) {
	code := int32(137)
	entries := []record.Entry{
		{At: time.Unix(100, 0).UTC(), Pod: web, Container: "app", Fact: &record.Instance{ID: "a", State: "exited", Image: "secret.example/app", ExitCode: &code, Reason: "OOMKilled"}},
		{Pod: web, Container: "app", Fact: &record.Probe{ID: "a", Type: "liveness", Target: "10.1.2.3:8080/secret", Code: 503}},
		{Pod: web, Fact: &record.Verdict{Kind: podlife.Evicted, Message: "container app used much"}},
	}
	before := fmt.Sprint(entries[0].Fact)
	out := record.Anonymize(entries)
	var b bytes.Buffer
	if err := record.Write(&b, out); err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"shop", "web", "app", "10.1.2.3", "secret", "much"} {
		if strings.Contains(b.String(), secret) {
			t.Errorf("%q is in %s", secret, b.String())
		}
	}
	if out[0].Pod != out[1].Pod || out[0].Pod.Name == "" || out[0].Container != out[1].Container {
		t.Errorf("equal names got different hashes: %+v, %+v", out[0], out[1])
	}
	got := out[0].Fact.(*record.Instance)
	if *got.ExitCode != 137 || got.Reason != "OOMKilled" || got.ID != out[1].Fact.(*record.Probe).ID || !out[0].At.Equal(entries[0].At) {
		t.Errorf("%+v", got)
	}
	if fmt.Sprint(entries[0].Fact) != before {
		t.Error("the original was changed")
	}
}

// A decision that was recorded is made again by its record, for all kinds of pods.
func TestReplay(t *testing.T) {
	n := 0
	always := v1.ContainerRestartPolicyAlways
	for _, policy := range []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever} {
		for _, sidecar := range []bool{false, true} {
			for state := observed.Unknown; state <= observed.Exited; state++ {
				for sandbox := observed.Unknown; sandbox <= observed.Exited; sandbox++ {
					for alive := observed.Maybe; alive <= observed.Yes; alive++ {
						for _, wait := range []bool{false, true} {
							pod := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: policy, InitContainers: []v1.Container{{Name: "i"}}, Containers: []v1.Container{{Name: "c"}, {Name: "d"}}}}
							if sidecar {
								pod.Spec.InitContainers[0].RestartPolicy = &always
							}
							code := int32(1)
							k := podlife.Knowledge{
								Pod: pod, Alive: func(string) observed.Answer { return alive },
								Changed: func(*v1.Container, *observed.Container) bool { return wait && sidecar },
								Runtime: &observed.Pod{
									Sandboxes: []observed.Sandbox{{ID: "s", State: sandbox}},
									Containers: []observed.Container{
										{ID: "i0", Name: "i", SandboxID: "s", State: state, ExitCode: &code},
										{ID: "c0", Name: "c", SandboxID: "s", State: observed.Running},
										{ID: "d1", Name: "d", SandboxID: "s", State: observed.Exited, ExitCode: &code, Attempt: 1},
										{ID: "d0", Name: "d", SandboxID: "s", State: state},
									},
								},
								Waits: func(_ *v1.Container, o *observed.Container) (time.Time, podlife.Kind) {
									if wait && o != nil {
										return time.Unix(100, 0), podlife.CrashLoop
									}
									return time.Time{}, ""
								},
							}
							d, f := record.Decide(k)
							if want := podlife.Decide(k); !reflect.DeepEqual(d, want) {
								t.Fatalf("decided %+v, want %+v", d, want)
							}
							var b bytes.Buffer
							if err := record.Write(&b, []record.Entry{{Pod: web, Fact: f}}); err != nil {
								t.Fatal(err)
							}
							stored, err := record.ReadFile(&b)
							if err != nil {
								t.Fatal(err)
							}
							again := stored[0].Fact.(*record.Decision)
							if diff := again.Differs(again.Again()); len(diff) > 0 {
								t.Errorf("%+v decides otherwise: %q", again.Input, diff)
							}
							n++
						}
					}
				}
			}
		}
	}
	if n != 576 {
		t.Errorf("%d cases", n)
	}
}

func FuzzReadFile(f *testing.F) {
	var b bytes.Buffer
	_, d := record.Decide(podlife.Knowledge{Pod: &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}})
	entries := []record.Entry{instance("a", "running"), {Pod: web, Fact: d}, {Fact: &record.Gap{Lost: 1}}}
	if err := record.Write(&b, entries); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte("nodewright record 1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := record.ReadFile(bytes.NewReader(data))
		if err != nil && !errors.Is(err, record.ErrDamaged) && !errors.Is(err, record.ErrVersion) {
			t.Fatalf("error %v", err)
		}
		for _, e := range got {
			if d, ok := e.Fact.(*record.Decision); ok {
				d.Differs(d.Again()) // whatever is in it
			}
		}
		record.Anonymize(got)
	})
}

// FuzzEntry puts any JSON into a valid frame.
func FuzzEntry(f *testing.F) {
	f.Add([]byte(`{"kind":"decision","fact":{"input":{"sandboxes":[{"addresses":-1}],"regular":[{"name":"c","rules":[{}]}]}}}`))
	f.Add([]byte(`{"kind":"what is this"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := record.ReadFile(bytes.NewReader(record.Frame(body)))
		if err != nil && !errors.Is(err, record.ErrDamaged) {
			t.Fatalf("error %v", err)
		}
		for _, e := range got {
			if d, ok := e.Fact.(*record.Decision); ok {
				d.Differs(d.Again())
			}
		}
	})
}
