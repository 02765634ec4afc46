//go:build linux

package hostdevices

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/internal/cdi"
	"github.com/nodewright/nodewright/internal/kernel"
	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/numa"
)

// machine has the devices. Its methods block on file systems.
type machine struct {
	dev    string // /dev
	kernel *kernel.Reader
	cdi    *cdi.Registry
}

// device is a device that a rule selects.
type device struct {
	id     string   // within its resource
	nodes  []string // paths on the host; none if all is in a CDI specification
	attach devicemgr.Attachment

	// complete sets the rest.
	keys    []string     // what stands for the nodes: the number of one that exists, the path of another
	present bool         // all nodes exist
	near    numa.NodeSet // NUMA nodes
}

// Limits of what is found.
const (
	maxEntries = 8192 // of a directory
	maxDevices = 1024 // of a resource
	maxWatched = 4096 // directories
)

// found is what there is at one time.
type found struct {
	devices map[string]map[string]*device // by resource and ID
	dirs    watched                       // where a change may change the result
	errs    []error
}

// watched are directories, and whether a change of the files in one matters too, or only which names
// it has.
type watched map[string]bool

// scan finds the devices of all rules.
func (m *machine) scan(ctx context.Context, rules []rule) *found {
	l := &look{machine: m, ctx: ctx, byKey: map[string][]*device{}}
	l.devices, l.dirs = map[string]map[string]*device{}, watched{}
	for _, r := range rules {
		if l.devices[r.resource] == nil {
			l.devices[r.resource] = map[string]*device{}
		}
		for _, d := range r.find(l) {
			if len(l.devices[r.resource]) == maxDevices {
				l.fail(fmt.Errorf("resource %s has more than %d devices: %q and others are left out", r.resource, maxDevices, d.id))
				break
			}
			l.complete(d)
			l.offer(r.resource, d)
		}
	}
	return &l.found
}

// look is one scan.
type look struct {
	*machine
	found
	ctx   context.Context      //nolint:containedctx // of one scan
	byKey map[string][]*device // offered devices, by each of their keys
	usb   []usbDevice          // nil until they are needed
}

// fail notes an error. What is missing is none: devices come and go.
func (l *look) fail(err error) {
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, kernel.ErrGone) {
		l.errs = append(l.errs, err)
	}
}

// watch notes a directory.
func (l *look) watch(dir string, contents bool) {
	if len(l.dirs) < maxWatched {
		l.dirs[dir] = l.dirs[dir] || contents
	}
}

// complete looks at the nodes of a device.
func (l *look) complete(d *device) {
	d.present = true
	for _, p := range d.nodes {
		l.watch(filepath.Dir(p), false)
		n, ok := l.node(p)
		if !ok {
			d.present = false
			d.keys = append(d.keys, p)
			continue
		}
		d.keys = append(d.keys, fmt.Sprintf("%s %d:%d", n.kind, n.major, n.minor))
		d.near |= l.near(n)
	}
}

// offer adds a device to those of its resource, unless one of them or of another resource is the
// same.
func (l *look) offer(resource string, d *device) {
	if l.devices[resource][d.id] != nil || l.offered(d) {
		return
	}
	l.devices[resource][d.id] = d
	for _, k := range d.keys {
		l.byKey[k] = append(l.byKey[k], d)
	}
}

// offered reports whether some offered device has all device nodes of d, or d has all device nodes
// of that device. Devices that share only some device nodes are different devices, such as MIG
// devices of one GPU.
func (l *look) offered(d *device) bool {
	for _, k := range d.keys {
		for _, other := range l.byKey[k] {
			if subset(d.keys, other.keys) || subset(other.keys, d.keys) {
				return true
			}
		}
	}
	return false
}

func subset(a, b []string) bool {
	return !slices.ContainsFunc(a, func(k string) bool { return !slices.Contains(b, k) })
}

// node is a device node that exists.
type node struct {
	kind         string // char or block
	major, minor uint32
}

// node returns the device node at a path, or behind a link there.
func (l *look) node(p string) (node, bool) {
	var st unix.Stat_t
	if err := unix.Stat(p, &st); err != nil {
		l.fail(&fs.PathError{Op: "stat", Path: p, Err: err})
		return node{}, false
	}
	kind := map[uint32]string{unix.S_IFCHR: "char", unix.S_IFBLK: "block"}[st.Mode&unix.S_IFMT]
	number := uint64(st.Rdev) //nolint:unconvert // Rdev has 32 bits elsewhere
	return node{kind, unix.Major(number), unix.Minor(number)}, kind != ""
}

// near returns the NUMA node of a device node; none if it is not known.
func (l *look) near(n node) numa.NodeSet {
	dir, err := l.kernel.DeviceDir(l.ctx, n.kind, n.major, n.minor)
	if err != nil {
		l.fail(err)
		return 0
	}
	id, ok, err := l.kernel.DeviceNUMANode(l.ctx, dir)
	l.fail(err)
	if !ok || id >= numa.MaxNodes {
		return 0
	}
	return numa.Nodes(id)
}

// entries lists a directory of device nodes, sorted by name. It lists none of a directory in which
// others than root can make links.
func (l *look) entries(dir string) []fs.DirEntry {
	l.watch(dir, false)
	resolved, err := filepath.EvalSymlinks(dir)
	if err == nil {
		err = cdi.Trusted(resolved)
	}
	if err != nil {
		l.fail(err)
		return nil
	}
	list, err := safefile.Entries(resolved, maxEntries)
	l.fail(err) // if there are too many, the list has the first
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list
}

// resolve returns the path at the end of links. It returns false if that is not below the directory
// of device nodes.
func (l *look) resolve(p string) (string, bool) {
	dev, err := filepath.EvalSymlinks(l.dev)
	resolved, err2 := filepath.EvalSymlinks(p)
	if err := errors.Join(err, err2); err != nil {
		l.fail(err)
		return "", false
	}
	return resolved, strings.HasPrefix(resolved, dev+"/")
}

// selector finds the devices of a rule, in the order in which they are offered.
type selector interface{ find(l *look) []*device }

// byPath are patterns relative to /dev.
type byPath []string

func (s byPath) find(l *look) (out []*device) {
	for _, pattern := range s {
		dir, pattern := path.Split(pattern)
		for _, e := range l.entries(filepath.Join(l.dev, dir)) {
			match, _ := path.Match(pattern, e.Name())
			if !match || e.Type()&(fs.ModeDevice|fs.ModeSymlink) == 0 {
				continue
			}
			name := path.Join(dir, e.Name())
			at := filepath.Join(l.dev, name)
			resolved, ok := l.resolve(at)
			if !ok {
				continue
			}
			l.watch(filepath.Dir(resolved), false)
			if _, ok := l.node(resolved); ok {
				out = append(out, l.plain(name, []string{name}))
			}
		}
	}
	return out
}

// plain returns a device that consists of nodes. All names are relative to /dev.
func (l *look) plain(id string, names []string) *device {
	d := &device{id: id}
	for _, name := range names {
		at := filepath.Join(l.dev, name)
		d.nodes = append(d.nodes, at)
		d.attach.Nodes = append(d.attach.Nodes, devicemgr.DeviceNode{ContainerPath: "/dev/" + name, HostPath: at, Permissions: "rw"})
	}
	return d
}

// byUSB is the ID of USB devices.
type byUSB kernel.USBID

// usbDevice is a device at a USB port.
type usbDevice struct {
	kernel.USBID
	name string // of its node, relative to /dev
	dir  string // in /sys
}

// functions are the directories of /dev in which drivers of USB devices make nodes.
var functions = []string{"", "bus/usb", "input", "snd", "usb"}

func (s byUSB) find(l *look) (out []*device) {
	for _, dir := range functions {
		l.watch(filepath.Join(l.dev, dir), false)
	}
	if l.usb == nil {
		l.usb = l.usbDevices()
	}
	for _, u := range l.usb {
		if u.USBID != kernel.USBID(s) {
			continue
		}
		nodes, err := l.kernel.DeviceNodes(l.ctx, u.dir)
		l.fail(err)
		var names []string
		for _, n := range nodes {
			if !filepath.IsLocal(n.Name) {
				continue
			}
			at := filepath.Join(l.dev, n.Name)
			l.watch(filepath.Dir(at), false) // also if the node does not exist yet
			if is, ok := l.node(at); ok && is.major == n.Major && is.minor == n.Minor {
				names = append(names, n.Name)
			}
		}
		if len(names) > 0 {
			out = append(out, l.plain(u.name, names))
		}
	}
	return out
}

// usbDevices returns the devices at all USB ports.
func (l *look) usbDevices() []usbDevice {
	out := []usbDevice{}
	const buses = "bus/usb"
	for _, bus := range l.entries(filepath.Join(l.dev, buses)) {
		if !bus.IsDir() {
			continue
		}
		for _, e := range l.entries(filepath.Join(l.dev, buses, bus.Name())) {
			u := usbDevice{name: path.Join(buses, bus.Name(), e.Name())}
			n, ok := l.node(filepath.Join(l.dev, u.name))
			if !ok {
				continue
			}
			var err error
			if u.dir, err = l.kernel.DeviceDir(l.ctx, n.kind, n.major, n.minor); err == nil {
				u.USBID, err = l.kernel.USBDevice(l.ctx, u.dir)
			}
			if err != nil {
				l.fail(err)
				continue
			}
			out = append(out, u)
		}
	}
	return out
}

// byCDI are devices of a kind whose names match a pattern.
type byCDI struct{ kind, pattern string }

func (s byCDI) find(l *look) (out []*device) {
	for _, dir := range l.cdi.Dirs() {
		l.watch(dir, true)
	}
	all, err := l.cdi.Devices(l.ctx, s.kind)
	l.fail(err)
	// If several names have the same nodes, only the first is offered.
	slices.SortStableFunc(all, func(a, b cdi.Device) int {
		return cmp.Or(cmp.Compare(len(a.Nodes), len(b.Nodes)), cmp.Compare(len(a.Name), len(b.Name)))
	})
	for _, d := range all {
		if match, _ := path.Match(s.pattern, d.Name); match {
			name := s.kind + "=" + d.Name
			out = append(out, &device{id: name, nodes: d.Nodes, attach: devicemgr.Attachment{CDI: []string{name}}})
		}
	}
	return out
}
