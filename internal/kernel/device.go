package kernel

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
)

// DeviceDir returns the directory of a device in /sys, such as
// devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0/ttyUSB0/tty/ttyUSB0. kind is "char" or "block".
// The error is ErrAbsent for a number that the kernel does not list, such as those of the nodes of
// drivers outside of its device model.
func (r *Reader) DeviceDir(ctx context.Context, kind string, major, minor uint32) (string, error) {
	name := fmt.Sprintf("dev/%s/%d:%d", kind, major, minor)
	target, err := do(ctx, r.calls, name, func() (string, error) { return r.sys.Link(name) })
	if err != nil {
		return "", err
	}
	dir := path.Join(path.Dir(name), target)
	if !strings.HasPrefix(dir, devicesDir) {
		return "", &FormatError{"sys/" + name, target, "a link to a directory below " + devicesDir}
	}
	return dir, nil
}

// devicesDir is the directory below /sys in which every device has a directory.
const devicesDir = "devices/"

// DeviceNUMANode returns the NUMA node of a device: that of the nearest device at or above its
// directory that has one. ok is false if none has.
func (r *Reader) DeviceNUMANode(ctx context.Context, dir string) (node int, ok bool, err error) {
	for ; strings.HasPrefix(dir, devicesDir); dir = path.Dir(dir) {
		file := dir + "/numa_node"
		text, err := r.Sys(ctx, file)
		if errors.Is(err, ErrAbsent) {
			continue
		}
		if err != nil {
			return 0, false, err
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			return 0, false, &FormatError{"sys/" + file, text, "a number"}
		}
		return n, n >= 0, nil // -1 is no node
	}
	return 0, false, nil
}

// USBID is what a USB device says of its make: the numbers of its vendor and product.
type USBID struct{ Vendor, Product uint16 }

// USBDevice reads the ID of the USB device with this directory. The error is ErrAbsent for a device
// that is no USB device.
func (r *Reader) USBDevice(ctx context.Context, dir string) (USBID, error) {
	number := func(file string) (uint16, error) {
		text, err := r.Sys(ctx, dir+"/"+file)
		if err != nil {
			return 0, err
		}
		n, err := strconv.ParseUint(text, 16, 16)
		if err != nil {
			return 0, &FormatError{"sys/" + dir + "/" + file, text, "4 hexadecimal digits"}
		}
		return uint16(n), nil
	}
	vendor, err := number("idVendor")
	if err != nil {
		return USBID{}, err
	}
	product, err := number("idProduct")
	return USBID{vendor, product}, err
}

// DeviceNode is a node that the kernel asks for in /dev.
type DeviceNode struct {
	Name         string // relative to /dev, such as snd/pcmC1D0c
	Major, Minor uint32
}

// Limits of the tree of one device.
const (
	maxDeviceDirs  = 4096
	maxDeviceDepth = 16
)

// DeviceNodes returns the nodes of a device and of the devices below it, parents first. The devices
// at a USB hub are not parts of the hub. What is removed meanwhile is left out.
func (r *Reader) DeviceNodes(ctx context.Context, dir string) ([]DeviceNode, error) {
	w := deviceWalk{r: r, top: dir, left: maxDeviceDirs}
	err := w.visit(ctx, dir, maxDeviceDepth)
	return w.nodes, err
}

type deviceWalk struct {
	r     *Reader
	top   string
	left  int // directories that may still be visited
	nodes []DeviceNode
}

func (w *deviceWalk) visit(ctx context.Context, dir string, depth int) error {
	if w.left--; w.left < 0 || depth == 0 {
		return fmt.Errorf("devices below sys/%s: %w of %d directories, or of depth %d", w.top, ErrTooLong, maxDeviceDirs, maxDeviceDepth)
	}
	text, err := w.r.Sys(ctx, dir+"/uevent")
	if err != nil && !vanished(err) {
		return err
	}
	event := parseUevent(text)
	if dir != w.top && event["DEVTYPE"] == "usb_device" {
		return nil
	}
	if n, ok := event.node(); ok {
		w.nodes = append(w.nodes, n)
	}
	below, err := w.r.SysDirs(ctx, dir)
	if err != nil && !vanished(err) {
		return err
	}
	for _, name := range below {
		if err := w.visit(ctx, dir+"/"+name, depth-1); err != nil {
			return err
		}
	}
	return nil
}

func vanished(err error) bool { return errors.Is(err, ErrAbsent) || errors.Is(err, ErrGone) }

// uevent has the properties of a device that the kernel tells udev.
type uevent map[string]string

func parseUevent(text string) uevent {
	out := uevent{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			out[key] = value
		}
	}
	return out
}

// node returns the node of the device. It returns false if the device has none.
func (u uevent) node() (DeviceNode, bool) {
	major, err := strconv.ParseUint(u["MAJOR"], 10, 32)
	minor, err2 := strconv.ParseUint(u["MINOR"], 10, 32)
	return DeviceNode{u["DEVNAME"], uint32(major), uint32(minor)}, err == nil && err2 == nil && u["DEVNAME"] != ""
}
