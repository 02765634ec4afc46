package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"
)

// A hub with a camera, which is a sound card too, and a serial adapter without a driver; a disk of a
// controller that is near no NUMA node.
func machineWithDevices() fstest.MapFS {
	const hub = "sys/devices/pci0000:00/0000:00:14.0/usb1/1-2"
	link := func(to string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte(to), Mode: fs.ModeSymlink | 0o777}
	}
	usb := func(n int) string {
		return fmt.Sprintf("MAJOR=189\nMINOR=%d\nDEVNAME=bus/usb/001/%03d\nDEVTYPE=usb_device\nDRIVER=usb\n", n-1, n)
	}
	return fstest.MapFS{
		"sys/dev/char/189:1": link("../../devices/pci0000:00/0000:00:14.0/usb1/1-2"),
		"sys/dev/char/189:2": link("../../devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2.1"),
		"sys/dev/char/189:3": link("../../devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2.2"),
		"sys/dev/char/1:3":   link("../../devices/virtual/mem/null"),
		"sys/dev/block/8:0":  link("../../devices/pci0000:00/0000:00:05.0/host0/target0:0:0/0:0:0:0/block/sda"),
		"sys/dev/char/9:9":   link("../../../etc"),
		"sys/dev/char/9:8":   link("../../devices/pci0000:00/bad/x"),

		"sys/devices/virtual/mem/null/uevent":                              file("MAJOR=1\nMINOR=3\nDEVNAME=null\nDEVMODE=0666\n"),
		"sys/devices/pci0000:00/bad/numa_node":                             file("near\n"),
		"sys/devices/pci0000:00/0000:00:05.0/numa_node":                    file("-1\n"),
		"sys/devices/pci0000:00/0000:00:05.0/host0/scsi_host/host0/uevent": file(""),
		"sys/devices/pci0000:00/0000:00:14.0/numa_node":                    file("1\n"),
		hub + "/uevent":                                    file(usb(2)),
		hub + "/idVendor":                                  file("1d6b\n"),
		hub + "/idProduct":                                 file("0002\n"),
		hub + "/1-2:1.0/uevent":                            file("DEVTYPE=usb_interface\nDRIVER=hub\n"),
		hub + "/1-2.1/uevent":                              file(usb(3)),
		hub + "/1-2.1/idVendor":                            file("046d\n"),
		hub + "/1-2.1/idProduct":                           file("0825\n"),
		hub + "/1-2.1/power/wake":                          file(""),
		hub + "/1-2.1/1-2.1:1.0/video4linux/video0/uevent": file("MAJOR=81\nMINOR=0\nDEVNAME=video0\n"),
		hub + "/1-2.1/1-2.1:1.2/sound/card1/uevent":        file(""),
		hub + "/1-2.1/1-2.1:1.2/sound/card1/pcm/uevent":    file("MAJOR=116\nMINOR=7\nDEVNAME=snd/pcmC1D0c\n"),
		hub + "/1-2.2/uevent":                              file(usb(4)),
		hub + "/1-2.2/idVendor":                            file("x\n"),
		hub + "/1-2.2/idProduct":                           file("6001\n"),
	}
}

func TestDevices(t *testing.T) {
	r, ctx := At(machineWithDevices()), t.Context()
	dir := func(kind string, major, minor uint32) string {
		t.Helper()
		dir, err := r.DeviceDir(ctx, kind, major, minor)
		if err != nil {
			t.Error(err)
		}
		return dir
	}
	camera, hub, disk, null := dir("char", 189, 2), dir("char", 189, 1), dir("block", 8, 0), dir("char", 1, 3)
	if want := "devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2.1"; camera != want {
		t.Errorf("directory %s, want %s", camera, want)
	}
	if dir, err := r.DeviceDir(ctx, "char", 195, 0); !errors.Is(err, ErrAbsent) {
		t.Errorf("of a driver outside of the device model: %q, %v", dir, err)
	}
	var bad *FormatError
	if dir, err := r.DeviceDir(ctx, "char", 9, 9); !errors.As(err, &bad) {
		t.Errorf("a link out of the devices: %q, %v", dir, err)
	}

	for at, want := range map[string]string{camera: "1 true <nil>", hub: "1 true <nil>", disk: "-1 false <nil>", null: "0 false <nil>"} {
		node, ok, err := r.DeviceNUMANode(ctx, at)
		if got := fmt.Sprint(node, ok, err); got != want {
			t.Errorf("NUMA node of %s: %s, want %s", at, got, want)
		}
	}
	if _, _, err := r.DeviceNUMANode(ctx, dir("char", 9, 8)); !errors.As(err, &bad) {
		t.Errorf("a NUMA node that is no number: %v", err)
	}

	if id, err := r.USBDevice(ctx, camera); err != nil || id != (USBID{0x046d, 0x0825}) {
		t.Errorf("%+v, %v", id, err)
	}
	if id, err := r.USBDevice(ctx, null); !errors.Is(err, ErrAbsent) {
		t.Errorf("no USB device: %+v, %v", id, err)
	}
	if id, err := r.USBDevice(ctx, dir("char", 189, 3)); !errors.As(err, &bad) {
		t.Errorf("a vendor that is no number: %+v, %v", id, err)
	}

	for at, want := range map[string][]DeviceNode{
		camera:         {{"bus/usb/001/003", 189, 2}, {"video0", 81, 0}, {"snd/pcmC1D0c", 116, 7}},
		hub:            {{"bus/usb/001/002", 189, 1}},
		null:           {{"null", 1, 3}},
		"devices/gone": nil,
	} {
		if got, err := r.DeviceNodes(ctx, at); err != nil || !slices.Equal(got, want) {
			t.Errorf("nodes of %s: %+v, %v; want %+v", at, got, err, want)
		}
	}
}

// The tree of a device is bounded.
func TestDeviceNodesOfTooMuch(t *testing.T) {
	wide, deep := fstest.MapFS{}, fstest.MapFS{}
	for i := range maxDeviceDirs {
		wide[fmt.Sprintf("sys/devices/x/%d/uevent", i)] = file("")
	}
	deep["sys/devices/x"+strings.Repeat("/y", maxDeviceDepth)+"/uevent"] = file("")
	for _, m := range []fstest.MapFS{wide, deep} {
		if nodes, err := At(m).DeviceNodes(t.Context(), "devices/x"); !errors.Is(err, ErrTooLong) {
			t.Errorf("%d nodes, %v", len(nodes), err)
		}
	}
}

func TestDeviceOfThisMachine(t *testing.T) {
	var st unix.Stat_t
	if err := unix.Stat("/dev/null", &st); err != nil {
		t.Fatal(err)
	}
	dir, err := This.DeviceDir(t.Context(), "char", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	if errors.Is(err, ErrAbsent) {
		t.Skip(err) // as in a container without the host's /sys
	}
	if err != nil {
		t.Fatal(err)
	}
	if nodes, err := This.DeviceNodes(t.Context(), dir); err != nil || len(nodes) != 1 || nodes[0].Name != "null" {
		t.Errorf("%+v, %v", nodes, err)
	}
	if _, err := os.Stat("/sys/" + dir); err != nil {
		t.Error(err)
	}
}

func FuzzUevent(f *testing.F) {
	f.Add("MAJOR=188\nMINOR=0\nDEVNAME=ttyUSB0\n")
	f.Add("MAJOR=-1\nMINOR=99999999999\nDEVNAME=\n=\n")
	f.Fuzz(func(t *testing.T, text string) {
		if n, ok := parseUevent(text).node(); ok && n.Name == "" {
			t.Errorf("%q: a node without a name", text)
		}
	})
}
