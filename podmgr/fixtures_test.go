package podmgr

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// testTimeout is how long a test waits for what must come.
const testTimeout = 2 * time.Minute

// podYAML is a manifest; extra goes into its metadata.
func podYAML(name, extra string) string {
	return "---\napiVersion: v1\nkind: Pod\nmetadata: {name: " + name + extra + "}\nspec: {containers: [{name: c, image: 'i:1'}]}\n"
}

func configMapYAML(name, value string) string {
	return "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {k: '" + value + "'}\n"
}

// specYAML is a pod with a given spec.
func specYAML(spec string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: " + spec + "\n"
}

func decodeString(s string) decoded {
	return decode([]byte(s), origin{nodeName: "N1", file: "/m/a.yaml"})
}

// madePod is a pod as a source delivers it.
func madePod(name, uid string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(uid)}}
}

func newDirectory(t testing.TB, path string) *directory {
	t.Helper()
	s, err := Directory(DirectoryConfig{Path: path, NodeName: "N1", Rescan: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return s.(*directory)
}

// replace puts a file in place in one step.
func replace(t testing.TB, path, content string) {
	t.Helper()
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.WriteFile(tmp, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, path); err != nil {
		t.Fatal(err)
	}
}

// silent is a source that says nothing; tests merge in its name.
type silent string

func (s silent) Name() string { return string(s) }

func (s silent) Run(ctx context.Context, _ func(Snapshot)) error { <-ctx.Done(); return nil }

func newSilent(t testing.TB, names ...string) *Manager {
	t.Helper()
	var sources []Source
	for _, n := range names {
		sources = append(sources, silent(n))
	}
	m, err := New(Config{Sources: sources})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// drain takes all that is queued and writes it as "ADD file a b".
func drain(m *Manager) []string {
	var out []string
	for {
		c, ok := m.queue.take()
		if !ok {
			return out
		}
		m.queue.told[c.Source] = true
		out = append(out, brief(c.Change))
	}
}

func brief(c Change) string {
	s := fmt.Sprintf("%v %s", c.Op, c.Source)
	for _, p := range c.Pods {
		s += " " + p.Name
	}
	for _, o := range c.Configs {
		s += fmt.Sprintf(" (%s %s/%s)", o.Kind, o.Namespace, o.Name)
	}
	return s
}
