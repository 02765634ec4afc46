//go:build linux

package cdi_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	oci "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/nodewright/nodewright/internal/cdi"
)

// machine has directories of specifications.
type machine struct {
	t    *testing.T
	dirs []string
	reg  *cdi.Registry
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t}
	for _, name := range []string{"etc", "run"} {
		m.dirs = append(m.dirs, filepath.Join(t.TempDir(), name))
	}
	var err error
	if m.reg, err = cdi.New(cdi.Config{Dirs: m.dirs}); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *machine) write(dir int, name, text string) string {
	m.t.Helper()
	path := filepath.Join(m.dirs[dir], name)
	m.must(os.MkdirAll(m.dirs[dir], 0o755))
	m.must(os.WriteFile(path, []byte(text), 0o644))
	return path
}

func (m *machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// spec is a container's without devices.
func spec() *oci.Spec {
	return &oci.Spec{
		Version: "1.0.2",
		Process: &oci.Process{Env: []string{"PATH=/bin"}, User: oci.User{AdditionalGids: []uint32{4}}},
		Mounts:  []oci.Mount{{Destination: "/proc", Type: "proc", Source: "proc"}},
		Linux:   &oci.Linux{Resources: &oci.LinuxResources{Devices: []oci.LinuxDeviceCgroup{{Access: "rwm"}}}},
	}
}

func (m *machine) inject(names ...string) (*oci.Spec, error) {
	m.t.Helper()
	s := spec()
	err := m.reg.Inject(m.t.Context(), s, names)
	if err != nil && !reflect.DeepEqual(s, spec()) {
		m.t.Errorf("the configuration changed in spite of %v: %+v", err, s)
	}
	return s, err
}

// refused expects an error that has all of some words.
func (m *machine) refused(device string, words ...string) {
	m.t.Helper()
	_, err := m.inject(device)
	if err == nil {
		m.t.Fatalf("%s: injected, want an error with %q", device, words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			m.t.Errorf("%s: %v; want %q in it", device, err, w)
		}
	}
}

const full = `
cdiVersion: "1.1.0"
kind: vendor.com/gpu
containerEdits:
  env: [ALL=1]
devices:
- name: "0"
  containerEdits:
    env: [GPU=0, PATH=/gpu]
    deviceNodes: [{path: /dev/gpu0, hostPath: /dev/null, permissions: rw, uid: 7}]
    mounts: [{hostPath: /lib/gpu, containerPath: /usr/lib/gpu, options: [ro, nosuid, rbind]}]
    hooks:
    - {hookName: createRuntime, path: /usr/bin/a, args: [a, b], env: [X=1], timeout: 3}
    - {hookName: createContainer, path: /usr/bin/b}
    - {hookName: startContainer, path: /usr/bin/c}
    - {hookName: poststart, path: /usr/bin/d}
    - {hookName: poststop, path: /usr/bin/e}
    - {hookName: prestart, path: /usr/bin/f}
    additionalGids: [0, 44]
    intelRdt: {closID: fast, l3CacheSchema: "L3:0=f", memBwSchema: "MB:0=20", schemata: ["L2:0=3"], enableMonitoring: true}
    netDevices: [{hostInterfaceName: eth7, name: net0}]
- name: "1"
  containerEdits: {env: [GPU1=1]}
`

func TestEverythingThatADeviceBrings(t *testing.T) {
	m := newMachine(t)
	m.write(0, "gpu.yaml", full)
	s, err := m.inject("vendor.com/gpu=0", "vendor.com/gpu=1", "vendor.com/gpu=0")
	m.must(err)
	if want := []string{"PATH=/gpu", "ALL=1", "GPU=0", "GPU1=1"}; !reflect.DeepEqual(s.Process.Env, want) {
		t.Errorf("environment %q, want %q", s.Process.Env, want)
	}
	if len(s.Linux.Devices) != 1 {
		t.Fatalf("devices %+v, want one", s.Linux.Devices)
	}
	if d := s.Linux.Devices[0]; d.Path != "/dev/gpu0" || d.Type != "c" || d.Major != 1 || d.Minor != 3 || *d.UID != 7 {
		t.Errorf("device %+v", d)
	}
	rules := s.Linux.Resources.Devices
	if len(rules) != 2 || !rules[1].Allow || *rules[1].Major != 1 || *rules[1].Minor != 3 || rules[1].Access != "rw" {
		t.Errorf("rules for devices %+v", rules)
	}
	if want := (oci.Mount{Destination: "/usr/lib/gpu", Source: "/lib/gpu", Options: []string{"ro", "nosuid", "rbind"}}); !reflect.DeepEqual(s.Mounts[1], want) {
		t.Errorf("mounts %+v, want %+v last", s.Mounts, want)
	}
	h := s.Hooks
	if len(h.CreateRuntime) != 1 || !reflect.DeepEqual(h.CreateRuntime[0], oci.Hook{Path: "/usr/bin/a", Args: []string{"a", "b"}, Env: []string{"X=1"}, Timeout: new(3)}) {
		t.Errorf("createRuntime %+v", h.CreateRuntime)
	}
	if len(h.CreateContainer) != 1 || len(h.StartContainer) != 1 || len(h.Poststart) != 1 || len(h.Poststop) != 1 || len(h.Prestart) != 1 { //nolint:staticcheck // specifications may have it
		t.Errorf("hooks %+v", h)
	}
	if want := []uint32{4, 44}; !reflect.DeepEqual(s.Process.User.AdditionalGids, want) {
		t.Errorf("groups %v, want %v", s.Process.User.AdditionalGids, want)
	}
	if r := s.Linux.IntelRdt; r == nil || r.ClosID != "fast" || r.L3CacheSchema != "L3:0=f" || r.MemBwSchema != "MB:0=20" || len(r.Schemata) != 1 || !r.EnableMonitoring {
		t.Errorf("resctrl %+v", r)
	}
	if n := s.Linux.NetDevices["eth7"]; n.Name != "net0" {
		t.Errorf("network devices %+v", s.Linux.NetDevices)
	}
}

// In a user namespace, files of a bind belong to whom they belong to on the host.
func TestMountsOfAUserNamespace(t *testing.T) {
	m := newMachine(t)
	m.write(0, "gpu.yaml", full)
	s := spec()
	s.Linux.Namespaces = []oci.LinuxNamespace{{Type: oci.UserNamespace, Path: "/x"}}
	m.must(m.reg.Inject(t.Context(), s, []string{"vendor.com/gpu=0"}))
	if o := s.Mounts[1].Options; o[len(o)-1] != "ridmap" {
		t.Errorf("options %q, want ridmap at their end", o)
	}
}

func TestDevicesOfAKind(t *testing.T) {
	m := newMachine(t)
	list := func(kind string) []cdi.Device {
		t.Helper()
		found, err := m.reg.Devices(t.Context(), kind)
		m.must(err)
		return found
	}
	if found := list("vendor.com/gpu"); found != nil {
		t.Errorf("without files: %+v", found)
	}
	m.write(0, "gpu.yaml", full)
	m.write(1, "bad.yaml", "{")
	m.write(1, "other.json", fmt.Sprintf(one, "run"))
	want := []cdi.Device{{Name: "0", Nodes: []string{"/dev/null"}}, {Name: "1"}}
	if found := list("vendor.com/gpu"); !reflect.DeepEqual(found, want) {
		t.Errorf("%+v, want %+v", found, want)
	}
	if found := list("vendor.com/g"); found != nil {
		t.Errorf("of a kind that no file has: %+v", found)
	}
	m.write(1, "again.json", fmt.Sprintf(one, "again")) // in conflict with other.json
	if found := list("vendor.com/x"); found != nil {
		t.Errorf("in two files: %+v", found)
	}
}

func TestVersionsOfTheInterface(t *testing.T) {
	m := newMachine(t)
	for _, version := range []string{"0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"} {
		m.write(0, "x.json", fmt.Sprintf(`{"cdiVersion": %q, "kind": "vendor.com/x", "devices": [{"name": "a", "containerEdits": {"env": ["V=%[1]s"]}}]}`, version))
		s, err := m.inject("vendor.com/x=a")
		if err != nil || s.Process.Env[1] != "V="+version {
			t.Errorf("%s: %v, %v", version, s.Process.Env, err)
		}
	}
}

const one = `{"cdiVersion": "0.6.0", "kind": "vendor.com/x", "devices": [{"name": "a", "containerEdits": {"env": ["FROM=%s"]}}]}`

func TestWhichFileCounts(t *testing.T) {
	m := newMachine(t)
	from := func(want string) {
		t.Helper()
		s, err := m.inject("vendor.com/x=a")
		if err != nil || s.Process.Env[1] != "FROM="+want {
			t.Errorf("%q, %v; want it from %s", s.Process.Env, err, want)
		}
	}
	m.refused("vendor.com/x=a", `device "vendor.com/x=a" is unknown`)
	etc := m.write(0, "a.json", fmt.Sprintf(one, "etc"))
	from("etc")
	// However short after the last look, and of the same size.
	m.write(0, "a.json", fmt.Sprintf(one, "ETC"))
	from("ETC")
	run := m.write(1, "a.yaml", fmt.Sprintf(one, "run"))
	from("run")
	other := m.write(1, "b.json", fmt.Sprintf(one, "other"))
	m.refused("vendor.com/x=a", run, other)
	m.must(os.Remove(other))
	from("run")
	m.must(os.Remove(run))
	from("ETC")
	// Neither a name of another kind nor a directory counts.
	m.write(1, "c.txt", fmt.Sprintf(one, "txt"))
	m.must(os.Mkdir(filepath.Join(m.dirs[1], "d.json"), 0o755))
	from("ETC")
	m.must(os.Remove(etc))
	m.refused("vendor.com/x=a", "unknown")
}

// What has not changed for long is not read again.
func TestWhatIsReadOnce(t *testing.T) {
	m := newMachine(t)
	path := m.write(0, "a.json", fmt.Sprintf(one, "etc"))
	old := time.Now().Add(-time.Hour)
	m.must(os.Chtimes(path, old, old))
	if _, err := m.inject("vendor.com/x=a"); err != nil {
		t.Fatal(err)
	}
	// The same length and times, and another ctime.
	m.write(0, "a.json", fmt.Sprintf(one, "ETC"))
	m.must(os.Chtimes(path, old, old))
	if s, err := m.inject("vendor.com/x=a"); err != nil || s.Process.Env[1] != "FROM=ETC" {
		t.Errorf("%q, %v", s.Process.Env, err)
	}
}

// A device whose number changes has the new one: what is kept of its file is not
// completed.
func TestADeviceThatChanges(t *testing.T) {
	m := newMachine(t)
	link := filepath.Join(t.TempDir(), "node")
	m.write(0, "a.json", `{"cdiVersion": "0.6.0", "kind": "vendor.com/x", "devices": [{"name": "a", "containerEdits": {"deviceNodes": [{"path": "/dev/a", "hostPath": "`+link+`"}]}}]}`)
	m.refused("vendor.com/x=a", `device "vendor.com/x=a"`, filepath.Join(m.dirs[0], "a.json"), link)
	if err := os.WriteFile(link, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m.refused("vendor.com/x=a", "not a device node")
}

func TestFilesThatAreSetAside(t *testing.T) {
	edits := func(s string) string {
		return `{"cdiVersion": "1.1.0", "kind": "vendor.com/x", "devices": [{"name": "a", "containerEdits": {` + s + `}}]}`
	}
	laughs := edits(`"env": [&x "A=` + strings.Repeat("y", 1<<16) + `"` + strings.Repeat(", *x", 2000) + "]")
	for name, c := range map[string]struct{ text, why string }{
		"empty":                {"", "EOF"},
		"null":                 {"null", "empty"},
		"no YAML":              {"{", "did not find"},
		"unknown field":        {`{"cdiVersion": "0.6.0", "kind": "vendor.com/x", "device": []}`, "device"},
		"no version":           {`{"kind": "vendor.com/x", "devices": [{"name": "a"}]}`, "version"},
		"later version":        {`{"cdiVersion": "9.0.0", "kind": "vendor.com/x", "devices": [{"name": "a"}]}`, "9.0.0"},
		"older than its words": {`{"cdiVersion": "0.3.0", "kind": "vendor.com/x", "devices": [{"name": "a", "containerEdits": {"additionalGids": [1]}}]}`, "0.7.0"},
		"no kind":              {`{"cdiVersion": "0.6.0", "devices": [{"name": "a"}]}`, "kind"},
		"no devices":           {`{"cdiVersion": "0.6.0", "kind": "vendor.com/x"}`, "at least one"},
		"name":                 {`{"cdiVersion": "0.6.0", "kind": "vendor.com/x", "devices": [{"name": "a b"}]}`, "devices[0].name"},
		"twice":                {`{"cdiVersion": "0.6.0", "kind": "vendor.com/x", "devices": [{"name": "a"}, {"name": "a"}]}`, "twice"},
		"node null":            {edits(`"deviceNodes": [null]`), "null"},
		"mount null":           {edits(`"mounts": [null]`), "null"},
		"hook null":            {edits(`"hooks": [null]`), "null"},
		"interface null":       {edits(`"netDevices": [null]`), "null"},
		"node":                 {edits(`"deviceNodes": [{"path": "dev/x"}]`), "deviceNodes[0].path"},
		"host's node":          {edits(`"deviceNodes": [{"path": "/dev/x", "hostPath": "x"}]`), "hostPath"},
		"type":                 {edits(`"deviceNodes": [{"path": "/dev/x", "type": "z"}]`), "type"},
		"root":                 {edits(`"mounts": [{"hostPath": "/x", "containerPath": "/x/.."}]`), "mounts[0].containerPath"},
		"hook's path":          {edits(`"hooks": [{"hookName": "prestart", "path": "sh"}]`), "hooks[0].path"},
		"hook's name":          {edits(`"hooks": [{"hookName": "never", "path": "/bin/sh"}]`), "never"},
		"hook's time":          {edits(`"hooks": [{"hookName": "prestart", "path": "/bin/sh", "timeout": 0}]`), "hooks[0].timeout"},
		"interface":            {edits(`"netDevices": [{"hostInterfaceName": "a234567890123456", "name": "x"}]`), "at most 15"},
		"variable":             {edits(`"env": ["=x"]`), "=x"},
		"NUL":                  {edits(`"env": ["x=a\u0000b"]`), "NUL"},
		"large":                {strings.Repeat(" ", 4<<20+1), "too large"},
		"many values":          {"x: [" + strings.Repeat("a,", 200_000) + "]", "values"},
		"a billion laughs":     {laughs, "aliases"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			path := m.write(0, "bad.yaml", c.text)
			m.write(0, "good.json", `{"cdiVersion": "0.6.0", "kind": "vendor.com/y", "devices": [{"name": "b", "containerEdits": {"env": ["Y=1"]}}]}`)
			m.refused("vendor.com/x=a", `"vendor.com/x=a"`, path, c.why)
			if _, err := m.inject("vendor.com/y=b"); err != nil { // the others are there
				t.Error(err)
			}
		})
	}
}

func TestNamesOfDevices(t *testing.T) {
	m := newMachine(t)
	for _, name := range []string{"", "gpu", "vendor.com/gpu", "vendor.com/gpu=", "/dev/null", "../x=y"} {
		m.refused(name, "want vendor/class=name")
	}
}

// Whoever writes a specification decides what runs as root.
func TestWhoseFilesCount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to have files of another user")
	}
	for name, c := range map[string]struct {
		change func(m *machine, path string)
		why    string
	}{
		"file of another":          {func(m *machine, path string) { m.must(os.Chown(path, 1000, 0)) }, "belongs to user 1000"},
		"file that others write":   {func(m *machine, path string) { m.must(os.Chmod(path, 0o666)) }, "writable"},
		"file that a group writes": {func(m *machine, path string) { m.must(os.Chmod(path, 0o664)) }, "writable"},
		"directory of another":     {func(m *machine, _ string) { m.must(os.Chown(m.dirs[0], 1000, 0)) }, "belongs to user 1000"},
		"directory for all":        {func(m *machine, _ string) { m.must(os.Chmod(m.dirs[0], 0o777)) }, "writable"},
		"directory like /tmp":      {func(m *machine, _ string) { m.must(os.Chmod(m.dirs[0], 0o777|os.ModeSticky)) }, "writable"},
		"directory above":          {func(m *machine, _ string) { m.must(os.Chown(filepath.Dir(m.dirs[0]), 1000, 0)) }, "belongs to user 1000"},
		"link to one of another": {func(m *machine, path string) {
			other := filepath.Join(m.t.TempDir(), "x.json")
			m.must(os.WriteFile(other, fmt.Appendf(nil, one, "other"), 0o644))
			m.must(os.Chown(filepath.Dir(other), 1000, 0))
			m.must(os.Remove(path))
			m.must(os.Symlink(other, path))
		}, "belongs to user 1000"},
		"pipe": {func(m *machine, path string) {
			m.must(os.Remove(path))
			m.must(os.Symlink("/dev/zero", path))
		}, "not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			path := m.write(0, "a.json", fmt.Sprintf(one, "etc"))
			if _, err := m.inject("vendor.com/x=a"); err != nil {
				t.Fatal(err)
			}
			c.change(m, path)
			m.refused("vendor.com/x=a", c.why)
		})
	}
}

func TestConfig(t *testing.T) {
	if _, err := cdi.New(cdi.Config{Dirs: []string{"/etc/cdi", "cdi"}}); err == nil || !strings.Contains(err.Error(), `Config.Dirs[1] is "cdi"`) {
		t.Error(err)
	}
	r, err := cdi.New(cdi.Config{})
	if err != nil || !reflect.DeepEqual(r.Dirs(), cdi.Dirs()) {
		t.Errorf("%q, %v", r.Dirs(), err)
	}
}

// A large file that many devices are taken of ends in an error, not in a
// configuration that no runtime reads.
// In a bubble no time passes while it is made, however slow the machine is.
func TestTooMuchForOneContainer(t *testing.T) {
	synctest.Test(t, testTooMuch)
}

func testTooMuch(t *testing.T) {
	m := newMachine(t)
	var text strings.Builder
	text.WriteString(`{"cdiVersion": "0.6.0", "kind": "vendor.com/x", "devices": [`)
	var names []string
	for i := range 9 {
		if i > 0 {
			text.WriteString(",")
		}
		name := fmt.Sprintf("d%d", i)
		fmt.Fprintf(&text, `{"name": %q, "containerEdits": {"env": ["V%d=%s"]}}`, name, i, strings.Repeat("x", 400<<10))
		names = append(names, "vendor.com/x="+name)
	}
	text.WriteString("]}")
	for i := range 3 {
		m.write(0, fmt.Sprintf("x%d.json", i), strings.ReplaceAll(strings.ReplaceAll(text.String(), "vendor.com/x", fmt.Sprintf("vendor.com/x%d", i)), `"V`, fmt.Sprintf(`"V%d_`, i)))
	}
	var all []string
	for i := range 3 {
		for _, n := range names {
			all = append(all, strings.ReplaceAll(n, "vendor.com/x", fmt.Sprintf("vendor.com/x%d", i)))
		}
	}
	if _, err := m.inject(all...); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Error(err)
	}
}
