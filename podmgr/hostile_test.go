package podmgr

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	v1 "k8s.io/api/core/v1"
)

// soon fails the test unless f ends within a time that is long for a small file.
func soon(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(testTimeout):
		t.Fatal("it does not end")
	}
}

// A document that would cost much more than its text says is a problem of its
// own; the others of the file are in effect.
func TestCostlyDocuments(t *testing.T) {
	const huge = "'1e-2000000000'"
	quantities := func(spec string) string { return specYAML("{containers: [{name: c, image: i}], " + spec + "}") }
	long := "x: &x " + strings.Repeat("x", 100<<10)
	for _, tc := range []struct{ name, doc, field, reason string }{
		{"a long text many times", long + "\ny: [" + strings.Repeat("*x,", 12000) + "]\n", "", "once its aliases are replaced"},
		{"lists of lists", "a0: &a0 [ha, ha]\n" + laughs(30), "", "excessive aliasing"},
		{"many values", "x: [" + strings.Repeat("0,", 1<<20) + "]\n", "", "want at most 250000"},
		{"many empty containers", specYAML("{containers: [" + strings.Repeat("{},", 120_000) + "]}"), "", "more than 33554432 bytes in memory"},
		{"deep", "x: " + strings.Repeat("[", 200) + strings.Repeat("]", 200) + "\n", "", "is nested 201 levels deep; want at most 100"},
		{"limits", specYAML("{containers: [{name: c, image: i, resources: {limits: {cpu: " + huge + "}}}]}"), "spec.containers[0].resources.limits[cpu]", "exponent from -99 to 99"},
		{"overhead", quantities("overhead: {cpu: " + huge + "}"), "spec.overhead[cpu]", "exponent"},
		{"size", quantities("volumes: [{name: v, emptyDir: {sizeLimit: " + huge + "}}]"), "spec.volumes[0].emptyDir.sizeLimit", "exponent"},
		{"volume", "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: pv}\nspec: {capacity: {storage: " + huge + "}, local: {path: /x}}\n", "spec.capacity[storage]", "exponent"},
	} {
		soon(t, func() {
			d := decodeString(tc.doc + podYAML("b", ""))
			if len(d.pods) != 1 || d.pods[0].Name != "b-n1" || len(d.problems) != 1 || d.problems[0].Document != 1 ||
				d.problems[0].Field != tc.field || !strings.Contains(d.problems[0].Reason, tc.reason) {
				t.Errorf("%s: %d pods, problems %.500v; want %q", tc.name, len(d.pods), d.problems, tc.reason)
			}
		})
	}
	if d := decodeString(specYAML("{containers: [{name: c, image: i, args: [" + huge + "], resources: {limits: {cpu: 1e3}}}]}")); len(d.pods) != 1 {
		t.Errorf("a text like a quantity: %v", d.problems)
	}
	if d := decodeString(specYAML("{containers: [{name: c, image: &i 'i:1'}, {name: d, image: *i}]}")); len(d.pods) != 1 {
		t.Errorf("few aliases: %v", d.problems)
	}
}

func laughs(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
	}
	return b.String()
}

// A file of nothing but mistakes costs a moment, and few words.
func TestManyProblems(t *testing.T) {
	soon(t, func() {
		core, logs := observer.New(zapcore.DebugLevel)
		m, err := New(Config{Sources: []Source{newDirectory(t, t.TempDir())}, Log: zap.New(core)})
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Repeat("a\n---\n", 80_000)
		for i := range 3 {
			d := decodeString(fmt.Sprintf("b%d\n---\n", i) + text)
			if len(d.problems) != maxProblems+1 {
				t.Fatalf("%d problems", len(d.problems))
			}
			began := time.Now()
			m.merge("file", Snapshot{Problems: d.problems})
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("merging takes %v", took)
			}
		}
		p := m.Problems()
		if last := p[len(p)-1].Reason; len(p) != maxProblems+1 || last != "and 4981 more problems" {
			t.Errorf("%d problems, the last %q", len(p), last)
		}
		if n := logs.Len(); n != 1 {
			t.Errorf("%d lines in the log, want one", n)
		}
		m.merge("file", Snapshot{})
		if n := logs.FilterMessage("manifest is valid again").Len(); n != 1 {
			t.Errorf("%d lines that it is over, want one", n)
		}
	})
}

// Of a source of somebody else's, too, problems are bounded.
func TestManyProblemsOfManyFiles(t *testing.T) {
	m := newSilent(t, "file")
	var all []Problem
	for i := range 100_000 {
		all = append(all, Problem{File: fmt.Sprint(i / 30), Reason: strings.Repeat("r\n", 5000)})
	}
	began := time.Now()
	m.merge("file", Snapshot{Problems: all})
	m.merge("file", Snapshot{Problems: all[1:]})
	if took := time.Since(began); took > testTimeout {
		t.Errorf("takes %v", took)
	}
	got := m.Problems()
	if len(got) > 2*maxListed || got[20].Error() != "0: and 9 more problems" && got[len(got)-1].File != "" {
		t.Errorf("%d problems, the last %v", len(got), got[len(got)-1])
	}
	for _, p := range got {
		if len(p.Reason) > maxText+3 || strings.Contains(p.Reason, "\n") {
			t.Fatalf("reason %q", p.Reason)
		}
	}
}

// As many pods as a file may hold, all with one name, and all gone again.
func TestManyPodsWithOneName(t *testing.T) {
	soon(t, func() {
		m := newSilent(t, "file", "http")
		m.merge("http", Snapshot{Pods: []*v1.Pod{madePod("a", "first")}})
		var pods []*v1.Pod
		for i := range 5_000 {
			pods = append(pods, madePod("a", fmt.Sprint(i)), madePod(fmt.Sprint("p", i), fmt.Sprint("u", i)))
		}
		m.merge("file", Snapshot{Pods: pods})
		if n := len(m.Problems()); n > 2*maxProblems+2 {
			t.Errorf("%d problems", n)
		}
		m.merge("http", Snapshot{})
		m.merge("file", Snapshot{})
		if n := len(m.Pods()); n != 0 {
			t.Errorf("%d pods are left", n)
		}
	})
}

// What is broken beyond the problems that are listed keeps its last version.
func TestKeepBeyondListedProblems(t *testing.T) {
	var good, bad strings.Builder
	for i := range 3 * maxProblems {
		good.WriteString(podYAML(fmt.Sprint("p", i), ""))
		bad.WriteString(podYAML(fmt.Sprint("p", i), ", bogus: 1"))
	}
	old, now := &manifest{good: decodeString(good.String())}, &manifest{good: decodeString(bad.String())}
	now.problems = now.good.problems
	now.keep(old)
	if len(now.good.pods) != 3*maxProblems {
		t.Errorf("%d pods are kept, want %d", len(now.good.pods), 3*maxProblems)
	}
}

// A name, a namespace or a UID that would lead out of a directory is refused.
func TestNamesInPaths(t *testing.T) {
	for _, tc := range []struct{ meta, field string }{
		{"name: a, uid: ../../etc", "metadata.uid"},
		{"name: a, uid: a/b", "metadata.uid"},
		{"name: a, uid: '..'", "metadata.uid"},
		{"name: a, uid: .", "metadata.uid"},
		{`name: a, uid: "a\0b"`, "metadata.uid"},
		{`name: a, uid: "a\nb"`, "metadata.uid"},
		{"name: a, uid: " + strings.Repeat("u", 254), "metadata.uid"},
		{"name: a/b", "metadata.name"},
		{"name: a, namespace: ../x", "metadata.namespace"},
	} {
		for _, kind := range []string{"Pod", "ConfigMap", "Secret", "PersistentVolumeClaim"} {
			d := decodeString("apiVersion: v1\nkind: " + kind + "\nmetadata: {" + tc.meta + "}\n")
			if len(d.problems) != 1 || d.problems[0].Field != tc.field || strings.ContainsAny(d.problems[0].Error(), "\x00\n") ||
				len(d.pods)+d.objects() != 0 {
				t.Errorf("%s %s: problems %v, want one of %s", kind, tc.meta, d.problems, tc.field)
			}
		}
	}
	if d := decodeString(podYAML("a", ", uid: 6ba7b810-9dad-11d1-80b4-00c04fd430c8")); len(d.pods) != 1 {
		t.Errorf("an ordinary UID: %v", d.problems)
	}
}
