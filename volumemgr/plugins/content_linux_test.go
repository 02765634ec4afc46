package plugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/mount"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// objects is a Source, by "Kind/namespace/name".
type objects map[string]*ContentObject

var errDown = errors.New("down")

func (o objects) Get(_ context.Context, kind, ns, name string) (*ContentObject, error) {
	id := kind + "/" + ns + "/" + name
	if strings.Contains(name, "down") {
		return nil, errDown
	}
	if got, ok := o[id]; ok {
		return got, nil
	}
	return nil, fmt.Errorf("%s: %w", id, ErrNotFound)
}

func object(version string, pairs ...string) *ContentObject {
	o := &ContentObject{Version: version, Data: map[string][]byte{}}
	for _, p := range pairs {
		k, v, _ := strings.Cut(p, "=")
		o.Data[k] = []byte(v)
	}
	return o
}

func pod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "p", Namespace: "ns", UID: "u", Labels: map[string]string{"b": "2", "a": "1"},
			Annotations: map[string]string{"k": "say \"hi\"\n"},
		},
		Spec: v1.PodSpec{ServiceAccountName: "sa", Containers: []v1.Container{{
			Name: "c", Resources: v1.ResourceRequirements{
				Limits:   v1.ResourceList{v1.ResourceCPU: resource.MustParse("1500m")},
				Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("100Mi")},
			},
		}}},
	}
}

var mode644 = int32(0o644)

func contentVolume(t testing.TB, src v1.VolumeSource) *volumemgr.Volume {
	t.Helper()
	top := t.TempDir()
	return &volumemgr.Volume{
		Spec: &volumemgr.Spec{Volume: &v1.Volume{Name: "v", VolumeSource: src}}, Pod: pod(), UID: "u", Name: "v",
		Path: filepath.Join(top, "pods/u/volumes/plugin/v"), StateDir: filepath.Join(top, "pods/u/plugins/plugin/v"), Warn: func(string, string) {},
	}
}

func plugin(t testing.TB, kind ContentKind, cfg ContentConfig) *Content {
	t.Helper()
	if cfg.Mounter == nil {
		cfg.Mounter = &plugintest.MountMemory{}
	}
	cfg.NoSwap = new(bool)
	p, err := NewContent(kind, cfg)
	must(t, err)
	return p
}

func setUp(t testing.TB, p *Content, v *volumemgr.Volume) volumemgr.Result {
	t.Helper()
	r, err := p.SetUp(t.Context(), v)
	must(t, err)
	return r
}

// seen returns the files that a container sees, "path=content" in order, with the mode if it is
// not 0644.
func seen(t testing.TB, dir string) string {
	t.Helper()
	out := map[string]string{}
	data, err := filepath.EvalSymlinks(filepath.Join(dir, "..data"))
	must(t, err)
	must(t, filepath.WalkDir(data, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		must(t, err)
		info, err := e.Info()
		must(t, err)
		rel, err := filepath.Rel(data, p)
		must(t, err)
		out[rel] = string(b)
		if m := info.Mode().Perm(); m != 0o644 {
			out[rel] += fmt.Sprintf(" %o", m)
		}
		if _, err := os.Stat(filepath.Join(dir, rel)); err != nil {
			t.Errorf("%s has no link: %v", rel, err)
		}
		return nil
	}))
	var lines []string
	for _, k := range slices.Sorted(maps.Keys(out)) {
		lines = append(lines, k+"="+out[k])
	}
	return strings.Join(lines, "; ")
}

func item(key, path string, mode ...int32) v1.KeyToPath {
	i := v1.KeyToPath{Key: key, Path: path}
	if len(mode) > 0 {
		i.Mode = &mode[0]
	}
	return i
}

func TestObjects(t *testing.T) {
	src := objects{"ConfigMap/ns/x": object("1", "a=1", "b=2"), "Secret/ns/x": object("1", "a=1", "b=2"), "ConfigMap/ns/bad": object("1", "..x=1")}
	for _, tc := range []struct {
		name     string
		object   string
		items    []v1.KeyToPath
		mode     *int32
		optional bool
		want     string // "error": one
	}{
		{"all keys", "x", nil, &mode644, false, "a=1; b=2"},
		{"another mode", "x", nil, new(int32(0o400)), false, "a=1 400; b=2 400"},
		{"some keys", "x", []v1.KeyToPath{item("a", "p")}, &mode644, false, "p=1"},
		{"in directories", "x", []v1.KeyToPath{item("a", "d/e/p"), item("b", "d//./q")}, &mode644, false, "d/e/p=1; d/q=2"},
		{"a key's own mode", "x", []v1.KeyToPath{item("a", "p", 0o400), item("b", "q")}, &mode644, false, "p=1 400; q=2"},
		{"one key twice", "x", []v1.KeyToPath{item("a", "p"), item("a", "q")}, &mode644, false, "p=1; q=1"},
		{"a missing key", "x", []v1.KeyToPath{item("a", "p"), item("none", "q")}, &mode644, false, "error"},
		{"a missing key that may", "x", []v1.KeyToPath{item("a", "p"), item("none", "q")}, &mode644, true, "p=1"},
		{"a missing object", "none", nil, &mode644, false, "error"},
		{"a missing object that may", "none", nil, &mode644, true, ""},
		{"a missing object that may, with keys", "none", []v1.KeyToPath{item("a", "p")}, &mode644, true, ""},
		{"an answer that is none", "down", nil, &mode644, true, "error"},
		{"no mode", "x", nil, nil, false, "error"},
		{"no mode and no object", "none", nil, nil, true, "error"},
		{"a path that leads out", "x", []v1.KeyToPath{item("a", "../p")}, &mode644, false, "error"},
		{"an absolute path", "x", []v1.KeyToPath{item("a", "/p")}, &mode644, true, "error"},
		{"two keys in one file", "x", []v1.KeyToPath{item("a", "p"), item("b", "p/q")}, &mode644, false, "error"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, kind := range []ContentKind{ContentConfigMap, ContentSecret} {
				vs := v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
					LocalObjectReference: v1.LocalObjectReference{Name: tc.object}, Items: tc.items, DefaultMode: tc.mode, Optional: &tc.optional,
				}}
				if kind == ContentSecret {
					vs = v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: tc.object, Items: tc.items, DefaultMode: tc.mode, Optional: &tc.optional}}
				}
				m := &plugintest.MountMemory{}
				p := plugin(t, kind, ContentConfig{Mounter: m, Source: src})
				v := contentVolume(t, vs)
				r, err := p.SetUp(t.Context(), v)
				if tc.want == "error" {
					if err == nil {
						t.Error("no error")
					}
					if _, serr := os.Lstat(v.Path); !errors.Is(serr, fs.ErrNotExist) {
						t.Errorf("the disk was touched (%v)", serr)
					}
					continue
				}
				must(t, err)
				if r != (volumemgr.Result{Path: v.Path, ReadOnly: true}) {
					t.Errorf("%+v", r)
				}
				if got := seen(t, v.Path); got != tc.want {
					t.Errorf("%q, want %q", got, tc.want)
				}
				table, err := m.Table(t.Context())
				must(t, err)
				if inMemory := kind == ContentSecret; len(table) == 1 != inMemory {
					t.Errorf("mounted %v", table)
				}
				for range 2 {
					must(t, p.TearDown(t.Context(), &volumemgr.Volume{UID: v.UID, Name: v.Name, Path: v.Path, StateDir: v.StateDir}))
				}
				if _, serr := os.Lstat(v.Path); !errors.Is(serr, fs.ErrNotExist) || len(m.Log())%2 != 0 {
					t.Errorf("left: %v, %q", serr, m.Log())
				}
			}
		})
	}
}

func TestContentNew(t *testing.T) {
	for _, kind := range []ContentKind{-1, 4, ContentConfigMap} {
		if _, err := NewContent(kind, ContentConfig{}); err == nil {
			t.Errorf("kind %d without a mounter", kind)
		}
	}
	sources := []v1.VolumeSource{
		{ConfigMap: &v1.ConfigMapVolumeSource{DefaultMode: &mode644}}, {Secret: &v1.SecretVolumeSource{DefaultMode: &mode644}},
		{DownwardAPI: &v1.DownwardAPIVolumeSource{}}, {Projected: &v1.ProjectedVolumeSource{}},
	}
	for kind := range sources {
		p := plugin(t, ContentKind(kind), ContentConfig{})
		for i := range sources {
			if got := p.Supports(contentVolume(t, sources[i]).Spec); got != (i == kind) {
				t.Errorf("%s supports source %d: %t", p.Name(), i, got)
			}
		}
		if p.Supports(&volumemgr.Spec{PersistentVolume: &v1.PersistentVolume{}}) {
			t.Error("supports a persistent volume")
		}
		if _, err := p.SetUp(t.Context(), contentVolume(t, sources[kind])); err == nil {
			t.Errorf("%s without a source or mode", p.Name())
		}
	}
}

func configMap(name string) v1.VolumeSource {
	return v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: name}, DefaultMode: &mode644}}
}

// Objects with unchanged versions are not read; one with a new version is read, and written only
// if it differs.
func TestVersions(t *testing.T) {
	src := objects{"ConfigMap/ns/x": object("1", "a=1")}
	p := plugin(t, ContentConfigMap, ContentConfig{Source: src})
	v := contentVolume(t, configMap("x"))
	setUp(t, p, v)
	v.Remount = true
	link := func() string {
		to, err := os.Readlink(filepath.Join(v.Path, "..data"))
		must(t, err)
		return to
	}
	first := link()
	// Harm that only a look at the disk would find.
	must(t, os.WriteFile(filepath.Join(v.Path, "..data/a"), []byte("harm"), 0o644))
	setUp(t, p, v)
	if got := seen(t, v.Path); got != "a=harm" {
		t.Errorf("the disk was looked at: %q", got)
	}
	src["ConfigMap/ns/x"] = object("2", "a=1")
	setUp(t, p, v)
	if got := seen(t, v.Path); got != "a=1" || link() == first {
		t.Errorf("a new version was not looked at: %q", got)
	}
	second := link()
	src["ConfigMap/ns/x"] = object("3", "a=1")
	setUp(t, p, v)
	if link() != second {
		t.Error("the same content was written again")
	}
	src["ConfigMap/ns/x"] = object("4", "a=2", "b=3")
	setUp(t, p, v)
	if got := seen(t, v.Path); got != "a=2; b=3" {
		t.Errorf("%q", got)
	}
	// Without versions the content decides.
	src["ConfigMap/ns/x"] = object("", "a=5")
	setUp(t, p, v)
	src["ConfigMap/ns/x"] = object("", "a=6")
	setUp(t, p, v)
	if got := seen(t, v.Path); got != "a=6" {
		t.Errorf("%q", got)
	}
	// A changed mode reaches the disk.
	v.Spec.Volume.ConfigMap.DefaultMode = new(int32(0o600))
	setUp(t, p, v)
	if got := seen(t, v.Path); got != "a=6 600" {
		t.Errorf("%q", got)
	}
	// What another process wrote is looked at once.
	must(t, os.WriteFile(filepath.Join(v.Path, "..data/a"), []byte("harm"), 0o644))
	setUp(t, plugin(t, ContentConfigMap, ContentConfig{Source: src}), v)
	if got := seen(t, v.Path); got != "a=6 600" {
		t.Errorf("%q", got)
	}
}

// A volume in use keeps its content if an update fails.
func TestFailureTakesNothingAway(t *testing.T) {
	src := objects{"ConfigMap/ns/x": object("1", "a=1")}
	p := plugin(t, ContentConfigMap, ContentConfig{Source: src})
	v := contentVolume(t, configMap("x"))
	setUp(t, p, v)
	v.Remount = true
	for name, harm := range map[string]func(){
		"gone":        func() { delete(src, "ConfigMap/ns/x") },
		"a bad path":  func() { src["ConfigMap/ns/x"] = object("2", "..a=1") },
		"a long name": func() { src["ConfigMap/ns/x"] = object("2", strings.Repeat("x", 256)+"=1") },
	} {
		harm()
		if _, err := p.SetUp(t.Context(), v); err == nil {
			t.Errorf("%s: no error", name)
		}
		if got := seen(t, v.Path); got != "a=1" {
			t.Errorf("%s: %q", name, got)
		}
	}
	// The write itself fails: a file is where a directory has to be.
	src["ConfigMap/ns/x"] = object("3", "a=2")
	must(t, os.WriteFile(filepath.Join(v.Path, "blocked"), nil, 0o600))
	v.Below = []string{"blocked/x"}
	if _, err := p.SetUp(t.Context(), v); err == nil {
		t.Error("no error")
	}
	if got := seen(t, v.Path); got != "a=1" {
		t.Errorf("%q", got)
	}
	v.Below = nil
	setUp(t, p, v)
	if got := seen(t, v.Path); got != "a=2" {
		t.Errorf("%q", got)
	}
}

// If any call of the mounter fails or dies, no mount leaks, no published file disappears, and the
// next calls succeed. A volume filled by an earlier process is used while its object is missing
// or its source away, unless a power failure may have damaged the files.
func TestFoundWithoutItsObject(t *testing.T) {
	for _, tc := range []struct {
		name   string
		kind   ContentKind
		sync   bool
		filled bool
		boot   string // the present one
		want   bool
	}{
		{"memory", ContentSecret, false, true, "2", true},
		{"on the disk, synced", ContentConfigMap, true, true, "2", true},
		{"on the disk, in this boot", ContentConfigMap, false, true, "1", true},
		{"on the disk, in another boot", ContentConfigMap, false, true, "2", false},
		{"never filled", ContentSecret, false, false, "1", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			source := objects{}
			cfg := ContentConfig{Source: source, Mounter: &plugintest.MountMemory{}, Sync: tc.sync, BootID: "1"}
			src := v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "o", DefaultMode: &mode644}}
			if tc.kind == ContentConfigMap {
				src = v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "o"}, DefaultMode: &mode644}}
			}
			v := contentVolume(t, src)
			for _, kind := range []string{"Secret", "ConfigMap"} {
				source[kind+"/ns/o"] = object("1", "k=one")
			}
			if tc.filled {
				setUp(t, plugin(t, tc.kind, cfg), v)
			}
			clear(source)
			v.Found, cfg.BootID = true, tc.boot
			p := plugin(t, tc.kind, cfg)
			r, err := p.SetUp(t.Context(), v)
			if (err == nil) != tc.want || err == nil && (r.Again <= 0 || r.Path != v.Path) {
				t.Fatalf("SetUp = %+v, %v", r, err)
			}
			if err != nil {
				return
			}
			if got := seen(t, v.Path); got != "k=one" {
				t.Errorf("files %q", got)
			}
			v.Found, v.Remount = false, true
			if _, err := p.SetUp(t.Context(), v); !errors.Is(err, ErrNotFound) {
				t.Errorf("the next look: %v, want %v", err, ErrNotFound)
			}
			source["Secret/ns/o"] = object("2", "k=two")
			source["ConfigMap/ns/o"] = source["Secret/ns/o"]
			setUp(t, p, v)
			if got := seen(t, v.Path); got != "k=two" {
				t.Errorf("files %q after the object came again", got)
			}
		})
	}
}

func TestContentEveryMountCallMayFail(t *testing.T) {
	for _, way := range []struct{ crash, after bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		for failAt := 1; failAt < 10; failAt++ {
			m := &plugintest.MountMemory{Fail: plugintest.FailMountAt(failAt, way.crash), After: way.after}
			p := plugin(t, ContentSecret, ContentConfig{Mounter: m, Source: objects{"Secret/ns/x": object("1", "a=1")}})
			v := contentVolume(t, v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "x", DefaultMode: &mode644}})
			if _, err := p.SetUp(t.Context(), v); err == nil {
				again := *v
				again.Remount = true
				_, _ = p.SetUp(t.Context(), &again)
				if got := seen(t, v.Path); got != "a=1" {
					t.Errorf("fault %d: %q", failAt, got)
				}
			}
			_ = p.TearDown(t.Context(), v)
			m.Fail = nil
			setUp(t, p, v)
			if got := seen(t, v.Path); got != "a=1" {
				t.Errorf("fault %d: %q", failAt, got)
			}
			must(t, p.TearDown(t.Context(), v))
			if table, err := m.Table(t.Context()); err != nil || len(table) > 0 {
				t.Errorf("fault %d: leaked %v (%v)", failAt, table, err)
			}
		}
	}
}

func TestPlacesForOtherVolumes(t *testing.T) {
	src := objects{"ConfigMap/ns/x": object("1", "a=1")}
	p := plugin(t, ContentConfigMap, ContentConfig{Source: src})
	for _, below := range [][]string{{"../x"}, {"..x"}, {"/x"}, {""}} {
		v := contentVolume(t, configMap("x"))
		v.Below = below
		if _, err := p.SetUp(t.Context(), v); err == nil {
			t.Errorf("%q is accepted", below)
		}
	}
	v := contentVolume(t, configMap("x"))
	v.Spec.Volume.ConfigMap.Items = []v1.KeyToPath{item("a", "d/a")}
	v.Below = []string{"other", "deep/er", "d/nested"}
	for range 2 {
		setUp(t, p, v)
		for _, d := range v.Below {
			if info, err := os.Stat(filepath.Join(v.Path, d)); err != nil || !info.IsDir() || info.Mode().Perm() != 0o755 {
				t.Errorf("%s: %v (%v)", d, info, err)
			}
		}
		v.Remount = true
		src["ConfigMap/ns/x"] = object("2", "a=2")
	}
	if got := seen(t, v.Path); got != "d/a=2" {
		t.Errorf("%q", got)
	}
	// The place stays when the files around it go.
	v.Spec.Volume.ConfigMap.Items = []v1.KeyToPath{item("a", "a")}
	setUp(t, p, v)
	if info, err := os.Stat(filepath.Join(v.Path, "d/nested")); err != nil || !info.IsDir() {
		t.Errorf("%v (%v)", info, err)
	}
}

func TestObjectsOfTheAPI(t *testing.T) {
	cm := &v1.ConfigMap{Data: map[string]string{"a": "1"}, BinaryData: map[string][]byte{"b": {0}}}
	secret := &v1.Secret{Data: map[string][]byte{"a": []byte("1")}}
	one := ObjectOfConfigMap(cm)
	if len(one.Data) != 2 || string(one.Data["a"]) != "1" || string(one.Data["b"]) != "\x00" || one.Version == "" {
		t.Errorf("%+v", one)
	}
	if again := ObjectOfConfigMap(cm); again.Version != one.Version {
		t.Error("the same content has another version")
	}
	cm.Data["a"] = "2"
	if ObjectOfConfigMap(cm).Version == one.Version {
		t.Error("another content has the same version")
	}
	cm.UID, cm.ResourceVersion = "u", "7"
	before := ObjectOfConfigMap(cm)
	cm.ResourceVersion = "8"
	if before.Version == ObjectOfConfigMap(cm).Version {
		t.Error("another resource version is the same")
	}
	if o := ObjectOfSecret(secret); string(o.Data["a"]) != "1" || o.Version == "" {
		t.Errorf("%+v", o)
	}
}

func field(path, ref string) v1.DownwardAPIVolumeFile {
	return v1.DownwardAPIVolumeFile{Path: path, FieldRef: &v1.ObjectFieldSelector{FieldPath: ref}}
}

func res(path, container, ref, divisor string) v1.DownwardAPIVolumeFile {
	f := v1.DownwardAPIVolumeFile{Path: path, ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: container, Resource: ref}}
	if divisor != "" {
		f.ResourceFieldRef.Divisor = resource.MustParse(divisor)
	}
	return f
}

func TestDownward(t *testing.T) {
	allocatable := v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}
	own := field("f", "metadata.uid")
	own.Mode = new(int32(0o400))
	for _, tc := range []struct {
		file v1.DownwardAPIVolumeFile
		want string // "error": one
	}{
		{field("f", "metadata.name"), "f=p"}, {field("f", "metadata.namespace"), "f=ns"}, {own, "f=u 400"},
		{field("f", "metadata.labels"), "f=a=\"1\"\nb=\"2\""}, {field("f", "metadata.annotations"), `f=k="say \"hi\"\n"`},
		{field("f", "metadata.labels['a']"), "f=1"}, {field("f", "metadata.labels['none']"), "f="}, {field("f", "metadata.annotations['k']"), "f=say \"hi\"\n"},
		{field("d//f", "metadata.name"), "d/f=p"},
		{field("f", "spec.nodeName"), "error"}, {field("f", "metadata.labels['a"), "error"}, {field("../f", "metadata.name"), "error"}, {v1.DownwardAPIVolumeFile{Path: "f"}, "error"},
		{res("f", "c", "limits.cpu", ""), "f=2"}, {res("f", "c", "limits.cpu", "1m"), "f=1500"},
		{res("f", "c", "limits.memory", "1Mi"), "f=1024"}, {res("f", "c", "requests.memory", "1Mi"), "f=100"}, {res("f", "c", "requests.cpu", ""), "f=0"},
		{res("f", "none", "limits.cpu", ""), "error"}, {res("f", "c", "limits.pods", ""), "error"}, {res("f", "c", "cpu", ""), "error"}, {res("f", "c", "limits.cpu", "-1"), "error"},
	} {
		p := plugin(t, contentDownwardAPI, ContentConfig{Allocatable: func() v1.ResourceList { return allocatable }})
		v := contentVolume(t, v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{tc.file}, DefaultMode: &mode644}})
		_, err := p.SetUp(t.Context(), v)
		if (err != nil) != (tc.want == "error") {
			t.Errorf("%+v: %v", tc.file, err)
		}
		if err == nil {
			if got := seen(t, v.Path); got != tc.want {
				t.Errorf("%+v: %q, want %q", tc.file, got, tc.want)
			}
		}
	}
}

func TestDownwardChanges(t *testing.T) {
	p := plugin(t, contentDownwardAPI, ContentConfig{})
	v := contentVolume(t, v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{DefaultMode: &mode644, Items: []v1.DownwardAPIVolumeFile{field("a", "metadata.annotations"), field("n", "metadata.name")}}})
	setUp(t, p, v)
	v.Remount = true
	first, err := os.Readlink(filepath.Join(v.Path, "..data"))
	must(t, err)
	same := pod()
	same.Labels = map[string]string{"new": "label"} // not in the volume
	if p.Stale(v.Spec, v.Pod, same) {
		t.Error("stale without a change that shows")
	}
	v.Pod = same
	setUp(t, p, v)
	if now, err := os.Readlink(filepath.Join(v.Path, "..data")); err != nil || now != first {
		t.Errorf("written again (%v)", err)
	}
	other := pod()
	other.Annotations = map[string]string{"k": "new"}
	if !p.Stale(v.Spec, v.Pod, other) {
		t.Error("not stale")
	}
	v.Pod = other
	setUp(t, p, v)
	if got := seen(t, v.Path); got != `a=k="new"; n=p` {
		t.Errorf("%q", got)
	}
}

// authority has tokens, bundles and certificates.
type authority struct {
	asked  authv1.TokenRequestSpec
	forgot []types.UID
	err    error

	forgotVolumes []string
}

func (a *authority) Token(_ context.Context, ns, sa string, spec authv1.TokenRequestSpec) (Token, error) {
	a.asked = spec
	return Token{Value: "token of " + ns + "/" + sa, Refresh: 10 * time.Minute}, a.err
}
func (a *authority) Forget(uid types.UID) { a.forgot = append(a.forgot, uid) }
func (a *authority) ForgetVolume(uid types.UID, volume string) {
	a.forgotVolumes = append(a.forgotVolumes, string(uid)+"/"+volume)
}
func (a *authority) Bundle(_ context.Context, b Bundle) ([]byte, error) {
	if b.Name == "none" {
		return nil, ErrNotFound
	}
	return []byte("PEM of " + b.Name + b.Signer), a.err
}
func (a *authority) Certificate(_ context.Context, _ *v1.Pod, volume string, i int) ([]byte, []byte, error) {
	return []byte("key "), []byte(fmt.Sprint("chain ", volume, i)), a.err
}

func projected(sources ...v1.VolumeProjection) v1.VolumeSource {
	return v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: sources, DefaultMode: &mode644}}
}

func allSources() []v1.VolumeProjection {
	ref := v1.LocalObjectReference{Name: "x"}
	return []v1.VolumeProjection{
		{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: ref}},
		{Secret: &v1.SecretProjection{LocalObjectReference: ref, Items: []v1.KeyToPath{item("a", "./a", 0o400)}}},
		{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{field("name", "metadata.name")}}},
		{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token", Audience: "vault", ExpirationSeconds: new(int64(3600))}},
		{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Path: "ca", Name: new("root")}},
		{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Path: "none", Name: new("none"), Optional: new(true)}},
		{PodCertificate: &v1.PodCertificateProjection{SignerName: "s", CredentialBundlePath: "both", KeyPath: "key", CertificateChainPath: "chain"}},
	}
}

func TestProjected(t *testing.T) {
	a := &authority{}
	src := objects{"ConfigMap/ns/x": object("1", "a=of the map", "b=2"), "Secret/ns/x": object("1", "a=of the secret")}
	p := plugin(t, ContentProjected, ContentConfig{Source: src, Tokens: a, Bundles: a, Certificates: a})
	v := contentVolume(t, projected(allSources()...))
	r := setUp(t, p, v)
	const want = "a=of the secret 400; b=2; both=key chain v6; ca=PEM of root; chain=chain v6; key=key ; name=p; none=; token=token of ns/sa"
	if got := seen(t, v.Path); got != want {
		t.Errorf("%q\nwant %q", got, want)
	}
	if r.Again != 10*time.Minute || !r.ReadOnly {
		t.Errorf("%+v", r)
	}
	if b := a.asked.BoundObjectRef; b == nil || *b != (authv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u"}) || !slices.Equal(a.asked.Audiences, []string{"vault"}) || *a.asked.ExpirationSeconds != 3600 {
		t.Errorf("asked for %+v", a.asked)
	}
	if got, want := fmt.Sprint(p.Sources(v.Spec, v.Pod)), "[{ConfigMap ns x} {Secret ns x} {ClusterTrustBundle  root} {ClusterTrustBundle  none}]"; got != want {
		t.Errorf("sources %s, want %s", got, want)
	}
	must(t, p.TearDown(t.Context(), v))
	if !slices.Equal(a.forgot, []types.UID{"u"}) {
		t.Errorf("forgot %q", a.forgot)
	}
	if !slices.Equal(a.forgotVolumes, []string{"u/v"}) {
		t.Errorf("forgot volumes %q", a.forgotVolumes)
	}
}

// Credentials are for the pod's user, or its group, as soon as it says who.
func TestCredentials(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root gives files away")
	}
	user, group := int64(1000), int64(2000)
	for _, tc := range []struct {
		user, group *int64
		mode        fs.FileMode
	}{{nil, nil, 0o644}, {&user, nil, 0o600}, {nil, &group, 0o640}, {&user, &group, 0o640}} {
		p := plugin(t, ContentProjected, ContentConfig{Tokens: &authority{}})
		v := contentVolume(t, projected(v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}}))
		v.FSUser, v.FSGroup = tc.user, tc.group
		setUp(t, p, v)
		info, err := os.Stat(filepath.Join(v.Path, "token"))
		must(t, err)
		st := info.Sys().(*syscall.Stat_t)
		if info.Mode() != tc.mode || tc.user != nil && int64(st.Uid) != *tc.user || tc.group != nil && int64(st.Gid) != *tc.group {
			t.Errorf("user %v, group %v: %v %d:%d", tc.user, tc.group, info.Mode(), st.Uid, st.Gid)
		}
	}
}

// All mistakes are told at once, and nothing is written.
func TestProjectedErrors(t *testing.T) {
	all := allSources()
	all[4].ClusterTrustBundle = &v1.ClusterTrustBundleProjection{Path: "ca"}
	all = append(all, v1.VolumeProjection{})
	v := contentVolume(t, projected(all...))
	_, err := plugin(t, ContentProjected, ContentConfig{}).SetUp(t.Context(), v)
	for i := range all {
		if want := fmt.Sprintf("projected source %d: ", i); i != 2 && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	_, err = plugin(t, ContentProjected, ContentConfig{Source: objects{}, Tokens: &authority{err: errDown}, Bundles: &authority{err: errDown}, Certificates: &authority{err: errDown}}).SetUp(t.Context(), v)
	if !errors.Is(err, errDown) || !errors.Is(err, ErrNotFound) {
		t.Errorf("error %v", err)
	}
	if _, err := os.Lstat(v.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("written (%v)", err)
	}
}

// On a real kernel: in memory, and mounted again after a restart.
func TestMemoryOnAKernel(t *testing.T) {
	plugintest.RequireMounts(t)
	k := &mount.Kernel{}
	p, err := NewContent(ContentSecret, ContentConfig{Mounter: k, Source: objects{"Secret/ns/x": object("1", "a=1")}})
	must(t, err)
	v := contentVolume(t, v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "x", DefaultMode: &mode644}})
	for range 2 {
		setUp(t, p, v)
		found, err := mount.Find(t.Context(), k, v.Path)
		must(t, err)
		if len(found) != 1 || found[0].Type != "tmpfs" || seen(t, v.Path) != "a=1" {
			t.Errorf("mounted %v", found)
		}
		must(t, k.Unmount(t.Context(), v.Path, mount.Plain))
		v.Found = true
	}
	setUp(t, p, v)
	must(t, p.TearDown(t.Context(), v))
	if found, err := mount.Find(t.Context(), k, v.Path); err != nil || len(found) > 0 {
		t.Errorf("leaked %v (%v)", found, err)
	}
}
