package plugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/volumemgr"

	"github.com/nodewright/nodewright/volumemgr/mount"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

const (
	target   = "iqn.2001-04.com.example:disk"
	password = "s3cret-of-all"
)

// iscsiMachine is a node with iscsiadm, as files and answers.
type iscsiMachine struct {
	t        testing.TB
	root     string
	sessions []string // portals
	luns     int      // each target has so many
	mpath    bool
	fail     func(args string) error
	ran      []string
}

func (m *iscsiMachine) path(elements ...string) string {
	return filepath.Join(append([]string{m.root}, elements...)...)
}

func (m *iscsiMachine) file(path, text string) {
	must(m.t, os.MkdirAll(filepath.Dir(m.path(path)), 0o755))
	must(m.t, os.WriteFile(m.path(path), []byte(text), 0o600))
}

func sdName(portal string, lun int) string {
	return fmt.Sprintf("sd%s%d", strings.NewReplacer(".", "", ":", "", "[", "", "]", "").Replace(portal), lun)
}

// show makes a portal's disks.
func (m *iscsiMachine) show(portal string) {
	for l := range m.luns {
		d := sdName(portal, l)
		m.file("sys/block/"+d+"/device/delete", "")
		must(m.t, os.MkdirAll(m.path("sys/block", d, "holders"), 0o755))
		if m.mpath {
			m.file("sys/block/dm-0/dm/uuid", "mpath-36001\n")
			m.file("sys/block/"+d+"/holders/dm-0", "")
		}
		must(m.t, os.MkdirAll(m.path("dev/disk/by-path"), 0o755))
		_ = os.Remove(m.path("dev/disk/by-path", link(portal, l)))
		must(m.t, os.Symlink("../../"+d, m.path("dev/disk/by-path", link(portal, l))))
	}
}

func link(portal string, lun int) string {
	return fmt.Sprintf("ip-%s-iscsi-%s-lun-%d", portal, target, lun)
}

func after(args []string, flag string) string {
	if i := slices.Index(args, flag); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

func (m *iscsiMachine) run(_ context.Context, program string, args ...string) (string, int, error) {
	line := program + " " + strings.Join(args, " ")
	m.ran = append(m.ran, line)
	if m.fail != nil {
		if err := m.fail(line); err != nil {
			return "", 0, err
		}
	}
	portal := after(args, "-p")
	switch {
	case program == "blkid":
		return "TYPE=ext4\n", 0, nil
	case program != "iscsiadm":
		return "", 0, nil
	case slices.Equal(args, []string{"-m", "session"}):
		if len(m.sessions) == 0 {
			return "iscsiadm: No active sessions.", noObject, nil
		}
		out := ""
		for i, p := range m.sessions {
			out += fmt.Sprintf("tcp: [%d] %s,1 %s (non-flash)\n", i, p, target)
		}
		return out, 0, nil
	case after(args, "-m") == "discoverydb" && after(args, "-o") == "new":
		m.file("etc/iscsi/send_targets/"+comma(portal)+"/st_config", "# BEGIN RECORD\ndiscovery.startup = manual\n"+end+"\n")
	case slices.Contains(args, "--discover"):
		m.file("etc/iscsi/nodes/"+target+"/"+comma(portal)+",1/"+after(args, "-I"), "# BEGIN RECORD\nnode.name = x\nnode.session.auth.authmethod = None\n"+end+"\n")
	case slices.Contains(args, "--login"):
		if slices.Contains(m.sessions, portal) {
			return "", exists, nil
		}
		m.sessions = append(m.sessions, portal)
		m.show(portal)
	case slices.Contains(args, "--logout"):
		if !slices.Contains(m.sessions, portal) {
			return "", noObject, nil
		}
		m.sessions = slices.DeleteFunc(m.sessions, func(s string) bool { return s == portal })
		for l := range m.luns {
			_ = os.Remove(m.path("dev/disk/by-path", link(portal, l)))
		}
	case after(args, "-o") == "show":
		return "# BEGIN RECORD\niface.iscsi_ifacename = default\niface.transport_name = tcp\niface.mtu = 0\niface.hwaddress = <empty>\n", 0, nil
	}
	return "", 0, nil
}

// secrets returns the same secret for every name.
type secrets map[string][]byte

func (s secrets) Get(_ context.Context, kind, namespace, name string) (*ContentObject, error) {
	if kind != "Secret" || namespace != "ns" || name != "chap" {
		return nil, ErrNotFound
	}
	return &ContentObject{Data: s}, nil
}

type rig struct {
	*lunPlugin
	machine *iscsiMachine
	mounts  *plugintest.MountMemory
	root    string
}

func iscsiNewRig(t testing.TB) *rig {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	r := &rig{machine: &iscsiMachine{t: t, root: filepath.Join(root, "machine"), luns: 1}, mounts: &plugintest.MountMemory{}, root: root}
	r.again(t)
	return r
}

// again is another process.
func (r *rig) again(t testing.TB) {
	t.Helper()
	var err error
	r.lunPlugin, err = newISCSI(iscsiConfig{Mounter: r.mounts, Root: r.root, Machine: r.machine.root, Run: r.machine.run, Source: secrets{
		"node.session.auth.username": []byte("me"), "node.session.auth.password": []byte(password),
		"discovery.sendtargets.auth.username": []byte("me"), "discovery.sendtargets.auth.password": []byte(password),
	}})
	must(t, err)
}

func volumeOf(s v1.ISCSIPersistentVolumeSource) *volumemgr.Spec {
	return &volumemgr.Spec{PersistentVolume: &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: v1.PersistentVolumeSpec{
		PersistentVolumeSource: v1.PersistentVolumeSource{ISCSI: &s},
	}}}
}

func (r *rig) volume(t testing.TB, pod string, s v1.ISCSIPersistentVolumeSource) *volumemgr.Volume {
	t.Helper()
	v := &volumemgr.Volume{
		Spec: volumeOf(s), Name: "pv", Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}},
		Path:     filepath.Join(r.root, "pods", pod, "volumes/kubernetes.io~iscsi/pv"),
		StateDir: filepath.Join(r.root, "pods", pod, "plugins/kubernetes.io~iscsi/pv"),
		Warn:     func(string, string) {},
	}
	d, err := r.Device(v)
	must(t, err)
	v.DevicePath = d.Path
	return v
}

func simple(lun int32) v1.ISCSIPersistentVolumeSource {
	return v1.ISCSIPersistentVolumeSource{TargetPortal: "10.0.0.1", IQN: target, Lun: lun}
}

// Only sources whose fields are valid as arguments and as file names are accepted.
func TestISCSISources(t *testing.T) {
	long := strings.Repeat("a", 300)
	bad := func(change func(*v1.ISCSIPersistentVolumeSource)) v1.ISCSIPersistentVolumeSource {
		s := simple(0)
		change(&s)
		return s
	}
	for name, tc := range map[string]struct {
		source v1.ISCSIPersistentVolumeSource
		portal string // "" is an error
	}{
		"address":            {simple(0), "10.0.0.1:3260"},
		"address with port":  {bad(func(s *v1.ISCSIPersistentVolumeSource) { s.TargetPortal = "10.0.0.1:99" }), "10.0.0.1:99"},
		"IPv6":               {bad(func(s *v1.ISCSIPersistentVolumeSource) { s.TargetPortal = "fd00::1" }), "[fd00::1]:3260"},
		"IPv6 with port":     {bad(func(s *v1.ISCSIPersistentVolumeSource) { s.TargetPortal = "[fd00::1]:99" }), "[fd00::1]:99"},
		"host":               {bad(func(s *v1.ISCSIPersistentVolumeSource) { s.TargetPortal = "storage.example.com" }), "storage.example.com:3260"},
		"no portal":          {bad(func(s *v1.ISCSIPersistentVolumeSource) { s.TargetPortal = "" }), ""},
		"an option":          {bad(func(s *v1.ISCSIPersistentVolumeSource) { s.TargetPortal = "--version" }), ""},
		"a path":             {bad(func(s *v1.ISCSIPersistentVolumeSource) { s.TargetPortal = "../x" }), ""},
		"port 0":             {bad(func(s *v1.ISCSIPersistentVolumeSource) { s.TargetPortal = "a:0" }), ""},
		"another bad portal": {bad(func(s *v1.ISCSIPersistentVolumeSource) { s.Portals = []string{"a b"} }), ""},
		"many portals":       {bad(func(s *v1.ISCSIPersistentVolumeSource) { s.Portals = make([]string, 64) }), ""},
		"no IQN":             {bad(func(s *v1.ISCSIPersistentVolumeSource) { s.IQN = "" }), ""},
		"IQN is an option":   {bad(func(s *v1.ISCSIPersistentVolumeSource) { s.IQN = "--logout" }), ""},
		"IQN with a path":    {bad(func(s *v1.ISCSIPersistentVolumeSource) { s.IQN = "iqn.x/../../y" }), ""},
		"IQN without end":    {bad(func(s *v1.ISCSIPersistentVolumeSource) { s.IQN = "iqn." + long }), ""},
		"LUN below 0":        {bad(func(s *v1.ISCSIPersistentVolumeSource) { s.Lun = -1 }), ""},
		"LUN 256":            {bad(func(s *v1.ISCSIPersistentVolumeSource) { s.Lun = 256 }), ""},
		"interface":          {bad(func(s *v1.ISCSIPersistentVolumeSource) { s.ISCSIInterface = "../x" }), ""},
		"initiator":          {bad(func(s *v1.ISCSIPersistentVolumeSource) { s.InitiatorName = new("-n") }), ""},
		"CHAP, no secret":    {bad(func(s *v1.ISCSIPersistentVolumeSource) { s.SessionCHAPAuth = true }), ""},
	} {
		d, err := iscsiCheck(sourceOf(volumeOf(tc.source)))
		if (err == nil) != (tc.portal != "") {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && d.Portals[0] != tc.portal {
			t.Errorf("%s: portal %s, want %s", name, d.Portals[0], tc.portal)
		}
	}
}

// A disk's life, with another process between all of it: one session, one mount for
// the node, nothing left.
func TestDisk(t *testing.T) {
	r := iscsiNewRig(t)
	a, b := r.volume(t, "a", simple(0)), r.volume(t, "b", simple(0))
	for range 2 {
		must(t, r.MountDevice(t.Context(), a))
		r.again(t)
		for _, v := range []*volumemgr.Volume{a, b} {
			if res, err := r.SetUp(t.Context(), v); err != nil || res.Path != v.Path {
				t.Fatalf("%+v (%v)", res, err)
			}
		}
		r.again(t)
	}
	if got := r.mounts.Log()[0]; got != "mount ext4 "+r.machine.path("dev", sdName("10.0.0.1:3260", 0))+" "+a.DevicePath {
		t.Errorf("mounted %q", got)
	}
	found := *a
	found.Spec, found.Pod = nil, nil
	d, err := r.Device(&found)
	if want := (volumemgr.Device{Name: filepath.Base(filepath.Dir(a.DevicePath)), Path: a.DevicePath}); err != nil || d != want {
		t.Errorf("by its directory: %+v (%v), want %+v", d, err, want)
	}
	if list, err := r.Devices(t.Context()); err != nil || len(list) != 1 || list[0] != d {
		t.Errorf("%+v (%v)", list, err)
	}
	must(t, r.TearDown(t.Context(), &found))
	must(t, r.TearDown(t.Context(), b))
	for range 2 {
		must(t, r.UnmountDevice(t.Context(), d))
	}
	if text, err := os.ReadFile(r.machine.path("sys/block", sdName("10.0.0.1:3260", 0), "device/delete")); err != nil || string(text) != "1" {
		t.Errorf("the disk was not deleted: %q (%v)", text, err)
	}
	if len(r.machine.sessions) > 0 {
		t.Errorf("sessions %q", r.machine.sessions)
	}
	if left, err := os.ReadDir(filepath.Join(r.root, "plugins/kubernetes.io/iscsi")); err != nil || len(left) > 0 {
		t.Errorf("left %v (%v)", left, err)
	}
	if _, err := os.Lstat(a.StateDir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left %s", a.StateDir)
	}
}

// A disk that a pod has still is not taken away.
func TestDeviceInUse(t *testing.T) {
	plugintest.RequireMounts(t)
	k := &mount.Kernel{}
	r := iscsiNewRig(t)
	v := r.volume(t, "a", simple(0))
	must(t, r.MountDevice(t.Context(), v))
	d, err := r.Device(v)
	must(t, err)
	r.lunPlugin, err = newISCSI(iscsiConfig{Mounter: k, Root: r.root, Machine: r.machine.root, Run: r.machine.run})
	must(t, err)
	must(t, k.Mount(t.Context(), mount.FileSystem{Type: "tmpfs", Source: "tmpfs", Target: d.Path}))
	must(t, os.MkdirAll(v.Path, 0o750))
	must(t, k.Bind(t.Context(), mount.Bind{Source: d.Path, Target: v.Path}))
	if err := r.UnmountDevice(t.Context(), d); err == nil || len(r.machine.sessions) != 1 {
		t.Errorf("it was taken away: %v", err)
	}
	must(t, r.TearDown(t.Context(), v))
	must(t, r.UnmountDevice(t.Context(), d))
}

// The secret is in the database, and on no command line, in no record and no error.
func TestSecretsAreNotSeen(t *testing.T) {
	for _, broken := range []bool{false, true} {
		r := iscsiNewRig(t)
		s := simple(0)
		s.SessionCHAPAuth, s.DiscoveryCHAPAuth, s.SecretRef = true, true, &v1.SecretReference{Namespace: "ns", Name: "chap"}
		if broken {
			r.machine.fail = func(line string) error {
				if strings.Contains(line, "--login") {
					return errors.New("no")
				}
				return nil
			}
		}
		v := r.volume(t, "a", s)
		err := r.MountDevice(t.Context(), v)
		if (err != nil) != broken || strings.Contains(fmt.Sprint(err), password) {
			t.Fatal(err)
		}
		for _, line := range r.machine.ran {
			if strings.Contains(line, password) {
				t.Errorf("command line: %s", line)
			}
		}
		record, err := os.ReadFile(filepath.Join(filepath.Dir(v.DevicePath), "target.json"))
		if err != nil || strings.Contains(string(record), password) {
			t.Errorf("record %s (%v)", record, err)
		}
		for path, want := range map[string]string{
			"etc/iscsi/nodes/" + target + "/10.0.0.1,3260,1/default": "node.session.auth.password = " + password + "\n" + end,
			"etc/iscsi/send_targets/10.0.0.1,3260/st_config":         "discovery.sendtargets.auth.password = " + password + "\n" + end,
		} {
			info, err := os.Stat(r.machine.path(path))
			must(t, err)
			b, err := os.ReadFile(r.machine.path(path))
			if err != nil || !strings.Contains(string(b), want) || info.Mode().Perm() != 0o600 || strings.Contains(string(b), "= None") {
				t.Errorf("%s: %q, %v (%v)", path, b, info.Mode(), err)
			}
		}
	}
}

// A session that was there stays; one that volumes of two disks share ends with the
// last.
func TestSessions(t *testing.T) {
	r := iscsiNewRig(t)
	r.machine.luns = 2
	one, two := r.volume(t, "a", simple(0)), r.volume(t, "b", simple(1))
	must(t, r.MountDevice(t.Context(), one))
	must(t, r.MountDevice(t.Context(), two))
	for i, v := range []*volumemgr.Volume{one, two} {
		d, err := r.Device(v)
		must(t, err)
		must(t, r.UnmountDevice(t.Context(), d))
		if len(r.machine.sessions) != 1-i {
			t.Errorf("after disk %d: sessions %q", i, r.machine.sessions)
		}
	}
	r.machine.sessions = []string{"10.0.0.1:3260"}
	r.machine.show("10.0.0.1:3260")
	must(t, r.MountDevice(t.Context(), one))
	d, err := r.Device(one)
	must(t, err)
	must(t, r.UnmountDevice(t.Context(), d))
	if len(r.machine.sessions) != 1 {
		t.Error("a session of somebody else was ended")
	}
}

// With several paths the multipath disk is used, even if a portal is down.
func TestMultipath(t *testing.T) {
	r := iscsiNewRig(t)
	r.machine.mpath = true
	s := simple(0)
	s.Portals = []string{"10.0.0.2", "10.0.0.1:3260"}
	v := r.volume(t, "a", s)
	must(t, r.MountDevice(t.Context(), v))
	if got := r.mounts.Log()[0]; !strings.HasPrefix(got, "mount ext4 "+r.machine.path("dev/dm-0")) {
		t.Errorf("mounted %q", got)
	}
	d, err := r.Device(v)
	must(t, err)
	must(t, r.UnmountDevice(t.Context(), d))
	if !slices.Contains(r.machine.ran, "multipath -f "+r.machine.path("dev/dm-0")) || len(r.machine.sessions) > 0 {
		t.Errorf("ran %q", r.machine.ran)
	}
}

func TestInitiatorName(t *testing.T) {
	r := iscsiNewRig(t)
	s := simple(0)
	s.InitiatorName = new("iqn.2001-04.com.example:node")
	v := r.volume(t, "a", s)
	must(t, r.MountDevice(t.Context(), v))
	d, err := iscsiCheck(sourceOf(v.Spec))
	must(t, err)
	want := "iscsiadm -m iface -I " + interfaceOf(d) + " -o update -n iface.initiatorname -v iqn.2001-04.com.example:node"
	if !slices.Contains(r.machine.ran, want) {
		t.Errorf("ran %q", r.machine.ran)
	}
}

// A block device is the disk itself.
func TestBlock(t *testing.T) {
	r := iscsiNewRig(t)
	v := r.volume(t, "a", simple(0))
	block := v1.PersistentVolumeBlock
	v.Spec.PersistentVolume.Spec.VolumeMode = &block
	d, err := r.Device(v)
	must(t, err)
	v.DevicePath = d.Path
	must(t, r.MountDevice(t.Context(), v))
	for range 2 {
		if device, err := r.MapDevice(t.Context(), v); err != nil || device != r.machine.path("dev", sdName("10.0.0.1:3260", 0)) {
			t.Errorf("%q (%v)", device, err)
		}
	}
	if len(r.mounts.Log()) > 0 {
		t.Errorf("mounted %q", r.mounts.Log())
	}
	must(t, r.UnmapDevice(t.Context(), v))
	must(t, r.UnmountDevice(t.Context(), d))
	if len(r.machine.sessions) > 0 {
		t.Errorf("sessions %q", r.machine.sessions)
	}
}

// If any program fails, the next calls succeed, and nothing leaks.
func TestEveryProgramMayFail(t *testing.T) {
	for at := range 12 {
		r := iscsiNewRig(t)
		n := 0
		r.machine.fail = func(string) error {
			if n++; n == at+1 {
				return errors.New("injected")
			}
			return nil
		}
		v := r.volume(t, "a", simple(0))
		if r.MountDevice(t.Context(), v) != nil {
			r.again(t)
			must(t, r.MountDevice(t.Context(), v))
		}
		d, err := r.Device(v)
		must(t, err)
		if r.UnmountDevice(t.Context(), d) != nil {
			r.again(t)
			must(t, r.UnmountDevice(t.Context(), d))
		}
		table, err := r.mounts.Table(t.Context())
		must(t, err)
		if len(r.machine.sessions) > 0 || len(table) > 0 {
			t.Errorf("fault %d: sessions %q, mounts %v", at, r.machine.sessions, table)
		}
	}
}

// A record of the database that is a link, or a pipe, is not written through.
func TestHostileDatabase(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "etc/iscsi/nodes", target, "10.0.0.1,3260,1")
	must(t, os.MkdirAll(dir, 0o755))
	must(t, os.WriteFile(filepath.Join(root, "else"), []byte("x"), 0o600))
	must(t, os.Symlink(filepath.Join(root, "else"), filepath.Join(dir, "default")))
	db := &database{root: root}
	if err := db.set(nodeFiles(target, "10.0.0.1:3260", "default"), []setting{{"a", "b"}}); err == nil {
		t.Error("a link was followed")
	}
	for _, value := range []string{"a\nnode.startup = automatic", strings.Repeat("x", 300), " x"} {
		if err := db.set(nodeFiles(target, "10.0.0.1:3260", "default"), []setting{{"a", value}}); err == nil || strings.Contains(err.Error(), value) {
			t.Errorf("%q: %v", value, err)
		}
	}
}

func FuzzSessions(f *testing.F) {
	f.Add("tcp: [1] 10.0.0.1:3260,1 iqn.2001-04.com.example:disk (non-flash)\n")
	f.Add("tcp: [2] [fd00::1]:3260,1 iqn.x\n")
	f.Fuzz(func(t *testing.T, out string) {
		for s := range sessionsIn(out) {
			if again, err := portalOf("", s.portal); err != nil || again != s.portal || !strings.Contains(out, s.iqn) {
				t.Fatalf("%+v", s)
			}
		}
	})
}

func FuzzSettings(f *testing.F) {
	f.Add("iface.transport_name = tcp\niface.x = -v\n")
	f.Fuzz(func(t *testing.T, out string) {
		for _, s := range settings(out) {
			if s[1] == "" || s[1][0] == '-' || strings.ContainsAny(s[0]+s[1], " \n") || !strings.HasPrefix(s[0], "iface.") {
				t.Fatalf("%q", s)
			}
		}
	})
}

func FuzzChanged(f *testing.F) {
	f.Add("# BEGIN RECORD\na = 1\nb=2\n" + end + "\n")
	f.Fuzz(func(t *testing.T, record string) {
		set := []setting{{"a", "2"}, {"c", "3"}}
		once := changed([]byte(record), set)
		if n := strings.Count("\n"+string(once), "\na = 2\n"); n != 1 {
			t.Fatalf("%d times in %q", n, once)
		}
	})
}
