//go:build linux

package hostdevices

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/cdi"
	"github.com/nodewright/nodewright/internal/kernel"
)

// tree is a machine in a directory, with a /sys in memory.
type tree struct {
	testing.TB
	dev, cdi string
	sys      fstest.MapFS
}

func newTree(t testing.TB) *tree {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make device nodes")
	}
	dir := t.TempDir()
	return &tree{TB: t, dev: filepath.Join(dir, "dev"), cdi: filepath.Join(dir, "cdi"), sys: fstest.MapFS{}}
}

func (t *tree) must(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// node makes a device node.
func (t *tree) node(name string, major, minor uint32) {
	t.Helper()
	at := filepath.Join(t.dev, name)
	t.must(os.MkdirAll(filepath.Dir(at), 0o755))
	t.must(unix.Mknod(at, unix.S_IFCHR|0o600, int(unix.Mkdev(major, minor))))
}

func (t *tree) link(name, target string) {
	t.Helper()
	at := filepath.Join(t.dev, name)
	t.must(os.MkdirAll(filepath.Dir(at), 0o755))
	t.must(os.Symlink(target, at))
}

func (t *tree) remove(name string) {
	t.Helper()
	t.must(os.RemoveAll(filepath.Join(t.dev, name)))
}

// inSys has the kernel list a device: its directory below sys/devices, and its files.
func (t *tree) inSys(major, minor uint32, dir string, files map[string]string) {
	t.sys[fmt.Sprintf("sys/dev/char/%d:%d", major, minor)] = &fstest.MapFile{Data: []byte("../../devices/" + dir), Mode: fs.ModeSymlink | 0o777}
	for name, text := range files {
		t.sys["sys/devices/"+dir+"/"+name] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
}

func (t *tree) specification(name, text string) {
	t.Helper()
	t.must(os.MkdirAll(t.cdi, 0o755))
	t.must(os.WriteFile(filepath.Join(t.cdi, name), []byte(strings.ReplaceAll(text, "/dev/", t.dev+"/")), 0o600))
}

// gpus is what nvidia-ctk cdi generate writes of two GPUs, in short.
const gpus = `
cdiVersion: 0.5.0
kind: nvidia.com/gpu
containerEdits: {deviceNodes: [{path: /dev/nvidiactl}]}
devices:
- {name: all, containerEdits: {deviceNodes: [{path: /dev/nvidia0}, {path: /dev/dri/card1}, {path: /dev/nvidia1}]}}
- {name: GPU-a, containerEdits: {deviceNodes: [{path: /dev/nvidia0}, {path: /dev/dri/card1}]}}
- {name: "0", containerEdits: {deviceNodes: [{path: /dev/nvidia0}, {path: /dev/dri/card1}]}}
- {name: "1", containerEdits: {deviceNodes: [{path: /dev/nvidia1}]}}
- {name: GPU-b, containerEdits: {deviceNodes: [{path: /dev/nvidia1}]}}
`

func (t *tree) machine() *machine {
	t.Helper()
	registry, err := cdi.New(cdi.Config{Dirs: []string{t.cdi}})
	t.must(err)
	return &machine{dev: t.dev, kernel: kernel.At(t.sys), cdi: registry}
}

// scan returns the devices, one a line: resource, ID, health, NUMA nodes, and what a container gets.
func (t *tree) scan(rules ...Rule) (lines []string, f *found) {
	t.Helper()
	compiled, err := Settings{Devices: rules}.compile()
	t.must(err)
	f = t.machine().scan(t.Context(), compiled)
	for resource, devices := range f.devices {
		for id, d := range devices {
			line := fmt.Sprintf("%s %s %v [%v]", resource, id, d.present, d.near)
			for _, n := range d.attach.Nodes {
				if n.Permissions != "rw" || filepath.Join("/", strings.TrimPrefix(n.HostPath, filepath.Dir(t.dev))) != n.ContainerPath {
					t.Errorf("%+v", n)
				}
				line += " " + n.ContainerPath
			}
			lines = append(lines, strings.Join(append([]string{line}, d.attach.CDI...), " "))
		}
	}
	slices.Sort(lines)
	return lines, f
}

func TestScan(t *testing.T) {
	m := newTree(t)
	m.node("ttyUSB0", 188, 0)
	m.node("ttyUSB1", 188, 1)
	m.node("again", 188, 0)
	m.link("serial/by-id/usb-A", "../../ttyUSB0")
	m.link("serial/by-id/usb-gone", "../../ttyUSB7")
	m.link("serial/by-id/usb-file", "../../ttyUSB9")
	m.link("ttyUSB8", "/dev/null")
	m.must(os.WriteFile(filepath.Join(m.dev, "ttyUSB9"), nil, 0o600))
	m.node("bus/usb/001/003", 189, 2)
	m.node("bus/usb/001/004", 189, 3)
	m.node("bus/usb/001/005", 189, 4)
	m.node("video0", 81, 0)
	m.node("snd/pcmC1D0c", 116, 9) // of another device
	const usb = "pci0000:00/0000:00:14.0/usb1/"
	m.inSys(188, 1, usb+"1-3/1-3:1.0/ttyUSB1/tty/ttyUSB1", nil)
	m.inSys(189, 2, usb+"1-2", map[string]string{
		"idVendor": "046d", "idProduct": "0825", "uevent": "MAJOR=189\nMINOR=2\nDEVNAME=bus/usb/001/003\nDEVTYPE=usb_device",
		"1-2:1.0/video4linux/video0/uevent":   "MAJOR=81\nMINOR=0\nDEVNAME=video0",
		"1-2:1.0/media0/uevent":               "MAJOR=239\nMINOR=0\nDEVNAME=media0", // its node does not exist yet
		"1-2:1.2/sound/card1/pcmC1D0c/uevent": "MAJOR=116\nMINOR=7\nDEVNAME=snd/pcmC1D0c",
		"1-2:1.3/hidraw/hidraw0/uevent":       "MAJOR=240\nMINOR=0\nDEVNAME=../../hidraw0",
	})
	m.inSys(189, 3, usb+"1-3", map[string]string{"idVendor": "0403", "idProduct": "6001", "uevent": "MAJOR=189\nMINOR=3\nDEVNAME=bus/usb/001/004\nDEVTYPE=usb_device"})
	m.inSys(189, 4, usb+"1-4", map[string]string{"idVendor": "?", "idProduct": "6001"})
	m.sys["sys/devices/pci0000:00/0000:00:14.0/numa_node"] = &fstest.MapFile{Data: []byte("1\n")}
	m.node("nvidia0", 195, 0)
	m.node("dri/card1", 226, 1)
	m.inSys(226, 1, "pci0000:00/0000:40:00.0/drm/card1", nil)
	m.sys["sys/devices/pci0000:00/0000:40:00.0/numa_node"] = &fstest.MapFile{Data: []byte("0\n")}
	m.specification("nvidia.yaml", gpus)
	m.specification("mig.yaml", `
cdiVersion: 0.5.0
kind: nvidia.com/mig
devices:
- {name: "0", containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}}
- {name: "0:0", containerEdits: {deviceNodes: [{path: /dev/nvidia0}, {path: /dev/again}]}}
- {name: MIG-a, containerEdits: {deviceNodes: [{path: /dev/nvidia0}, {path: /dev/again}]}}
- {name: "0:1", containerEdits: {deviceNodes: [{path: /dev/nvidia0}, {path: /dev/ttyUSB1}]}}
`)
	m.specification("soft.json", `{"cdiVersion": "0.5.0", "kind": "example.com/soft", "devices": [{"name": "a", "containerEdits": {"env": ["A=1"]}}]}`)

	path := func(resource string, paths ...string) Rule {
		return Rule{Resource: "example.com/" + resource, Paths: paths}
	}
	for name, c := range map[string]struct {
		rules []Rule
		want  []string
		errs  string // a part of an error that is reported
	}{
		"paths": {[]Rule{path("serial", "/dev/ttyUSB*")}, []string{
			"example.com/serial ttyUSB0 true [] /dev/ttyUSB0", "example.com/serial ttyUSB1 true [1] /dev/ttyUSB1",
		}, ""},
		"a path of one": {[]Rule{path("serial", "/dev/ttyUSB1")}, []string{"example.com/serial ttyUSB1 true [1] /dev/ttyUSB1"}, ""},
		"links before nodes": {[]Rule{path("serial", "/dev/serial/by-id/*", "/dev/ttyUSB*")}, []string{
			"example.com/serial serial/by-id/usb-A true [] /dev/serial/by-id/usb-A", "example.com/serial ttyUSB1 true [1] /dev/ttyUSB1",
		}, ""},
		"the first rule": {[]Rule{path("first", "/dev/again"), path("serial", "/dev/ttyUSB*")}, []string{
			"example.com/first again true [] /dev/again", "example.com/serial ttyUSB1 true [1] /dev/ttyUSB1",
		}, ""},
		"a directory that is missing": {[]Rule{path("serial", "/dev/none/*")}, nil, ""},
		"usb": {[]Rule{{Resource: "example.com/camera", USB: "046d:0825"}}, []string{
			"example.com/camera bus/usb/001/003 true [1] /dev/bus/usb/001/003 /dev/video0",
		}, "idVendor"},
		"two makes of one resource": {[]Rule{{Resource: "example.com/usb", USB: "046d:0825"}, {Resource: "example.com/usb", USB: "0403:6001"}}, []string{
			"example.com/usb bus/usb/001/003 true [1] /dev/bus/usb/001/003 /dev/video0", "example.com/usb bus/usb/001/004 true [1] /dev/bus/usb/001/004",
		}, "idVendor"},
		"a function before its device": {[]Rule{path("video", "/dev/video*"), {Resource: "example.com/camera", USB: "046d:0825"}}, []string{
			"example.com/video video0 true [] /dev/video0",
		}, "idVendor"},
		"cdi": {[]Rule{{Resource: "nvidia.com/gpu", CDI: "nvidia.com/gpu"}}, []string{
			"nvidia.com/gpu nvidia.com/gpu=0 true [0] nvidia.com/gpu=0", "nvidia.com/gpu nvidia.com/gpu=1 false [] nvidia.com/gpu=1",
		}, ""},
		"cdi by name": {[]Rule{{Resource: "nvidia.com/gpu", CDI: "nvidia.com/gpu=GPU-*"}}, []string{
			"nvidia.com/gpu nvidia.com/gpu=GPU-a true [0] nvidia.com/gpu=GPU-a", "nvidia.com/gpu nvidia.com/gpu=GPU-b false [] nvidia.com/gpu=GPU-b",
		}, ""},
		"devices that share a node": {[]Rule{{Resource: "nvidia.com/mig", CDI: "nvidia.com/mig=*:*"}}, []string{
			"nvidia.com/mig nvidia.com/mig=0:0 true [] nvidia.com/mig=0:0", "nvidia.com/mig nvidia.com/mig=0:1 true [1] nvidia.com/mig=0:1",
		}, ""},
		"cdi without nodes": {[]Rule{{Resource: "example.com/soft", CDI: "example.com/soft"}, {Resource: "example.com/again", CDI: "example.com/soft"}}, []string{
			"example.com/again example.com/soft=a true [] example.com/soft=a", "example.com/soft example.com/soft=a true [] example.com/soft=a",
		}, ""},
		"a kind that is missing": {[]Rule{{Resource: "amd.com/gpu", CDI: "amd.com/gpu"}}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m.TB = t
			got, f := m.scan(c.rules...)
			if !slices.Equal(got, c.want) {
				t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			if text := fmt.Sprint(f.errs); c.errs == "" && len(f.errs) > 0 || !strings.Contains(text, c.errs) {
				t.Errorf("errors %s, want %q", text, c.errs)
			}
			for _, r := range c.rules {
				if f.devices[r.Resource] == nil {
					t.Errorf("no list of %s", r.Resource)
				}
			}
		})
	}
}

// Where a change is noticed: also where nothing is yet.
func TestScanKnowsWhatToWatch(t *testing.T) {
	m := newTree(t)
	m.must(os.MkdirAll(m.dev, 0o755))
	m.node("real/tty0", 188, 0)
	m.link("links/a", "../real/tty0")
	m.specification("nvidia.yaml", gpus)
	_, f := m.scan(Rule{Resource: "a/links", Paths: []string{"/dev/links/*", "/dev/later/*"}}, Rule{Resource: "a/usb", USB: "046d:0825"}, Rule{Resource: "a/gpu", CDI: "nvidia.com/gpu"})
	for dir, contents := range map[string]bool{
		m.dev: false, m.dev + "/links": false, m.dev + "/real": false, m.dev + "/later": false, m.dev + "/bus/usb": false,
		m.dev + "/snd": false, m.dev + "/dri": false, m.cdi: true,
	} {
		if got, ok := f.dirs[dir]; !ok || got != contents {
			t.Errorf("%s is watched: %v, its contents: %v; want %v", dir, ok, got, contents)
		}
	}
}

// Who can make a link in a directory does not choose devices.
func TestScanRefusesDirectoriesOfOthers(t *testing.T) {
	m := newTree(t)
	m.node("disk", 8, 0)
	m.link("shm/x", "../disk")
	m.must(os.Chmod(filepath.Join(m.dev, "shm"), 0o777|os.ModeSticky))
	got, f := m.scan(Rule{Resource: "a/b", Paths: []string{"/dev/shm/*"}})
	if len(got) > 0 || len(f.errs) != 1 || !strings.Contains(f.errs[0].Error(), "want it writable by its owner alone") {
		t.Errorf("%q, %v", got, f.errs)
	}
}

func TestScanOfTooMuch(t *testing.T) {
	m := newTree(t)
	for i := range maxDevices + 1 {
		m.node(fmt.Sprintf("x%d", i), 188, uint32(i))
	}
	got, f := m.scan(Rule{Resource: "a/b", Paths: []string{"/dev/x*"}})
	if len(got) != maxDevices || len(f.errs) != 1 || !strings.Contains(f.errs[0].Error(), "a/b has more than 1024 devices") {
		t.Errorf("%d devices, %v", len(got), f.errs)
	}
}
